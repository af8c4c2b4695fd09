"""Every flag of a request, once. Reads no request.

Parser, keywords of `Client.submit`, error messages, `--help`, completion, job files, the panel's form and the
tables of the documentation all read this table. A flag that only the scheduler cares about is a row here with
its type in `Keywords` below, a field of `JobSpec`, and the scheduler's own part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, TypedDict

import msgspec

from mgpu_jupyter.client import slurm
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client.here import Here

Reader = Callable[[str, str, Here], object]
"""From text, its flag, and where the request is made, to the value."""
NodeNames = Sequence[str] | str | None


class Field(msgspec.Struct, frozen=True):
    """How the forms of the panel and the sidebar ask for a flag."""

    label: str
    control: Literal["text", "number", "choice", "switches", "switch", "names", "nodes", "pairs"] = "text"
    """Text; a number; one of the choices; flags of which at most one is set; yes or no; names with commas or
    spaces between them, of anything or of nodes; `NAME=value`, many of them.
    """
    hint: str = ""
    """The placeholder while it is empty."""
    choices: tuple[tuple[str, str], ...] = ()
    """Values, the empty one for none, with their labels. For `switches` they are flags."""
    note: str = ""
    """The text beside it."""
    is_main: bool = False
    """Whether the sidebar shows it before *More* is opened."""


class Flag(msgspec.Struct, frozen=True):
    """One flag of a request."""

    field: str
    """The field of `JobSpec` that it fills; empty for a flag about how to proceed."""
    usage: str
    """Its names, and the placeholder of its value unless it is a switch: `--gpus -G N`. Empty for one that
    only exists as a keyword.
    """
    help: str
    reader: Reader | None = None
    """Reads its text; without one the text is the value."""
    example: str = ""
    """A correct value, for messages about a wrong one."""
    keyword: str = ""
    """Its keyword, where that differs from its name."""
    reads_numbers: bool = False
    """Whether numbers are read like text: a number for memory means megabytes."""
    means: bool = True
    """The value of a switch."""
    is_many: bool = False
    """Whether it may be given more than once."""
    choices: tuple[str, ...] = ()
    names_nodes: bool = False
    """Whether it says something about nodes, so that the user's own machine is not meant."""
    completes: Literal["", "nodes", "node-gpus", "after", "partitions", "accounts", "qos", "strategies"] = ""
    """Which of the master's names can be its value."""
    only: Literal["", "line", "notebook", "shell", "keyword"] = ""
    """Where it exists: everywhere, on lines (no keyword), on lines of a notebook or of a shell, as a keyword.
    """
    in_files: bool = True
    """Whether a job file may have it."""
    form: Field | None = None
    """How forms ask for it; without one it is typed under *More flags*."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its spellings; the first one is its name in messages."""
        return tuple(word for word in self.usage.split() if word.startswith("-"))

    @property
    def value(self) -> str:
        """The placeholder of its value in a help text; empty for a switch."""
        return " ".join(word for word in self.usage.split() if not word.startswith("-"))

    @property
    def dest(self) -> str:
        """Its keyword, and its name among the values of a line."""
        return self.keyword or self.names[0].lstrip("-").replace("-", "_")

    @property
    def is_keyword(self) -> bool:
        """Tell whether `Client.submit` has it."""
        return bool(self.field) and self.only in ("", "keyword", "notebook")

    def read(self, value: object, here: Here) -> object:
        """Return what a value means; text is read, lists and numbers are used as they are."""
        if self.reader is None or not isinstance(value, (str, int) if self.reads_numbers else str):
            return value
        return self.reader(str(value), self.names[0], here)


# --- readers: from text to values ---------------------------------------------------------------------


def _only_text(read: Callable[[str], object]) -> Reader:
    return lambda text, _flag, _here: read(text)


def _count(text: str, flag: str, _here: Here) -> object:
    return kinds.count(flag)(text)


def _size(text: str, flag: str, _here: Here) -> object:
    return kinds.size(text, flag)


def _variables(text: str, flag: str, _here: Here) -> object:
    return kinds.variable_names([name.strip() for name in text.split(",")], flag)


def _begin(text: str, _flag: str, here: Here) -> object:
    return kinds.begin_time(text, here.now)


def _nodes(text: str, flag: str, _here: Here) -> object:
    return kinds.node_names(slurm.names(text), flag)  # n[1-3] is n1,n2,n3


def _file(text: str, flag: str, _here: Here) -> object:
    return kinds.file_name(text, flag)


# --- the table ----------------------------------------------------------------------------------------

# fmt: off
FLAGS: dict[str, tuple[Flag, ...]] = {
    "how much": (
        Flag("gpus", "--gpus -G N", reader=_count,
             help="GPUs in total, on one node unless --nodes is given (default 1; 0 for none)"),
        Flag("nodes", "--nodes -N N", reader=_count, names_nodes=True,
             help="number of nodes", form=Field("Nodes", "number", is_main=True)),
        Flag("gpus_per_node", "--gpus-per-node G", reader=_count,
             help="GPUs on each node", form=Field("GPUs on each", "number", is_main=True)),
        Flag("gpu_ids", "--gpu-ids 0,1", reader=_only_text(kinds.gpu_ids), example="0,1",
             help="exactly these GPUs (also 0-3) on each node of --nodelist; else on this machine, "
                  "if it is a node"),
        Flag("node_gpu_ids", '--node-gpu-ids "A:0,1;B:2"', reader=_only_text(kinds.node_gpu_ids),
             example='"node1:0,1;node2:2"', completes="node-gpus",
             help="exactly these GPUs of exactly these nodes"),
        Flag("gpu_type", "--gpu-type NAME", example="A100",
             help="part of the GPU's name, like A100", form=Field("Type", is_main=True)),
        Flag("gpu_mem_bytes", "--gpu-mem 20G", reader=_size, reads_numbers=True, example="20G",
             help="free memory on each GPU; K, M, G or T, a plain number is MB"),
        Flag("gpu_mem_bytes", "--mem MB", reader=_only_text(kinds.gpu_megabytes), reads_numbers=True,
             help="the same as --gpu-mem, in MB"),
        Flag("distributed", "--distributed",
             help="one process for each GPU (one torchrun or the like on each node) that find each other",
             form=Field("Wiring", "switches", is_main=True, choices=(
                 ("", "one process"), ("distributed", "PyTorch, one process per GPU"), ("mpi", "MPI")))),
        Flag("ntasks_per_node", "--ntasks-per-node N", reader=_count,
             help="so many processes on each node"),
        Flag("cpus", "--cpus N", reader=_count,
             help="CPUs on each node"),
        Flag("ntasks_per_node", "--ntasks -n N", reader=_count, only="line",
             help="so many processes in all, the same number on each node"),
        Flag("cpus", "--cpus-per-task -c N", reader=_count, only="line",
             help="CPUs for each process"),
        Flag("gpus_per_node", "--gres gpu:TYPE:N", example="gpu:a100:2", only="line",
             help="GPUs on each node as Slurm writes them, like gpu:2 or gpu:a100:2"),
        Flag("mem_per_node_bytes", "--mem-per-node 64G", reader=_size, reads_numbers=True, example="64G",
             help="the host's memory on each node; a plain number is MB"),
        Flag("exclusive", "--exclusive",
             help="its nodes to itself: it starts where no other job is, and none is placed beside it; "
                  "what it asked for is what counts for quotas and fair share",
             form=Field("Exclusive", "switch", note="No other job on its nodes.")),
        Flag("parts", "", keyword="parts", only="keyword",
             help="unlike parts, each with gpus, cpus, mem_bytes and arch"),
    ),
    "where": (
        Flag("nodelist", "--nodelist -w A,B", reader=_nodes, example="node1,node2", names_nodes=True,
             completes="nodes",
             help="all of these nodes; with --nodes K, K of them"),
        Flag("exclude", "--exclude -x A,B", reader=_nodes, example="node1,node2", names_nodes=True,
             completes="nodes",
             help="never these nodes", form=Field("Never on", "nodes", "gpu-06, gpu-07")),
        Flag("prefer", "--prefer A,B", reader=_nodes, example="node1,node2", names_nodes=True,
             completes="nodes",
             help="these nodes first, others if they cannot"),
        Flag("partition", "--partition -p NAME", example="gpu", names_nodes=True, completes="partitions",
             help="nodes of this partition"),
        Flag("constraint", "--constraint -C EXPR", example='"a100&(rack=r1|!old)"', names_nodes=True,
             help="labels of the node, like a100&(rack=r1|!old)"),
        Flag("arch", "--arch ARCH", example="x86_64", names_nodes=True,
             help="architecture of the node, like x86_64"),
        Flag("policy", "--policy NAME", example="spread", completes="strategies",
             help="how nodes are picked: fill_first, spread, topology, round_robin, or one of your own",
             form=Field("Placement", "choice", choices=(
                 ("", "as the cluster says"), ("topology", "same switch first"),
                 ("fill_first", "fullest nodes first"), ("spread", "emptiest nodes first"),
                 ("round_robin", "one node after the other")))),
        Flag("wait_for_nodes", "--wait-for-nodes",
             help="wait even if no machine that is known could ever run it"),
    ),
    "when": (
        Flag("time_limit_s", "--time-limit S", reader=_only_text(kinds.seconds),
             help="time limit in seconds"),
        Flag("time_limit_s", "-t --time HH:MM:SS", keyword="slurm_time", reader=_only_text(kinds.slurm_time),
             only="line",
             help="time limit; also D-HH:MM:SS, MM:SS or minutes",
             form=Field("Time limit", hint="02:00:00", is_main=True,
                        note="hh:mm:ss. Shorter jobs often start sooner.")),
        Flag("priority", "--priority N", reader=_only_text(kinds.priority),
             help="higher goes first"),
        Flag("qos", "--qos NAME", example="normal", completes="qos",
             help="class of service"),
        Flag("account", "--account -A NAME", example="physics", completes="accounts",
             help="account that it is counted for"),
        Flag("begin_at", "--begin TIME", reader=_begin, example="now+1hour",
             help="not before: now+1hour, 18:30, tomorrow, noon, midnight, 2030-01-31T08:00"),
        Flag("hold", "--hold -H",
             help="wait until it is released"),
        Flag("dependency", "--dependency -d AFTER", example="afterok:ABCD1234", completes="after",
             help="wait for other jobs: after, afterok, afterany or afternotok, like afterok:ID:ID",
             form=Field("After jobs", hint="afterok:R4T8W2ZB")),
        Flag("array", "--array -a RANGE", example="1-100%8",
             help="many jobs, like 1-100%8 (8 at once), 0,3,7 or 0-20:5; returns at once",
             form=Field("Array", hint="1-100%8")),
        Flag("sweep", "--sweep NAME=V,V", is_many=True, example="lr=0.1,0.01",
             help="many jobs, one for each value, or combination if given more than once; %8 at "
                  "the end lets 8 run at once"),
    ),
    "how": (
        Flag("name", "--name -J --job-name NAME",
             help="name of the job", form=Field("Name", hint="optional", is_main=True)),
        Flag("env", "--env K=V", is_many=True,
             help="set a variable for the job (repeatable)", form=Field("Environment", "pairs", "LR=0.1")),
        Flag("env", "--export NAMES", is_many=True, only="line",
             help="copy these variables from here"),
        Flag("cwd", "--chdir DIR",
             help="directory of the job (default: this one, if it exists there)"),
        Flag("python", "--python PATH",
             help="interpreter of a cell"),
        Flag("prolog", "--prolog CMD",
             help="run this on each node before the job; if it fails, the job goes back to the queue"),
        Flag("epilog", "--epilog CMD",
             help="run this on each node after the job, however it ended"),
        Flag("results", "--results GLOB", is_many=True, example="'out/*.pt'",
             help="collect these files of the job's directory when it has ended (repeatable)"),
        Flag("sync", "--sync DIR",
             help="send this folder along: its copy there is the job's directory; .mgpuignore says "
                  "what stays at home"),
        Flag("image", "--image REF", example="pytorch/pytorch:2.5.1",
             help="run it in this container image, by podman, docker or apptainer of the node"),
        Flag("stdout_file", "--output -o FILE", reader=_file, example="train-%j.out",
             help="write its output to this file too, in the job's directory on its node; %j is the job, %A "
                  "and %a array and number in it, %N the node, %t the rank, %x the name, %u the user"),
        Flag("stderr_file", "--error -e FILE", reader=_file, example="train-%j.err",
             help="the same for its errors alone; without it they are in the file of --output"),
        Flag("open_mode", "--open-mode append|truncate", choices=("append", "truncate"),
             help="whether these files are emptied first (default truncate; what several processes share is "
                  "never emptied)"),
        Flag("retries", "--retries N", reader=_count,
             help="run again after a non-zero exit, N times at most (default 0)",
             form=Field("If it fails", "choice", note="Waiting never uses up a retry.", choices=(
                 ("", "do not retry"), ("1", "retry once"), ("2", "retry twice"), ("3", "retry 3 times"),
                 ("5", "retry 5 times"), ("10", "retry 10 times")))),
        Flag("requeue", "--no-requeue", keyword="requeue", means=False,
             help="do not run again when its node is lost"),
        Flag("on_disconnect", "--on-disconnect keep|fence", choices=("keep", "fence"),
             help="when its node is cut off: let it run on, or end it there and run it elsewhere"),
        Flag("debug", "--debug",
             help="let each process first say on stderr who and where it is"),
        Flag("mpi", "--mpi",
             help="run the command once, on the first node; mpirun in it reaches the others without ssh"),
        Flag("env_setup_cmd", "--env-setup-cmd CMD",
             help="run this in a login shell first; the job goes on in its environment",
             form=Field("Set up", hint="source ~/venv/bin/activate")),
        Flag("signal", "--signal USR1@60", example="USR1@60",
             help="send this signal so many seconds before the time limit"),
        Flag("", "--interactive", in_files=False,
             help="stream the output and take stdin (default)"),
        Flag("pty", "--pty", in_files=False,
             help="run it in a terminal; Enter ~ . leaves it running"),
        Flag("interactive_kill", "--interactive-kill",
             help="end it when its client is gone for good"),
        Flag("", "--label -l", only="shell", in_files=False,
             help="begin each line of output with its rank, of one process too"),
        Flag("", "--background", in_files=False,
             help="return at once"),
        Flag("", "--dry-run", in_files=False,
             help="say where and when it would start, and why not now; submit nothing"),
        Flag("", "--json", in_files=False,
             help="with --background, --array or --dry-run: print one JSON document"),
    ),
    "in a notebook": (
        Flag("", "--again", only="notebook",
             help="run a second one while this cell's job still runs, without asking"),
        Flag("", "--as NAME", keyword="variable", reader=_only_text(kinds.identifier), only="notebook",
             help="put the job into this variable"),
        Flag("", "--in A,B", keyword="inputs", reader=_variables, only="notebook",
             help="what the cell is given", form=Field("Variables in", "names", "cfg, tokens")),
        Flag("outputs", "--out C", keyword="outputs", reader=_variables, only="notebook",
             help="what it brings back; of several ranks, lists",
             form=Field("Variables out", "names", "scores")),
    ),
    "which master": (
        Flag("", "--master-host H", only="shell", in_files=False,
             help="host of the master; default: $MGPU_MASTER_HOST, else as found"),
        Flag("", "--master-port P", only="shell", in_files=False,
             help="its HTTP port; default: $MGPU_MASTER_PORT, else 8080"),
    ),
}
# fmt: on
"""The flags by the heading under which they are shown."""
ALL: tuple[Flag, ...] = tuple(flag for group in FLAGS.values() for flag in group)
BY_DEST: Mapping[str, Flag] = {flag.dest: flag for flag in ALL}
KEYWORDS: Mapping[str, Flag] = {flag.dest: flag for flag in ALL if flag.is_keyword}
BY_FIELD: Mapping[str, Flag] = {flag.field: flag for flag in reversed(ALL) if flag.field}
"""The flag that messages about a field name: the first of those that fill it."""
IN_FORMS: Mapping[str, tuple[Flag, Field]] = {flag.dest: (flag, flag.form) for flag in ALL if flag.form}
"""The flags that forms ask for, by keyword."""
NOT_IN_FILES = frozenset(name for flag in ALL if not flag.in_files for name in flag.names)


class Keywords(TypedDict, total=False):
    """The keywords of `Client.submit`, for editors and type checkers; a test compares them with the table."""

    gpus: int | None
    nodes: int | None
    gpus_per_node: int | None
    gpu_ids: Sequence[int] | str | None
    node_gpu_ids: Mapping[str, Sequence[int]] | str | None
    gpu_type: str | None
    gpu_mem: int | str | None
    mem: int | None
    distributed: bool | None
    ntasks_per_node: int | None
    cpus: int | None
    mem_per_node: int | str | None
    exclusive: bool | None
    parts: Sequence[Mapping[str, object]] | None
    nodelist: NodeNames
    exclude: NodeNames
    prefer: NodeNames
    partition: str | None
    constraint: str | None
    arch: str | None
    policy: str | None
    wait_for_nodes: bool | None
    time_limit: float | None
    priority: int | None
    qos: str | None
    account: str | None
    begin: str | float | datetime | None
    hold: bool | None
    dependency: str | None
    array: str | None
    sweep: Mapping[str, Sequence[object]] | Sequence[str] | str | None
    name: str | None
    env: Mapping[str, str] | None
    chdir: str | None
    python: str | None
    prolog: str | None
    epilog: str | None
    results: Sequence[str] | str | None
    sync: str | None
    image: str | None
    output: str | None
    error: str | None
    open_mode: str | None
    retries: int | None
    requeue: bool | None
    on_disconnect: str | None
    debug: bool | None
    mpi: bool | None
    env_setup_cmd: str | None
    signal: str | None
    pty: bool | None
    interactive_kill: bool | None
    outputs: Sequence[str] | str | None
