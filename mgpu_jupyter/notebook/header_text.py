"""The content of a job's header: the facts, its one line of text, and the wording shared with the HTML in
`header.py`. Pure.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api import models
from mgpu_jupyter.client.words import ending, numbers, ordinal
from mgpu_jupyter.model.explanations import Offer
from mgpu_jupyter.model.job import JobState

SHOWN_NODES = 3
NAME_CHARS = 40
STEP_WORDS = {
    "": "",
    "asked": "being asked",
    "ready": "ready",
    "meeting": "checking the connection between nodes",
    "launching": "launching",
    "started": "started",
}
STEPS = tuple(STEP_WORDS)


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a job that waits, newer than the job itself."""

    place: int | None = None
    of: int | None = None
    reason: str = ""
    expected_at: float | None = None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The recent load of a job's GPUs, oldest first: the mean over them, in percent, and bytes in use on
    each.
    """

    busy: tuple[float | None, ...] = ()
    memory: tuple[float | None, ...] = ()
    memory_total: int = 0
    """Of one GPU."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a header shows."""

    job: models.Job
    now: float
    waits: Waits = Waits()
    load: Load = Load()
    offers: tuple[Offer, ...] = ()
    widgets: int = 0
    """How many buttons of the kernel's own lie over it where there is no extension; without any, text says
    what Stop does.
    """
    stop: str = "Stop cancels"
    explained: tuple[str, ...] = ()
    """Why it waits, in full, if the user asked."""
    cancelling: bool = False
    is_short: bool = False
    """One line tells how it ended: output and error of the cell below tell the rest."""
    last_lines: tuple[str, ...] = ()
    other_lines: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """The last lines of the other ranks of a job that failed."""
    run_again: str = ""
    """The command that runs it again."""
    hint: str = ""
    trouble: str = ""
    """The lost connection, in words."""


# --- one line of text ---------------------------------------------------------------------------------


def text_of(facts: Facts) -> str:
    """Return the header as one line."""
    job = facts.job
    match job.state:
        case JobState.QUEUED:
            waits = facts.waits
            place = f", {place_text(waits)}" if waits.place else ""
            start = f", starts about {clock(waits.expected_at)}" if waits.expected_at is not None else ""
            text = f"waiting{place}{start}{': ' + small(waits.reason) if waits.reason else ''}"
        case JobState.STARTING:
            text = f"starting on {readiness(job)}" if job.nodes else "starting"
        case JobState.RUNNING | JobState.STOPPING:
            name = "stopping" if facts.cancelling else job.state.value
            text = f"{name} on {places(job)}" if job.nodes else name
            text += f"; {kill_text(job.kill_at)}" if job.kill_at is not None else ""
        case _:
            return printable(f"{ending(job)} · {job.id}")
    return printable(f"mgpu {job.id} {text}")


def place_text(waits: Waits) -> str:
    """Return its place in the queue."""
    assert waits.place is not None
    return f"{ordinal(waits.place)} of {waits.of}" if waits.of else f"{ordinal(waits.place)} in queue"


def small(reason: str) -> str:
    """Return a sentence as the end of another."""
    text = reason.strip().rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def places(job: models.Job) -> str:
    """Return nodes with how many GPUs each gives: `gpu-01 ×4, gpu-02 ×4`."""
    told = list(_given(job).values())
    return (
        ", ".join(told)
        if len(told) <= SHOWN_NODES + 1
        else f"{', '.join(told[:SHOWN_NODES])} and {len(told) - SHOWN_NODES} more"
    )


def _given(job: models.Job) -> dict[str, str]:
    """Return what each node gives, by node."""
    counts: dict[str, int] = dict.fromkeys(job.nodes, 0)
    for placement in job.placements:
        if placement.local_rank == 0:
            counts[placement.node] = counts.get(placement.node, 0) + len(placement.gpus)
    return {node: f"{node} ×{count}" if count else node for node, count in counts.items()}


def readiness(job: models.Job) -> str:
    """Return how far each node is with the start: `gpu-03 ×4 ready, gpu-04 ×4 checking the connection
    between nodes`.
    """
    step_of: dict[str, str] = {}
    for one in job.placements:
        before = step_of.get(one.node)
        step_of[one.node] = one.step if before is None else min(before, one.step, key=STEPS.index)
    given = _given(job)
    nodes_at: dict[str, list[str]] = {}
    for node, told in given.items():
        nodes_at.setdefault(STEP_WORDS[step_of.get(node, "")], []).append(told)
    if set(nodes_at) <= {""}:
        return places(job)
    if len(given) > SHOWN_NODES + 1:
        return ", ".join(
            f"{len(nodes)} node{'' if len(nodes) == 1 else 's'} {word}" for word, nodes in nodes_at.items()
        )
    return ", ".join(f"{', '.join(nodes)} {word}".rstrip() for word, nodes in nodes_at.items())


def clock(at: float) -> str:
    """Return a time of day, with the date when it is another day."""
    moment, today = time.localtime(at), time.localtime()
    return time.strftime("%H:%M" if moment[:3] == today[:3] else "%d %b %H:%M", moment)


# --- words ----------------------------------------------------------------------------------------------


def stopwatch(seconds: float) -> str:
    """Return 00:42:17, with days in front when there are some."""
    whole = max(int(seconds), 0)
    days = f"{whole // 86_400}-" if whole >= 86_400 else ""
    return f"{days}{whole % 86_400 // 3600:02}:{whole % 3600 // 60:02}:{whole % 60:02}"


def in_time(seconds: float, over: str = "any moment") -> str:
    """Return `in 38 min`, or other words for a time that is over."""
    if seconds <= 0:
        return over
    if seconds < 90:
        return f"in {round(seconds)} s"
    minutes = round(seconds / 60)
    return f"in {minutes} min" if minutes < 60 else f"in {minutes // 60} h {minutes % 60:02} min"


def ranges(ranks: Sequence[int]) -> str:
    """Return ranks as ranges: 0–2, 4–7."""
    return numbers(ranks).replace("-", "–").replace(",", ", ")


def shortened(name: str) -> str:
    """Return a name with its middle left out when it is long."""
    half = NAME_CHARS // 2
    return name if len(name) <= NAME_CHARS else f"{name[: half - 1]}…{name[-half:]}"


def node_names(job: models.Job) -> str:
    """Return the names of its nodes, the first few of many."""
    shown = job.nodes[:SHOWN_NODES] if len(job.nodes) > SHOWN_NODES + 1 else job.nodes
    return ", ".join(shown) + (
        f" and {len(job.nodes) - len(shown)} more" if len(shown) < len(job.nodes) else ""
    )


def kill_text(at: float) -> str:
    """Return when a job that is being ended is killed at the latest."""
    return f"killed at {time.strftime('%H:%M:%S', time.localtime(at))} if it does not end"
