"""The flags of `mgpu_srun`, once, for shells and magics: words in, a checked `JobSpec` out. Never ends the process and sends nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client.inputs import names_of
from mgpu_jupyter.client.parser import Help, Parser
from mgpu_jupyter.client.spec import KEYWORDS, Here, spec_of
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.variables import check_cell

SECRET_VARIABLES = frozenset(("MGPU_TOKEN",))
Add = Callable[..., argparse.Action]


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What a line asks for."""

    spec: JobSpec
    background: bool = False
    dry_run: bool = False
    """Explain it, submit nothing."""
    json: bool = False
    again: bool = False
    """In a notebook: run it even if the job of this very cell still runs."""
    inputs: tuple[str, ...] = ()
    """In a notebook: variables that the cell is given."""
    variable: str | None = None
    """In a notebook: the variable that is to hold the job."""
    master_host: str | None = None
    master_port: str | None = None
    """In a shell: the master that it is meant for, when a flag names one."""


def srun_parser(prog: str, *, in_notebook: bool = False) -> Parser:
    """Return the parser of the flags before the command; `--as` exists where there are variables."""
    about = "Run a command on GPUs of the pool and stream its output."
    parser = Parser(prog, f"{prog} [flags] -- COMMAND…", about, examples=_examples(prog))
    _add_amounts(parser.add_argument_group("how much").add_argument)
    _add_places(parser.add_argument_group("where").add_argument)
    _add_times(parser.add_argument_group("when").add_argument)
    _add_conduct(parser.add_argument_group("how").add_argument)
    if in_notebook:
        again = "run a second one while this cell's job still runs, without asking"
        parser.add_argument("--again", action="store_true", help=again)
        add = parser.add_argument_group("variables").add_argument
        add("--in", dest="inputs", type=partial(names_of, flag="--in"), default=(), metavar="A,B", help="what the cell is given")
        add("--out", dest="outputs", type=partial(names_of, flag="--out"), metavar="C", help="what it brings back; of several ranks, lists")
        parser.add_argument("--as", dest="variable", type=kinds.identifier, metavar="NAME", help="put the job into this variable")
    else:
        group = parser.add_argument_group("which master").add_argument
        group("--master-host", metavar="H", help="host of the master; default: $MGPU_MASTER_HOST, else as found")
        group("--master-port", metavar="P", help="its HTTP port; default: $MGPU_MASTER_PORT, else 8080")
    return parser


def _examples(prog: str) -> list[str]:
    return [
        f"{prog} --gpus 2 -- python train.py",
        f"{prog} -N 2 --gpus-per-node 4 -t 02:00:00 -- python train.py",
        f"{prog} --background --array 1-100%8 -- bash -c 'python part.py $MGPU_ARRAY_TASK_ID'",
        f'{prog} --gpus 1 "source env.sh && python train.py"',
    ]


def _add_amounts(add: Add) -> None:
    gpus = "GPUs in total, on one node unless --nodes is given (default 1; 0 for none)"
    add("--gpus", "-G", type=kinds.count("--gpus"), metavar="N", help=gpus)
    add("--nodes", "-N", type=kinds.count("--nodes"), metavar="N", help="number of nodes")
    add("--gpus-per-node", type=kinds.count("--gpus-per-node"), metavar="G", help="GPUs on each node")
    add("--gpu-ids", metavar="0,1", help="exactly these GPUs (also 0-3) on each node of --nodelist; else on this machine, if it is a node")
    add("--node-gpu-ids", metavar='"A:0,1;B:2"', help="exactly these GPUs of exactly these nodes")
    add("--gpu-type", metavar="NAME", help="part of the GPU's name, like A100")
    add("--gpu-mem", metavar="20G", help="free memory on each GPU; K, M, G or T, a plain number is MB")
    add("--mem", metavar="MB", help="the same as --gpu-mem, in MB")
    add("--distributed", action="store_true", help="one process for each GPU (one torchrun or the like on each node) that find each other")
    add("--ntasks-per-node", type=kinds.count("--ntasks-per-node"), metavar="N", help="so many processes on each node")
    add("--cpus", type=kinds.count("--cpus"), metavar="N", help="CPUs on each node")
    add("--mem-per-node", metavar="64G", help="the host's memory on each node; a plain number is MB")


def _add_places(add: Add) -> None:
    add("--nodelist", "-w", metavar="A,B", help="all of these nodes; with --nodes K, K of them")
    add("--exclude", "-x", metavar="A,B", help="never these nodes")
    add("--prefer", metavar="A,B", help="these nodes first, others if they cannot")
    add("--partition", "-p", metavar="NAME", help="nodes of this partition")
    add("--constraint", "-C", metavar="EXPR", help="labels of the node, like a100&(rack=r1|!old)")
    add("--arch", metavar="ARCH", help="architecture of the node, like x86_64")
    add("--policy", metavar="NAME", help="how nodes are picked: fill_first, spread, topology, round_robin, or one of your own")
    add("--wait-for-nodes", action="store_true", help="wait even if no machine that is known could ever run it")


def _add_times(add: Add) -> None:
    add("--time-limit", type=kinds.seconds, metavar="S", help="time limit in seconds")
    add("-t", dest="slurm_time", type=kinds.slurm_time, metavar="HH:MM:SS", help="time limit; also D-HH:MM:SS, MM:SS or minutes")
    add("--priority", type=kinds.priority, metavar="N", help="higher goes first")
    add("--qos", metavar="NAME", help="class of service")
    add("--account", "-A", metavar="NAME", help="account that it is counted for")
    add("--begin", metavar="TIME", help="not before: now+1hour, 18:30, tomorrow, noon, midnight, 2030-01-31T08:00")
    add("--hold", "-H", action="store_true", help="wait until it is released")
    add("--dependency", "-d", metavar="AFTER", help="wait for other jobs: after, afterok, afterany or afternotok, like afterok:ID:ID")
    add("--array", "-a", metavar="RANGE", help="many jobs, like 1-100%%8 (8 at once), 0,3,7 or 0-20:5; returns at once")
    sweep = "many jobs, one for each value, or combination if given more than once; %%8 at the end lets 8 run at once"
    add("--sweep", action="append", metavar="NAME=V,V", help=sweep)


def _add_conduct(add: Add) -> None:
    add("--name", "-J", metavar="NAME", help="name of the job")
    add("--env", action="append", default=[], metavar="K=V", help="set a variable for the job (repeatable)")
    add("--export", action="append", default=[], metavar="NAMES", help="copy these variables from here")
    add("--chdir", metavar="DIR", help="directory of the job (default: this one, if it exists there)")
    add("--python", metavar="PATH", help="interpreter of a cell")
    add("--prolog", metavar="CMD", help="run this on each node before the job; if it fails, the job goes back to the queue")
    add("--epilog", metavar="CMD", help="run this on each node after the job, however it ended")
    add("--results", action="append", metavar="GLOB", help="collect these files of the job's directory when it has ended (repeatable)")
    add("--sync", metavar="DIR", help="send this folder along: its copy there is the job's directory; .mgpuignore says what stays at home")
    add("--image", metavar="REF", help="run it in this container image, by podman, docker or apptainer of the node")
    add("--retries", type=kinds.count("--retries"), metavar="N", help="run again after a non-zero exit, N times at most (default 0)")
    add("--no-requeue", action="store_true", help="do not run again when its node is lost")
    add("--on-disconnect", choices=("keep", "fence"), help="when its node is cut off: let it run on, or end it there and run it elsewhere")
    add("--debug", action="store_true", help="let each process first say on stderr who and where it is")
    add("--mpi", action="store_true", help="run the command once, on the first node; mpirun in it reaches the others without ssh")
    add("--env-setup-cmd", metavar="CMD", help="run this in a login shell first; the job goes on in its environment")
    add("--signal", metavar="USR1@60", help="send this signal so many seconds before the time limit")
    add("--interactive", action="store_true", help="stream the output and take stdin (default)")
    add("--pty", action="store_true", help="run it in a terminal; Enter ~ . leaves it running")
    add("--interactive-kill", action="store_true", help="end it when its client is gone for good")
    add("--background", action="store_true", help="return at once")
    add("--dry-run", action="store_true", help="say where and when it would start, and why not now; submit nothing")
    add("--json", action="store_true", help="with --background, --array or --dry-run: print one JSON document")


def parse(
    argv: Sequence[str],
    *,
    cell: str | None = None,
    environ: Mapping[str, str],
    prog: str = "mgpu_srun",
    in_notebook: bool = False,
    here: Here | None = None,
) -> Submission | Help:
    """Return what the words ask for; `cell` is the body of a cell magic, `here` is this process's own place and time unless given."""
    parser = srun_parser(prog, in_notebook=in_notebook)
    flags, command = split_command(parser, argv)
    values = parser.read(flags)
    if isinstance(values, Help):
        return values
    _refuse_contradictions(values)
    keywords = {name: value for name, value in vars(values).items() if name in KEYWORDS}
    keywords["time_limit"] = values.slurm_time if values.time_limit is None else values.time_limit
    keywords["env"] = _environment(values.env, values.export, environ)
    keywords["requeue"] = not values.no_requeue
    _check_what_runs(command, cell, prog)
    spec = spec_of(command or None, cell, keywords, here or Here.real())
    if in_notebook and values.inputs:
        check_cell(spec)
    return Submission(
        spec=spec,
        background=values.background or (bool(spec.array) and not (in_notebook and spec.sweep and not values.json)),
        dry_run=values.dry_run,
        json=values.json,
        again=in_notebook and values.again,
        inputs=values.inputs if in_notebook else (),
        variable=values.variable if in_notebook else None,
        master_host=None if in_notebook else values.master_host,
        master_port=None if in_notebook else values.master_port,
    )


def split_command(parser: Parser, argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the flags and the command, which begins after `--` or at the first word that is neither a flag nor a flag's value."""
    words = list(argv)
    position = 0
    while position < len(words):
        word = words[position]
        if word == "--":
            return words[:position], words[position + 1 :]
        if not word.startswith("-") or word == "-":
            return words[:position], words[position:]
        takes_value = parser.takes_value(word)
        if takes_value is None and not _is_attached(parser, word):
            parser.refuse(word)
        position += 2 if takes_value else 1
    return words, []


def _is_attached(parser: Parser, word: str) -> bool:
    if word.startswith("--"):
        return "=" in word and parser.takes_value(word.partition("=")[0]) is True
    return parser.takes_value(word[:2]) is True


def _refuse_contradictions(values: argparse.Namespace) -> None:
    if values.interactive and values.background:
        raise InvalidRequest("contradiction", "--interactive and --background exclude each other: leave one out.")
    if values.interactive and (values.array or values.sweep):
        raise InvalidRequest(
            "contradiction",
            f"{'--array' if values.array else '--sweep'} is many jobs, which no one place can show: leave --interactive out.",
        )
    if values.json and not (values.background or values.array or values.sweep or values.dry_run):
        raise InvalidRequest("contradiction", "--json goes with --background; without it stdout is the job's own.")
    if values.time_limit is not None and values.slurm_time is not None:
        raise InvalidRequest("contradiction", "--time-limit and -t say the same: leave one out.")


def _check_what_runs(command: list[str], cell: str | None, prog: str) -> None:
    if cell is None:
        if not command:
            raise InvalidRequest("no-command", f"Name the command after `--`, as in `{prog} --gpus 1 -- python train.py`.")
    elif command:
        raise InvalidRequest("contradiction", f"The cell's body is what runs: take {command[0]!r} out of the first line.")
    elif not cell.strip():
        raise InvalidRequest("no-command", "The cell has no body: write what is to run below the first line.")


def _environment(pairs: Sequence[str], exports: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    result: dict[str, str] = {}
    for names in exports:
        for name in kinds.names(names):
            if name not in environ:
                raise InvalidRequest(
                    "no-such-variable", f"--export {name}: it is not set here; set it, or give its value by --env {name}=…"
                )
            result[name] = environ[name]
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidRequest("bad-request", f"--env {pair}: write it as NAME=VALUE, or use --export {pair} to copy it from here.")
        result[name] = value
    for name in SECRET_VARIABLES & result.keys():
        raise InvalidRequest("secret", f"{name} never enters a job: give the job a token of its own under another name.")
    return result
