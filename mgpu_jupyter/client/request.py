"""Parses a line of words into a checked `JobSpec` and how to proceed, for shells, magics, forms and job
files. Never ends the process and sends nothing. The flags themselves are in `flags.py`.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client import slurm
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client.flags import ALL, BY_DEST, FLAGS, KEYWORDS, Flag
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.line import Typed
from mgpu_jupyter.client.parser import Help, Parser
from mgpu_jupyter.client.spec import spec_of
from mgpu_jupyter.model.checks import check_cell
from mgpu_jupyter.model.job import JobSpec

Add = Callable[..., argparse.Action]


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What a line asks for."""

    spec: JobSpec
    background: bool = False
    dry_run: bool = False
    """Explain it, submit nothing."""
    json: bool = False
    label: bool = False
    """In a shell: begin each line with its rank, also for one process."""
    again: bool = False
    """In a notebook: run it even if the job of this very cell still runs."""
    inputs: tuple[str, ...] = ()
    """In a notebook: variables that the cell is given."""
    variable: str | None = None
    """In a notebook: the variable for the job."""
    master_host: str | None = None
    master_port: str | None = None
    """In a shell: the port of the master, when a flag names one."""


WAYS = tuple(field for field in Submission.__struct_fields__ if field not in ("spec", "background"))
"""The parts of a line beside the request, by the names of its flags."""


NOTEBOOK_FLAGS = dict.fromkeys(
    (name for flag in ALL if flag.only == "notebook" for name in flag.names), "in a notebook (%%mgpu_srun)"
)
SHELL_FLAGS = dict.fromkeys(
    (name for flag in ALL if flag.only == "shell" for name in flag.names), "in a shell"
)
"""Flags that lines of the other kind have, and where."""


def srun_parser(prog: str, *, in_notebook: bool = False) -> Parser:
    """Return the parser of the flags before the command; some exist only in notebooks, some only in
    shells.
    """
    about = "Run a command on GPUs of the pool and stream its output."
    parser = Parser(prog, f"{prog} [flags] -- COMMAND…", about, examples=_examples(prog))
    parser.elsewhere = NOTEBOOK_FLAGS if not in_notebook else SHELL_FLAGS
    for heading, flags in FLAGS.items():
        if taken := [
            flag for flag in flags if flag.only in ("", "line", "notebook" if in_notebook else "shell")
        ]:
            group = parser.add_argument_group(heading)
            for flag in taken:
                _add(group.add_argument, flag)
    return parser


def _add(add: Add, flag: Flag) -> None:
    text = flag.help.replace("%", "%%")
    if not flag.value:
        add(*flag.names, dest=flag.dest, action="store_const", const=flag.means, help=text)
    elif flag.choices:
        add(*flag.names, dest=flag.dest, choices=flag.choices, help=text)
    else:
        add(
            *flag.names,
            dest=flag.dest,
            action="append" if flag.is_many else "store",
            metavar=flag.value,
            help=text,
        )


def _examples(prog: str) -> list[str]:
    return [
        f"{prog} --gpus 2 -- python train.py",
        f"{prog} -N 2 --gpus-per-node 4 -t 02:00:00 -- python train.py",
        f"{prog} --background --array 1-100%8 -- bash -c 'python part.py $MGPU_ARRAY_TASK_ID'",
        f'{prog} --gpus 1 "source env.sh && python train.py"',
    ]


def parse(
    argv: Sequence[str] | Typed,
    *,
    cell: str | None = None,
    environ: Mapping[str, str],
    prog: str = "mgpu_srun",
    in_notebook: bool = False,
    here: Here | None = None,
) -> Submission | Help:
    """Return what the words of a shell, or a line that no shell has read, ask for.

    `cell` is the body of a cell magic, `here` is this process's own place and time unless given.
    """
    parser = srun_parser(prog, in_notebook=in_notebook)
    words = argv.words if isinstance(argv, Typed) else argv
    flags, command = split_command(parser, words)
    if command and isinstance(argv, Typed):
        command = argv.command(len(words) - len(command))
    values = parser.read(flags)
    if isinstance(values, Help):
        return values
    here = here or Here.real()
    given = {name: value for name, value in vars(values).items() if value is not None}
    _refuse_empty(given)
    _refuse_contradictions(given)
    keywords = {name: value for name, value in given.items() if name in KEYWORDS}
    if "slurm_time" in given:
        keywords["time_limit"] = BY_DEST["slurm_time"].read(given["slurm_time"], here)
    if "env" in given or "export" in given:
        keywords["env"] = _exported(given.get("export", ()), environ) | kinds.pairs(given.get("env", ()))
    _take_slurm_sizes(given, keywords, here)
    _check_what_runs(command, cell, prog)
    spec = spec_of(command or None, cell, keywords, here)
    # Apart from the request: how to proceed. Flags that do not exist on this kind of line have no value.
    ways = {name: BY_DEST[name].read(given[name], here) for name in WAYS if name in given}
    if ways.get("inputs"):
        check_cell(spec)
    is_shown_table = in_notebook and spec.sweep and "json" not in given
    ways["background"] = "background" in given or (bool(spec.array) and not is_shown_table)
    return replace(Submission(spec=spec), **ways)


def written(values: Mapping[str, object]) -> str:
    """Return flags as they are typed, from their values by keyword; None, False and empty text leave one
    out.
    """
    words: list[str] = []
    for dest, value in values.items():
        name = BY_DEST[dest].names[0]
        for one in value if isinstance(value, list | tuple) else (value,):
            text = "" if one is None or one is False else str(one).strip()
            if one is True:
                words.append(name)
            elif text:  # a value that begins with a dash would look like a flag
                word = shlex.quote(text)
                words += (
                    [f"{name}={word}"] if text.startswith("-") and name.startswith("--") else [name, word]
                )
    return " ".join(words)


def split_command(parser: Parser, argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the flags and the command, which begins after `--` or at the first word that is neither a flag
    nor a flag's value.
    """
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


def _refuse_empty(given: Mapping[str, object]) -> None:
    """Refuse a flag whose value is no text at all, as `-p $PARTITION` is where that is not set."""
    for name, value in given.items():
        flag = BY_DEST.get(name)
        if flag is not None and flag.field and "" in (value if isinstance(value, list) else (value,)):
            example = flag.example or ("2" if flag.value == "N" else "")
            what = f"write it like {flag.names[0]} {example}" if example else "give its value"
            raise InvalidRequest("empty", f"{flag.names[0]} is empty: {what}, or leave it out.")


def _refuse_contradictions(given: Mapping[str, object]) -> None:
    if "interactive" in given and "background" in given:
        raise InvalidRequest(
            "contradiction", "--interactive and --background exclude each other: leave one out."
        )
    many = "--array" if given.get("array") else "--sweep" if given.get("sweep") else ""
    if "interactive" in given and many:
        raise InvalidRequest(
            "contradiction", f"{many} is many jobs, which no one place can show: leave --interactive out."
        )
    if "json" in given and not (many or "background" in given or "dry_run" in given):
        raise InvalidRequest(
            "contradiction", "--json goes with --background; without it stdout is the job's own."
        )
    if "time_limit" in given and "slurm_time" in given:
        raise InvalidRequest("contradiction", "--time-limit and -t say the same: leave one out.")


def _take_slurm_sizes(given: Mapping[str, object], keywords: dict[str, object], here: Here) -> None:
    """Add what Slurm's `--gres`, `-n` and `-c` mean here; they count all processes, and CPUs of each."""
    for name, value in slurm.gpus_of(str(given["gres"])).items() if "gres" in given else ():
        _take(keywords, name, value, "--gres")
    if "ntasks" in given:
        tasks = int(str(BY_DEST["ntasks"].read(given["ntasks"], here)))
        listed = BY_DEST["nodelist"].read(given["nodelist"], here) if "nodelist" in given else ()
        nodes = int(str(BY_DEST["nodes"].read(given.get("nodes", "0"), here)))
        nodes = nodes or (len(listed) if isinstance(listed, tuple) else 0) or 1
        if tasks == 0:
            raise InvalidRequest("bad-number", "-n 0 starts nothing: write how many processes, like -n 2.")
        if tasks % nodes:
            raise InvalidRequest(
                "bad-number",
                f"-n {tasks} on {nodes} nodes: each node has the same number of processes; write a multiple "
                f"of {nodes}.",
            )
        _take(keywords, "ntasks_per_node", str(tasks // nodes), "-n")
    if "cpus_per_task" in given:
        each = int(str(BY_DEST["cpus_per_task"].read(given["cpus_per_task"], here)))
        tasks = int(str(BY_DEST["ntasks_per_node"].read(keywords.get("ntasks_per_node", "1"), here)))
        _take(keywords, "cpus", str(each * max(tasks, 1)), "-c")


def _take(keywords: dict[str, object], name: str, value: str, flag: str) -> None:
    if keywords.setdefault(name, value) != value:
        raise InvalidRequest(
            "contradiction", f"{BY_DEST[name].names[0]} and {flag} say the same: leave one out."
        )


def _check_what_runs(command: list[str], cell: str | None, prog: str) -> None:
    if cell is None:
        if not command:
            raise InvalidRequest(
                "no-command", f"Name the command after `--`, as in `{prog} --gpus 1 -- python train.py`."
            )
    elif command:
        raise InvalidRequest(
            "contradiction", f"The cell's body is what runs: take {command[0]!r} out of the first line."
        )
    elif not cell.strip():
        raise InvalidRequest("no-command", "The cell has no body: write what is to run below the first line.")


def _exported(exports: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in (name for names in exports for name in kinds.names(names)):
        if name not in environ:
            raise InvalidRequest(
                "no-such-variable",
                f"--export {name}: it is not set here; set it, or give its value by --env {name}=…",
            )
        found[name] = environ[name]
    return found
