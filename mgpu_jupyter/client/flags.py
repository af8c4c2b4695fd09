"""The flags of `mgpu_srun`, once, for shells and magics: words in, a checked `JobSpec` out. Never ends the process and sends nothing."""

from __future__ import annotations

import argparse
import difflib
import keyword
from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.spec import command_words, convert, directory, kernel_fields, split_names
from mgpu_jupyter.model.job import JobSpec

SECRET_VARIABLES = frozenset(("MGPU_TOKEN",))
TIME_HINT = "write hours, minutes and seconds, like -t 02:00:00"


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What a line asks for."""

    spec: JobSpec
    background: bool = False
    json: bool = False
    variable: str | None = None
    """In a notebook: the variable that is to hold the job."""


class Help(msgspec.Struct, frozen=True):
    """The line asked for the help text."""

    text: str


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises one sentence instead of ending the process, and names the nearest flag."""

    def __init__(self, prog: str, usage: str, description: str = "") -> None:
        super().__init__(prog=prog, usage=usage.replace("%", "%%"), description=description, add_help=False, allow_abbrev=False)
        self.add_argument("--help", "-h", action="store_true", help="show this")

    def error(self, message: str) -> NoReturn:
        """Raise the sentence that argparse found."""
        raise InvalidRequest("usage", f"{_plain(message)} (see {self.prog} --help).")

    def read(self, words: Sequence[str]) -> argparse.Namespace | Help:
        """Return the values of `words`, or the help text."""
        if any(word in ("--help", "-h") for word in words):
            return Help(self.format_help())
        values, unknown = self.parse_known_args(list(words))
        if unknown:
            self.refuse(unknown[0])
        return values

    def refuse(self, word: str) -> NoReturn:
        """Refuse a word that is no flag, and name the nearest one."""
        flag, equals, _ = word.partition("=")
        if equals and self.takes_value(flag) is False:
            raise InvalidRequest("unknown-flag", f"{flag} takes no value: leave out what follows it.")
        near = difflib.get_close_matches(flag, self.flag_names(), 1, 0.7) if flag.startswith("-") else []
        if near:
            raise InvalidRequest("unknown-flag", f"There is no flag {flag}: use {near[0]}, or see {self.prog} --help.")
        kind = "flag" if flag.startswith("-") else "argument"
        raise InvalidRequest("unknown-flag", f"There is no {kind} {flag} here: see {self.prog} --help.")

    def flag_names(self) -> list[str]:
        """Return all long flags."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def takes_value(self, flag: str) -> bool | None:
        """Tell whether a flag takes the next word, or None for a word that is no flag."""
        for action in self._actions:
            if flag in action.option_strings:
                return action.nargs != 0
        return None


def srun_parser(prog: str, *, in_notebook: bool = False) -> Parser:
    """Return the parser of the flags before the command; `--as` exists where there are variables."""
    parser = Parser(prog, f"{prog} [flags] -- COMMAND…", "Run a command on GPUs of the pool and stream its output.")
    add = parser.add_argument
    add(
        "--gpus",
        "-G",
        type=_count("--gpus"),
        metavar="N",
        help="GPUs in total, on one node unless --nodes is given (default 1; 0 for none)",
    )
    add("--nodes", "-N", type=_count("--nodes"), metavar="N", help="number of nodes")
    add("--gpus-per-node", type=_count("--gpus-per-node"), metavar="G", help="GPUs on each node")
    add("--nodelist", "-w", metavar="A,B", help="all of these nodes; with --nodes K, K of them")
    add("--exclude", "-x", metavar="A,B", help="never these nodes")
    add("--cpus", type=_count("--cpus"), metavar="N", help="CPUs on each node")
    add("--name", "-J", metavar="NAME", help="name of the job")
    add("--time-limit", type=_seconds, metavar="S", help="time limit in seconds")
    add("-t", dest="slurm_time", type=_slurm_time, metavar="HH:MM:SS", help="time limit; also D-HH:MM:SS, MM:SS or minutes")
    add("--priority", type=_priority, metavar="N", help="higher goes first")
    add("--env", action="append", default=[], metavar="K=V", help="set a variable for the job (repeatable)")
    add("--export", action="append", default=[], metavar="NAMES", help="copy these variables from here")
    add("--chdir", metavar="DIR", help="directory of the job (default: this one, if it exists there)")
    add("--python", metavar="PATH", help="interpreter of a cell")
    add("--no-requeue", action="store_true", help="do not run again when its node is lost")
    add("--wait-for-nodes", action="store_true", help="wait even if no machine that is known could ever run it")
    add("--interactive", action="store_true", help="stream the output (default)")
    add("--background", action="store_true", help="return at once")
    add("--json", action="store_true", help="with --background: print one JSON document")
    if in_notebook:
        add("--as", dest="variable", type=_identifier, metavar="NAME", help="put the job into this variable")
    return parser


def parse(
    argv: Sequence[str],
    *,
    cell: str | None = None,
    environ: Mapping[str, str],
    cwd: str,
    prog: str = "mgpu_srun",
    in_notebook: bool = False,
) -> Submission | Help:
    """Return what the words ask for; `cell` is the body of a cell magic."""
    parser = srun_parser(prog, in_notebook=in_notebook)
    flags, command = split_command(parser, argv)
    values = parser.read(flags)
    if isinstance(values, Help):
        return values
    if values.interactive and values.background:
        raise InvalidRequest("contradiction", "--interactive and --background exclude each other: leave one out.")
    if values.json and not values.background:
        raise InvalidRequest("contradiction", "--json goes with --background; without it stdout is the job's own.")
    if values.time_limit is not None and values.slurm_time is not None:
        raise InvalidRequest("contradiction", "--time-limit and -t say the same: leave one out.")
    fields: dict[str, object] = {
        "name": values.name or "",
        "nodelist": split_names(values.nodelist or ""),
        "exclude": split_names(values.exclude or ""),
        "env": _environment(values.env, values.export, environ),
        "cwd": directory(values.chdir or "", cwd),
        "requeue": not values.no_requeue,
        "wait_for_nodes": values.wait_for_nodes,
    }
    optional = {key: getattr(values, key) for key in ("gpus", "nodes", "gpus_per_node", "cpus", "priority", "python")}
    optional["time_limit_s"] = values.slurm_time if values.time_limit is None else values.time_limit
    fields |= {key: value for key, value in optional.items() if value is not None}
    fields |= _what_to_run(command, cell, prog)
    return Submission(
        spec=convert(fields),
        background=values.background,
        json=values.json,
        variable=values.variable if in_notebook else None,
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


def _what_to_run(command: list[str], cell: str | None, prog: str) -> dict[str, object]:
    if cell is None:
        if not command:
            raise InvalidRequest("no-command", f"Name the command after `--`, as in `{prog} --gpus 1 -- python train.py`.")
        return {"command": command_words(command)}
    if command:
        raise InvalidRequest("contradiction", f"The cell's body is what runs: take {command[0]!r} out of the first line.")
    if not cell.strip():
        raise InvalidRequest("no-command", "The cell has no body: write what is to run below the first line.")
    return {"script": cell, **kernel_fields()}


def _environment(pairs: Sequence[str], exports: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    result: dict[str, str] = {}
    for names in exports:
        for name in split_names(names):
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


# --- kinds of values; a message that names the flag is worth more than argparse's -----------------


class _count:  # noqa: N801 - reads as a function where it is used
    def __init__(self, flag: str) -> None:
        self._flag = flag

    def __call__(self, text: str) -> int:
        if not (text.isascii() and text.isdecimal()):
            raise InvalidRequest("bad-number", f"{self._flag} {text}: write a whole number.")
        return int(text)


def _identifier(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise InvalidRequest("bad-name", f"--as {text}: write the name of a variable, like job.")
    return text


def _priority(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest("bad-number", f"--priority {text}: write a whole number; higher goes first.") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise InvalidRequest("bad-time", f"--time-limit {text}: this flag takes seconds; otherwise {TIME_HINT}.") from None
    if not 0 < seconds < float("inf"):
        raise InvalidRequest("bad-time", f"--time-limit {text}: write a number of seconds above 0.")
    return seconds


def _slurm_time(text: str) -> float:
    """Read MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if len(parts) > 3 or not all(part.isascii() and part.isdecimal() for part in (*parts, *([days] if dash else []))):
        raise InvalidRequest("bad-time", f"-t {text} is not a time: {TIME_HINT}.")
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, minutes, seconds = 0, *(*numbers, 0)[:2]
    total = int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds
    if total <= 0:
        raise InvalidRequest("bad-time", f"-t {text}: a limit of nothing lets nothing run; {TIME_HINT}.")
    return float(total)


def _plain(message: str) -> str:
    """Turn argparse's `argument --gpus/-G: expected one argument` into words."""
    text = message.removeprefix("argument ").replace(": expected one argument", " needs a value")
    return text[:1].upper() + text[1:] if not text.startswith("-") else text
