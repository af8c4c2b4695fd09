"""Kinds of values of flags and keywords: from text to a value, or to one sentence with an example. Knows no
clock and no request.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.job import MAX_GPUS_PER_NODE

TIME_HINT = "write hours, minutes and seconds, like -t 02:00:00"
BEGIN_HINT = "write it like now+1hour, 18:30, tomorrow or 2030-01-31T08:00"
MEGABYTE = 1024**2
_WHOLE = re.compile(r"\d{1,15}", re.ASCII)
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*(?:([KMGT])(?:i?B)?)?", re.ASCII | re.IGNORECASE)
_UNITS = {"K": 1024, "M": MEGABYTE, "G": 1024**3, "T": 1024**4}
_INDICES = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_DELAY = re.compile(r"now(?:\+(\d{1,9})(second|minute|hour|day|week)?s?)?", re.ASCII)
_DELAYS = {None: 1, "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 7 * 86_400}
_DAY = re.compile(r"(tomorrow|\d{4}-\d\d-\d\d)(?:t(.+))?", re.ASCII)
_LIMIT = re.compile(r"(.*)(%\d{1,9})", re.ASCII | re.DOTALL)
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?", re.ASCII)
_CLOCK_WORDS = {"midnight": time(0), "noon": time(12)}


# --- numbers and names ----------------------------------------------------------------------------


class count:  # noqa: N801 - reads as a function where it is used
    """A whole number that is not negative, for the flag of that name."""

    def __init__(self, flag: str) -> None:
        self._flag = flag

    def __call__(self, text: str) -> int:
        """Read it."""
        if _WHOLE.fullmatch(text):
            return int(text)
        if _WHOLE.fullmatch(text.removeprefix("-")):
            raise InvalidRequest(
                "bad-number", f"{self._flag} {text}: it cannot be below 0; write it like {self._flag} 2."
            )
        raise InvalidRequest("bad-number", f"{self._flag} {text}: write a whole number, like {self._flag} 2.")


def identifier(text: str) -> str:
    """Read the name of a variable of a notebook."""
    if not text.isidentifier() or keyword.iskeyword(text):
        raise InvalidRequest("bad-name", f"--as {text}: write the name of a variable, like job.")
    return text


def variable_names(names: Sequence[str], flag: str) -> tuple[str, ...]:
    """Return these names of variables, or refuse one that is invalid."""
    for position, name in enumerate(names):
        if not name.isidentifier():
            raise InvalidRequest(
                "bad-name", f"{flag} {name!r}: it is no name of a variable; write them like {flag} a,b."
            )
        if keyword.iskeyword(name):
            raise InvalidRequest(
                "bad-name", f"{flag} {name}: it is a word of Python, and no variable can be called that."
            )
        if not name.isascii():
            raise InvalidRequest(
                "bad-name",
                f"{flag} {name}: give the variable a name in plain letters, digits and underscores.",
            )
        if name in names[:position]:
            raise InvalidRequest("bad-name", f"{flag} names {name} twice: once is enough.")
    return tuple(names)


def pairs(lines: Sequence[str]) -> dict[str, str]:
    """Read variables for a job, each like `NAME=VALUE`."""
    found: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not name:
            raise InvalidRequest("bad-request", f"--env {line}: write it as NAME=VALUE.")
        if not equals:
            raise InvalidRequest(
                "bad-request",
                f"--env {line}: write it as NAME=VALUE, or use --export {line} to copy it from here.",
            )
        found[name] = value
    return found


def priority(text: str) -> int:
    """Read a whole number with a sign."""
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest(
            "bad-number", f"--priority {text}: write a whole number; higher goes first."
        ) from None


def names(text: str) -> tuple[str, ...]:
    """Return the names of a list with commas."""
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def node_names(text: str, flag: str) -> tuple[str, ...]:
    """Return the names in a list of nodes, at least one."""
    found = names(text)
    if not found:
        raise InvalidRequest(
            "no-names", f"{flag} names no node: write it like {flag} node1,node2, or leave it out."
        )
    return found


def file_name(text: str, flag: str) -> str:
    """Return the name of a file, which is not empty."""
    if not text:
        raise InvalidRequest(
            "no-names", f"{flag} names no file: write it like {flag} train-%j.out, or leave it out."
        )
    return text


def sweep_limit(given: object) -> tuple[object, str]:
    """Return the lines of a sweep without a final `%8`, and that limit on how many jobs run at once."""
    lines = [given] if isinstance(given, str) else given
    if not isinstance(lines, Sequence) or not lines or (found := _LIMIT.fullmatch(str(lines[-1]))) is None:
        return given, ""
    return [*lines[:-1], found[1]] if found[1] else lines[:-1], found[2]


def sweep(given: object) -> dict[str, tuple[str, ...]]:
    """Read the values of a sweep: lines like `lr=0.1,0.01`, or a mapping of names to values."""
    if isinstance(given, Mapping):
        pairs = [
            (str(name), tuple(map(str, (values,) if isinstance(values, str) else values)))
            for name, values in given.items()
        ]
    else:
        lines = [given] if isinstance(given, str) else list(given) if isinstance(given, Sequence) else []
        pairs = [_sweep_line(str(line)) for line in lines]
    found: dict[str, tuple[str, ...]] = {}
    for name, values in pairs:
        if name in found:
            raise InvalidRequest(
                "bad-sweep",
                f"--sweep {name} is there twice: write all its values in one place, like {name}=0.1,0.01.",
            )
        found[name] = values
    return found


def _sweep_line(line: str) -> tuple[str, tuple[str, ...]]:
    name, equals, rest = line.partition("=")
    values = tuple(value.strip() for value in rest.split(","))
    if not equals or not name.strip().isidentifier() or not all(values):
        raise InvalidRequest("bad-sweep", f"--sweep {line}: write a name and its values, like lr=0.1,0.01.")
    return name.strip(), values


# --- GPUs and memory ------------------------------------------------------------------------------


def gpu_ids(text: str) -> tuple[int, ...]:
    """Read indices of GPUs: `0,1`, `0-3`, or both."""
    found = _indices(text)
    if found is None:
        raise InvalidRequest("bad-gpus", f"--gpu-ids {text}: write indices of GPUs, like 0,1 or 0-3.")
    return found


def node_gpu_ids(text: str) -> dict[str, tuple[int, ...]]:
    """Read GPUs of nodes: `n1:0,1;n2:2-3`."""
    found: dict[str, tuple[int, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, colon, indices = (piece.strip() for piece in part.partition(":"))
        ids = _indices(indices)
        if not name or not colon or ids is None:
            raise InvalidRequest(
                "bad-gpus",
                f'--node-gpu-ids {text}: write nodes with indices of their GPUs, like "node1:0,1;node2:2".',
            )
        if name in found:
            raise InvalidRequest(
                "bad-gpus",
                f"--node-gpu-ids {text}: {name} is there twice; write its GPUs in one place, like "
                f"{name}:0,1.",
            )
        found[name] = ids
    if not found:
        raise InvalidRequest(
            "bad-gpus",
            '--node-gpu-ids is empty: write nodes with indices of their GPUs, like "node1:0,1;node2:2".',
        )
    return found


def size(text: str, flag: str) -> int:
    """Read an amount of memory in bytes: `20G`, `1.5TiB`, or a plain number of megabytes; all are powers of
    1024, as in Slurm.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest(
            "bad-size", f"{flag} {text}: write an amount of memory, like 20G, or a plain number of MB."
        )
    return round(float(match[1]) * (_UNITS[match[2].upper()] if match[2] else MEGABYTE))


def gpu_megabytes(text: str) -> int:
    """Read the number of megabytes of `--mem`: memory of GPUs, where a unit would look like the host's."""
    if not _WHOLE.fullmatch(text):
        raise InvalidRequest(
            "bad-size",
            f"--mem {text}: it is free GPU memory in MB, like --mem 20480; with a unit write --gpu-mem 20G, "
            f"or --mem-per-node 64G for "
            "the host's memory.",
        )
    return int(text) * MEGABYTE


def _indices(text: str) -> tuple[int, ...] | None:
    found: list[int] = []
    for part in text.split(","):
        match = _INDICES.fullmatch(part.strip())
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < MAX_GPUS_PER_NODE:
            return None
        found += range(first, last + 1)
    return tuple(found)


# --- times ----------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    """Read a time limit in seconds."""
    try:
        found = float(text)
    except ValueError:
        raise InvalidRequest(
            "bad-time", f"--time-limit {text}: this flag takes seconds; otherwise {TIME_HINT}."
        ) from None
    if not 0 < found < float("inf"):
        raise InvalidRequest("bad-time", f"--time-limit {text}: write a number of seconds above 0.")
    return found


def slurm_time(text: str) -> float:
    """Read MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if len(parts) > 3 or not all(
        part.isascii() and part.isdecimal() for part in (*parts, *([days] if dash else []))
    ):
        raise InvalidRequest("bad-time", f"-t {text} is not a time: {TIME_HINT}.")
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, rest = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, rest = numbers
    else:
        hours, minutes, rest = 0, *(*numbers, 0)[:2]
    if any(part > 59 for part in numbers[1:]):
        raise InvalidRequest(
            "bad-time", f"-t {text}: minutes and seconds after a colon go up to 59; {TIME_HINT}."
        )
    total = int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + rest
    if total <= 0:
        raise InvalidRequest("bad-time", f"-t {text}: a limit of nothing lets nothing run; {TIME_HINT}.")
    return float(total)


def begin_time(text: str, now: float) -> float:
    """Return seconds since 1970 for a time as Slurm writes it, on this machine's clock: `now+1hour`, `18:30`,
    `tomorrow`, a date.
    """
    word = text.strip().lower()
    if delay := _DELAY.fullmatch(word):
        return now + int(delay[1] or 0) * _DELAYS[delay[2]]
    try:
        return max(0.0, _moment(word, datetime.fromtimestamp(now)).timestamp())
    except (ValueError, OverflowError):
        raise InvalidRequest("bad-time", f"--begin {text} is not a time: {BEGIN_HINT}.") from None


def _moment(word: str, now: datetime) -> datetime:
    """Return the next such time of day, or that time (midnight, if none is given) of that day."""
    if day := _DAY.fullmatch(word):
        on = now.date() + timedelta(days=1) if day[1] == "tomorrow" else date.fromisoformat(day[1])
        return datetime.combine(on, _time_of_day(day[2] or "midnight"))
    at = datetime.combine(now.date(), _time_of_day(word))
    return at if at > now else at + timedelta(days=1)


def _time_of_day(word: str) -> time:
    if word in _CLOCK_WORDS:
        return _CLOCK_WORDS[word]
    match = _CLOCK.fullmatch(word)
    if match is None:
        raise ValueError(word)
    return time(int(match[1]), int(match[2]), int(match[3] or 0))
