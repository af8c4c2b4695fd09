"""The queue in the format of `squeue`: states, formats like `%.18i %.2t`, sorting. Pure.

Letters have the same meaning as there; a job's id is the one for orders.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import pad, printable, width
from mgpu_jupyter.api import models
from mgpu_jupyter.client.queue_rows import UNDER_WAY, title
from mgpu_jupyter.client.words import ran_for
from mgpu_jupyter.model.job import JobState

USUAL = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.10T %.10M %.10l %.6D %R"
STATES = {
    JobState.QUEUED: ("PENDING", "PD"),
    JobState.STARTING: ("CONFIGURING", "CF"),
    JobState.RUNNING: ("RUNNING", "R"),
    JobState.STOPPING: ("COMPLETING", "CG"),
    JobState.COMPLETED: ("COMPLETED", "CD"),
    JobState.FAILED: ("FAILED", "F"),
    JobState.CANCELLED: ("CANCELLED", "CA"),
    JobState.TIMEOUT: ("TIMEOUT", "TO"),
}
"""Slurm's words for states, long and short."""
_FIELD = re.compile(r"%(\.?)(\d{0,4})([A-Za-z%])", re.ASCII)
_NONE = "N/A"
Clock = Callable[[], float]
Lines = Callable[[Sequence[models.Job]], list[str]]


def states(text: str) -> tuple[str, ...] | None:
    """Return the states in a list, in Slurm's words or ours; None for all of them."""
    found: list[str] = []
    for word in (part.strip() for part in text.split(",")):
        if word.lower() == "all":
            return None
        for state, (long, short) in STATES.items():
            if word.upper() in (long, short, state.value.upper()):
                found.append(state.value)
                break
        else:
            known = ", ".join(f"{state.value} ({short})" for state, (_, short) in STATES.items())
            raise InvalidRequest("bad-state", f"-t {text}: there is no state {word!r}; there are {known}.")
    return tuple(found)


def lasting(seconds: float) -> str:
    """Return a time span as Slurm writes it: 0:07, 12:07, 1:02:03, 2-01:02:03."""
    whole = max(int(seconds), 0)
    days, hours, minutes, rest = whole // 86_400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _used(job: models.Job, now: float) -> float:
    if job.state in UNDER_WAY:
        return now - job.started_at if job.started_at else 0.0
    return ran_for(job)


def _left(job: models.Job, now: float) -> str:
    return "UNLIMITED" if job.time_limit_s is None else lasting(job.time_limit_s - _used(job, now))


def _at(moment: float | None) -> str:
    return _NONE if moment is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment))


def _nodes_or_reason(job: models.Job) -> str:
    if job.state is JobState.QUEUED or not job.nodes:
        return f"({job.reason.rstrip('.') or 'None'})"
    return ",".join(job.nodes)


def _nodes(job: models.Job) -> int:
    return max(job.nodes_wanted, len(job.nodes), 1)


class Letter(NamedTuple):
    """The meaning of a letter of a format."""

    heading: str
    words: Callable[[models.Job, float], str]
    key: Callable[[models.Job, float], float] | None = None
    """What it is sorted by, where that is not its text."""


LETTERS: dict[str, Letter] = {
    "i": Letter("JOBID", lambda job, _: job.id),
    "A": Letter("JOBID", lambda job, _: job.id),
    "F": Letter("ARRAY_JOB_ID", lambda job, _: job.array_id or job.id),
    "K": Letter(
        "ARRAY_TASK_ID",
        lambda job, _: _NONE if job.array_index is None else str(job.array_index),
        lambda job, _: -1 if job.array_index is None else job.array_index,
    ),
    "P": Letter("PARTITION", lambda job, _: job.partition or "-"),
    "j": Letter("NAME", lambda job, _: title(job)),
    "u": Letter("USER", lambda job, _: job.user),
    "a": Letter("ACCOUNT", lambda job, _: job.account or "-"),
    "q": Letter("QOS", lambda job, _: job.qos or "-"),
    "t": Letter("ST", lambda job, _: STATES[job.state][1]),
    "T": Letter("STATE", lambda job, _: STATES[job.state][0]),
    "M": Letter("TIME", lambda job, now: lasting(_used(job, now)), _used),
    "l": Letter(
        "TIME_LIMIT",
        lambda job, _: "UNLIMITED" if job.time_limit_s is None else lasting(job.time_limit_s),
        lambda job, _: float("inf") if job.time_limit_s is None else job.time_limit_s,
    ),
    "L": Letter(
        "TIME_LEFT",
        _left,
        lambda job, now: float("inf") if job.time_limit_s is None else job.time_limit_s - _used(job, now),
    ),
    "D": Letter("NODES", lambda job, _: str(_nodes(job)), lambda job, _: _nodes(job)),
    "b": Letter(
        "TRES_PER_NODE",
        lambda job, _: f"gpu:{job.gpus // _nodes(job)}" if job.gpus else _NONE,
        lambda job, _: job.gpus // _nodes(job),
    ),
    "N": Letter("NODELIST", lambda job, _: ",".join(job.nodes)),
    "R": Letter("NODELIST(REASON)", lambda job, _: _nodes_or_reason(job)),
    "r": Letter("REASON", lambda job, _: job.reason or "None"),
    "p": Letter("PRIORITY", lambda job, _: str(job.priority), lambda job, _: job.priority),
    "Q": Letter("PRIORITY", lambda job, _: str(job.priority), lambda job, _: job.priority),
    "V": Letter("SUBMIT_TIME", lambda job, _: _at(job.submitted_at), lambda job, _: job.submitted_at),
    "S": Letter(
        "START_TIME",
        lambda job, _: _at(job.started_at or job.expected_start_at),
        lambda job, _: job.started_at or job.expected_start_at or float("inf"),
    ),
    "e": Letter("END_TIME", lambda job, _: _at(job.ended_at), lambda job, _: job.ended_at or float("inf")),
    "o": Letter("COMMAND", lambda job, _: job.command),
}


def rows_of(pattern: str, clock: Clock, *, header: bool = True) -> Lines:
    """Return a function that formats jobs by a format of squeue; an unknown letter is refused."""
    parts = _parts(pattern)

    def line(words: Callable[[Letter], str]) -> str:
        return "".join(_cell(part, words) for part in parts).rstrip()

    def lines(jobs: Sequence[models.Job]) -> list[str]:
        now = clock()
        told = [line(partial(_told, job, now)) for job in jobs]
        return [line(lambda letter: letter.heading), *told] if header else told

    return lines


def _told(job: models.Job, now: float, letter: Letter) -> str:
    return printable(letter.words(job, now))


Part = str | tuple[bool, int, Letter]
"""Plain text; or whether it is right-aligned, its width (0 for as needed), and its letter."""


def _parts(pattern: str) -> list[Part]:
    parts: list[Part] = []
    end = 0
    for found in _FIELD.finditer(pattern):
        parts.append(_plain(pattern, pattern[end : found.start()]))
        end = found.end()
        if found[3] == "%":
            parts.append("%")
        elif found[3] in LETTERS:
            parts.append((bool(found[1]), int(found[2] or 0), LETTERS[found[3]]))
        else:
            raise _wrong(pattern, f"there is no field %{found[3]}")
    return [*parts, _plain(pattern, pattern[end:])]


def _plain(pattern: str, text: str) -> str:
    if "%" in text:
        raise _wrong(pattern, "a letter is missing behind %")
    return printable(text)


def _wrong(pattern: str, what: str) -> InvalidRequest:
    known = ", ".join(f"%{letter}" for letter in LETTERS)
    return InvalidRequest("bad-format", f"--format {printable(pattern)}: {what}; there are {known}.")


def _cell(part: Part, words: Callable[[Letter], str]) -> str:
    if isinstance(part, str):
        return part
    is_right, room, letter = part
    text = words(letter)
    if not room:
        return text
    while width(text) > room:
        text = text[:-1]
    return " " * (room - width(text)) + text if is_right else pad(text, room)


def sorter(fields: str, clock: Clock) -> Callable[[Sequence[models.Job]], list[models.Job]]:
    """Return a function that sorts jobs by letters, the first counts most; `-` before one reverses it."""
    keys: list[tuple[bool, Letter]] = []
    for word in (part.strip() for part in fields.split(",")):
        letter = LETTERS.get(word.lstrip("+-%"))
        if letter is None:
            known = ", ".join(LETTERS)
            raise InvalidRequest(
                "bad-sort", f"-S {printable(fields)}: there is no field {word!r}; there are {known}."
            )
        keys.append((word.startswith("-"), letter))

    def ordered(jobs: Sequence[models.Job]) -> list[models.Job]:
        found, now = list(jobs), clock()
        for is_turned, letter in reversed(keys):
            if letter.key is None:
                found.sort(key=lambda job, by=letter: by.words(job, now), reverse=is_turned)  # type: ignore[misc]
            else:
                found.sort(key=lambda job, by=letter.key: by(job, now), reverse=is_turned)  # type: ignore[misc]
        return found

    return ordered
