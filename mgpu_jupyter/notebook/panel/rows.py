"""The queue as rows: which jobs, in which order, and what each row says. Pure.

Under way first, in the order of their start; then what waits, in its place; then what waits aside (held, for a time, for other jobs).
Jobs of an array that wait are one row. Only the rows that are shown are put into words.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.client.words import names
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.panel.marks import esc, glyph, mean, middle
from mgpu_jupyter.notebook.panel.seen import UNDER_WAY, Seen

NAME_CHARS = 22
USER_CHARS = 12
ASIDE = 10**9
HELD = "held"
MINUTE, HOUR, DAY = 60, 3600, 86_400


class Row(msgspec.Struct, frozen=True):
    """One job, or the waiting jobs of an array."""

    key: str
    """The id that orders go to."""
    job: models.Job
    count: int = 1
    place: int | None = None


def rows_of(seen: Seen, *, mine: bool, text: str) -> list[Row]:
    """Return all rows that match, in order."""
    places = {job_id: number for number, job_id in enumerate(seen.view.queue, 1)}
    words = text.casefold().split()
    under_way: list[tuple[float, Row]] = []
    waiting: list[tuple[tuple[int, float], Row]] = []
    arrays: dict[str, int] = {}
    for job in seen.jobs.values():
        if job.state.is_final or (mine and not seen.is_mine(job)) or (words and not matches(job, words)):
            continue
        if job.state in UNDER_WAY:
            under_way.append((job.started_at or job.submitted_at, Row(job.id, job)))
            continue
        place = places.get(job.id)
        order = (place or ASIDE, job.submitted_at)
        if job.array_id is None:
            waiting.append((order, Row(job.id, job, 1, place)))
        elif (at := arrays.get(job.array_id)) is None:
            arrays[job.array_id] = len(waiting)
            waiting.append((order, Row(job.array_id, job, 1, place)))
        else:
            first, row = waiting[at]
            best, best_place = (job, place) if order < first else (row.job, row.place)
            waiting[at] = (min(order, first), Row(row.key, best, row.count + 1, best_place))
    under_way.sort(key=lambda pair: pair[0])
    waiting.sort(key=lambda pair: pair[0])
    return [row for _, row in under_way] + [row for _, row in waiting]


def matches(job: models.Job, words: Sequence[str]) -> bool:
    """Tell whether every word is found in what tells a job apart."""
    told = f"{job.id} {job.array_id or ''} {job.name} {job.user} {job.state} {job.reason_code} {' '.join(job.nodes)}".casefold()
    return all(word in told for word in words)


def title(job: models.Job) -> str:
    """Return what a job is called: its name, else its command."""
    return job.name or job.command or job.id


def size(row: Row) -> str:
    """Return nodes × GPUs, or jobs × GPUs of an array."""
    if row.count > 1:
        return f"{row.count}×{row.job.gpus}"
    nodes = max(row.job.nodes_wanted, len(row.job.nodes), 1)
    return f"{nodes}×{row.job.gpus // nodes}"


def span(seconds: float) -> str:
    """Return a time in its largest units: 40 s, 42 m, 3 h 04 m, 3 d 4 h."""
    whole = max(int(seconds), 0)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} m"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE:02} m"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def clock(at: float, now: float) -> str:
    """Return a time of day, with the day when it is another one."""
    then = time.localtime(at)
    return time.strftime("%H:%M" if abs(at - now) < DAY / 2 or then[:3] == time.localtime(now)[:3] else "%d %b %H:%M", then)


def is_held(job: models.Job) -> bool:
    """Tell whether a job waits to be released."""
    return job.state is JobState.QUEUED and job.reason_code == HELD


def moves(seen: Seen, row: Row) -> bool:
    """Tell whether the person may change its priority, and whether that does anything."""
    return row.job.state is JobState.QUEUED and not is_held(row.job) and seen.may_change(row.job)


def when(seen: Seen, row: Row) -> str:
    """Return how long it runs, or when it starts."""
    job = row.job
    if job.state in UNDER_WAY:
        return span(seen.now - job.started_at) if job.started_at else job.state.value
    if is_held(job):
        return "held"
    told = seen.view.waiting(job.id)
    expected = told.expected_at if told is not None else job.expected_start_at
    return f"≈ {clock(expected, seen.now)}" if expected is not None else "–"


def why(seen: Seen, row: Row) -> str:
    """Return where it runs and how busy, or what it waits for, in lower case as a part of a row."""
    job = row.job
    if job.state in UNDER_WAY:
        busy = mean(gpu.utilisation_percent for node in set(job.nodes) for gpu in seen.gpus(NodeId(node)) if gpu.job_id == job.id)
        told = f"{names(sorted(set(job.nodes)))}{'' if busy is None else f'; {busy:.0f} % busy'}"
        return f"stopping; {told}" if job.state is JobState.STOPPING else told or job.reason
    if is_held(job):
        return "held; starts only when released"
    told_now = seen.view.waiting(job.id)
    reason = (told_now.reason if told_now is not None else "") or job.reason or "it is the next to be looked at"
    return lowered(reason)


def lowered(sentence: str) -> str:
    """Return a sentence as a part of another: `Waits for 4 GPUs.` becomes `waits for 4 GPUs`."""
    start = sentence[:1].lower() if sentence[1:2].islower() else sentence[:1]
    return f"{start}{sentence[1:]}".rstrip(".")


def row_html(seen: Seen, row: Row, *, chosen: bool) -> str:
    """Return the cells of a row."""
    job = row.job
    mine = seen.is_mine(job)
    kind = "held" if is_held(job) else job.state.value
    reason = why(seen, row)
    what = title(job)
    marks = f"mgpu-cells{' me' if mine else ''}{' chosen' if chosen else ''}"
    place = "–" if row.place is None else str(row.place)
    who = "me" if mine else middle(job.user, USER_CHARS)
    return (
        f'<div class="{marks}" data-job="{esc(row.key)}"{" data-moves" if moves(seen, row) else ""}>'
        f"<span>{glyph(kind, 'mine' if mine and job.state in UNDER_WAY else '')}</span>"
        f'<span class="n">{place}</span>'
        f'<span class="name" title="{esc(what)}, {esc(row.key)}">{esc(middle(what, NAME_CHARS))}</span>'
        f'<span title="{esc(job.user)}">{esc(who)}</span><span class="n">{size(row)}</span>'
        f'<span class="n right">{esc(when(seen, row))}</span>'
        f'<span class="why" title="{esc(reason)}">{esc(reason)}</span></div>'
    )


HEAD = (
    '<div class="mgpu-cells head"><span></span><span>#</span><span>Job</span><span>User</span><span>Size</span>'
    '<span class="right">Time / start</span><span>Why</span></div>'
)
EMPTY = "No jobs. Put <code>%%mgpu_srun --gpus 1</code> on top of a cell, or use the tab Submit."


def nothing(text: str) -> str:
    """Return what stands in place of rows."""
    return f"No job matches “{esc(text)}”." if text.strip() else EMPTY
