"""The queue as plain text, with the headings and lines that scripts written for the earlier tools look for.
Pure; `queue_columns` words the lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api import models
from mgpu_jupyter.client.queue_columns import IN_LINES, Column
from mgpu_jupyter.client.queue_rows import Listed, Row, RowContext, sections_of
from mgpu_jupyter.model.job import JobState

SHOWN_COMMAND = 50


def as_text(
    jobs: Sequence[models.Job], nodes: Sequence[models.Node], starts: Mapping[str, str] | None = None
) -> str:
    """Return the sections as text; running jobs in the order of their start, waiting ones in their place,
    with `starts` if given.
    """
    rows, around = sections_of(jobs), Listed(0.0, starts)
    lines = ["--- Running Jobs ---"]
    lines += [line for row in rows.running for line in _lines(row, around)] or ["No running jobs"]
    lines += ["--- Queue ---"]
    lines += [line for row in rows.waiting for line in _lines(row, around)] or ["No queued jobs"]
    if rows.over:
        lines += ["--- Finished Jobs ---", *(line for row in rows.over for line in _lines(row, around))]
    lines += ["--- Cluster Status ---"]
    lines += [
        f"Node {printable(node.id)}: "
        f"{printable(node.state)}{f' ({printable(node.reason)})' if node.reason else ''}"
        for node in nodes
    ] or ["No node information available"]
    return "\n".join(lines)


def as_status(jobs: Sequence[models.Job], nodes: Sequence[models.Node]) -> list[str]:
    """Return the same in the form of `mgpu_client queue`: each job on one line, in the given order."""
    queued = [job for job in jobs if job.state is JobState.QUEUED]
    running = [job for job in jobs if job.state is not JobState.QUEUED]
    lines = ["=== Queue Status ===", f"Queued jobs: {len(queued)}"]
    lines += [f"  {job.id}: {_short(job)}" for job in queued]
    lines += [f"Running jobs: {len(running)}"]
    lines += [f"  {job.id}: {_short(job)} (Node: {', '.join(job.nodes)})" for job in running]
    lines += ["Node status:"]
    for node in nodes:
        free = [gpu.index for gpu in node.gpus if gpu.state == "free" and gpu.job_id is None]
        lines.append(f"  {node.id}: GPUs {free} available")
    return lines


def _short(job: models.Job) -> str:
    return f"{printable(job.command)[:SHOWN_COMMAND]}..."


def _lines(row: Row, around: RowContext) -> list[str]:
    told = [
        (column, f"{column.line or column.label}: {text}")
        for column in IN_LINES
        if (text := _said(column, row, around))
    ]
    first = " | ".join(text for column, text in told if column.is_first)
    return [first, *(f"  {text}" for column, text in told if not column.is_first), ""]


def _said(column: Column, row: Row, around: RowContext) -> str:
    return printable(column.words(row, around)) or column.otherwise
