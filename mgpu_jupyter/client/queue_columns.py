"""What every medium shows of a row of the queue: one table of columns. Pure.

`listing` turns it into plain text, `cli/tables` and `notebook/tables` into tables, the panel's `rows` into
cells. A new column is a new entry of `COLUMNS`. Text is made only for the rows that are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from mgpu_jupyter.client.queue_rows import UNDER_WAY, Row, RowContext, is_held, title
from mgpu_jupyter.client.words import (
    duration,
    ending,
    lowered,
    moment,
    names,
    numbers,
    ordinal,
    ran_for,
    span,
)
from mgpu_jupyter.model.job import JobState

NEXT = "it is the next to be looked at"
NONE = "–"
NAME_CHARS, USER_CHARS = 22, 12


def _id(row: Row, _around: RowContext) -> str:
    return row.job.id if row.count == 1 else f"{row.key}[{numbers(row.indices)}]"


def _user(row: Row, around: RowContext) -> str:
    return "me" if around.is_mine(row.job) else row.job.user


def _size(row: Row, _around: RowContext) -> str:
    """Return nodes × GPUs, or jobs × GPUs of an array."""
    if row.count > 1:
        return f"{row.count}×{row.job.gpus}"
    nodes = max(row.job.nodes_wanted, len(row.job.nodes), 1)
    return f"{nodes}×{row.job.gpus // nodes}"


def _array(row: Row, _around: RowContext) -> str:
    job = row.job
    return f"{job.array_id}[{job.array_index}]" if job.array_id is not None and row.count == 1 else ""


def _when(row: Row, around: RowContext) -> str:
    """Return how long it runs, or when it starts."""
    job = row.job
    if job.state in UNDER_WAY:
        return span(around.now - job.started_at) if job.started_at else job.state.value
    if job.state.is_final:
        return span(ran_for(job)) if job.started_at else NONE
    if is_held(job):
        return "held"
    expected = around.expected(job)
    return f"≈ {moment(expected, around.now)}" if expected is not None else NONE


def _why(row: Row, around: RowContext) -> str:
    """Return where it runs and how busy, or what it waits for, in lower case as a part of a row."""
    job = row.job
    if job.state in UNDER_WAY:
        busy = around.busy(job)
        told = f"{names(sorted(set(job.nodes)))}{'' if busy is None else f'; {busy:.0f} % busy'}"
        return f"stopping; {told}" if job.state is JobState.STOPPING else told or job.reason
    if is_held(job):
        return "held; starts only when released"
    return lowered(around.reason(job) or NEXT)


def _reason(row: Row, around: RowContext) -> str:
    """Return what it waits for, or why it does not run yet."""
    job, reason = row.job, around.reason(row.job)
    if job.state.is_final:
        return ""
    if row.count > 1:
        return f"{row.count} jobs of the array wait; the first of them: {reason}".rstrip(": ")
    return reason or (NEXT if job.state is JobState.QUEUED else "")


def _about(row: Row, around: RowContext) -> str:
    """Return what else there is to say about a row: how long, how it ended, or why it waits."""
    job = row.job
    if job.state is JobState.COMPLETED:
        return f"done in {duration(ran_for(job))}"
    if job.state.is_final:
        return ending(job)
    if job.state is not JobState.QUEUED:
        return f"for {duration(around.now - job.started_at)}" if job.started_at else job.reason
    place = f"{ordinal(row.place)} in queue" if row.place else "waits"
    start = around.start(job)
    return f"{place}: {_reason(row, around)}{f'; start: {start}' if start else ''}"


def _below(row: Row, around: RowContext) -> str:
    """Return what has no column where there is little room: where it runs, or why it does not."""
    job = row.job
    if job.state in UNDER_WAY:
        return "; ".join(filter(None, (f"on {', '.join(job.nodes)}" if job.nodes else "", job.reason)))
    return _about(row, around)


Words = Callable[[Row, RowContext], str]
ON_OWN_LINE: Words = _below


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One fact about a row, and where it is shown; by default everywhere."""

    name: str
    label: str
    """Its heading in tables."""
    words: Words
    in_tables: bool = True
    """Whether the tables of terminals and notebooks have it."""
    wraps: Literal["never", "cut", "wrap"] = "wrap"
    """What a terminal does where it has no room."""
    line: str | None = None
    """Its label in plain text, where that differs; empty if it is not shown there."""
    is_first: bool = False
    """Whether it is on a job's first line of plain text."""
    otherwise: str = ""
    """The text where it is empty; without one the line is left out of plain text."""
    width: str = "minmax(48px,auto)"
    """Its width in the panel, in CSS; empty if it is not shown there."""
    narrow: str = ""
    """The same where the panel is narrow."""
    style: str = ""
    """Classes of its cells in the panel."""
    most: int = 0
    """The most characters that the panel shows, with the middle left out; 0 for all."""
    tip: Words | None = None
    """The tooltip of a cell in the panel."""


COLUMNS: tuple[Column, ...] = (
    Column(
        name="place",
        label="#",
        words=lambda row, _: NONE if row.place is None else str(row.place),
        in_tables=False,
        line="",
        width="30px",
        narrow="20px",
        style="n",
    ),
    Column(name="id", label="Job", words=_id, wraps="never", line="ID", is_first=True, width=""),
    Column(
        name="title",
        label="Job",
        words=lambda row, _: title(row.job),
        in_tables=False,
        line="",
        width="minmax(90px,1.1fr)",
        narrow="minmax(0,1fr)",
        style="name",
        most=NAME_CHARS,
        tip=lambda row, _: f"{title(row.job)}, {row.key}",
    ),
    Column(
        name="user",
        label="User",
        words=_user,
        wraps="cut",
        is_first=True,
        width="minmax(48px,.6fr)",
        narrow="52px",
        most=USER_CHARS,
        tip=lambda row, _: row.job.user,
    ),
    Column(
        name="size",
        label="Size",
        words=_size,
        in_tables=False,
        line="",
        width="44px",
        narrow="38px",
        style="n",
    ),
    Column(
        name="gpus",
        label="GPUs",
        words=lambda row, _: str(row.job.gpus),
        wraps="never",
        is_first=True,
        width="",
    ),
    Column(
        name="type",
        label="Type",
        words=lambda row, _: "single" if row.job.nodes_wanted <= 1 else "multinode",
        in_tables=False,
        is_first=True,
        width="",
    ),
    Column(
        name="priority",
        label="Priority",
        words=lambda row, _: str(row.job.priority) if row.job.state is JobState.QUEUED else "",
        in_tables=False,
        is_first=True,
        width="",
    ),
    Column(name="name", label="Name", words=lambda row, _: row.job.name, wraps="cut", width=""),
    Column(name="array", label="Array", words=_array, in_tables=False, width=""),
    Column(
        name="nodes",
        label="Nodes",
        words=lambda row, _: ", ".join(row.job.nodes),
        otherwise="none yet",
        width="",
    ),
    Column(
        name="command",
        label="Command",
        words=lambda row, _: row.job.command,
        wraps="cut",
        line="CMD",
        width="",
    ),
    Column(
        name="state",
        label="State",
        words=lambda row, _: row.job.state.value,
        wraps="never",
        line="Status",
        width="",
    ),
    Column(
        name="when",
        label="Time / start",
        words=_when,
        in_tables=False,
        line="",
        width="84px",
        narrow="84px",
        style="n right",
    ),
    Column(
        name="why",
        label="Why",
        words=_why,
        in_tables=False,
        line="",
        width="minmax(60px,2fr)",
        style="why",
        tip=_why,
    ),
    Column(name="about", label="", words=_about, line="", width=""),
    Column(
        name="end",
        label="End",
        words=lambda row, _: ending(row.job) if row.job.state.is_final else "",
        in_tables=False,
        width="",
    ),
    Column(name="reason", label="Reason", words=_reason, in_tables=False, width=""),
    Column(
        name="start",
        label="Start",
        words=lambda row, around: around.start(row.job),
        in_tables=False,
        width="",
    ),
)
IN_TABLES = tuple(column for column in COLUMNS if column.in_tables)
IN_PANEL = tuple(column for column in COLUMNS if column.width)
IN_LINES = tuple(column for column in COLUMNS if column.line != "")

JSON_FIELDS = (
    *("id", "state", "user", "name", "command", "nodes", "gpus", "exit_code", "attempt"),
    *("submitted_at", "started_at", "ended_at", "reason", "expected_start_at"),
)
"""Fields of a job in `mgpu_queue --json`."""
FORMAT_FIELDS = (
    *JSON_FIELDS,
    *("priority", "place", "partition", "account", "qos", "array_id", "array_index", "time_limit_s"),
)
"""The same for `--format`."""
