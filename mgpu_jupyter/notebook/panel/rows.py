"""The queue's rows as the panel draws them: which match, and their cells. Pure; `client/queue_columns` words
the cells.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu_jupyter.api import models
from mgpu_jupyter.client.queue_columns import IN_PANEL, Column
from mgpu_jupyter.client.queue_rows import UNDER_WAY, Row, is_held, sections_of
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.panel.marks import esc, glyph, middle
from mgpu_jupyter.notebook.panel.seen import Seen

BELOW = "why"
"""The column that is below the others where the panel is narrow."""


def rows_of(seen: Seen, *, mine: bool, text: str) -> list[Row]:
    """Return all rows that match, in order."""
    places = {job_id: number for number, job_id in enumerate(seen.view.queue, 1)}
    words = text.casefold().split()
    found = sections_of(
        (
            job
            for job in seen.jobs.values()
            if not job.state.is_final
            and (not mine or seen.is_mine(job))
            and (not words or matches(job, words))
        ),
        places,
    )
    return found.running + found.waiting


def matches(job: models.Job, words: Sequence[str]) -> bool:
    """Tell whether every word occurs in what identifies a job."""
    told = (
        f"{job.id} {job.array_id or ''} {job.name} {job.user} {job.state} {job.reason_code} "
        f"{' '.join(job.nodes)}"
    ).casefold()
    return all(word in told for word in words)


def moves(seen: Seen, row: Row) -> bool:
    """Tell whether the user may change its priority, and whether that has an effect."""
    return row.job.state is JobState.QUEUED and not is_held(row.job) and seen.may_change(row.job)


def row_html(seen: Seen, row: Row, *, chosen: bool) -> str:
    """Return the cells of a row."""
    job = row.job
    mine = seen.is_mine(job)
    kind = "held" if is_held(job) else job.state.value
    marks = f"mgpu-cells{' me' if mine else ''}{' chosen' if chosen else ''}"
    return (
        f'<div class="{marks}" data-job="{esc(row.key)}"{" data-moves" if moves(seen, row) else ""}>'
        f"<span>{glyph(kind, 'mine' if mine and job.state in UNDER_WAY else '')}</span>"
        f"{''.join(_cell(seen, row, column) for column in IN_PANEL)}</div>"
    )


def _cell(seen: Seen, row: Row, column: Column) -> str:
    text = column.words(row, seen)
    style = _style(column, column.style)
    tip = f' title="{esc(column.tip(row, seen))}"' if column.tip else ""
    return f"<span{style}{tip}>{esc(middle(text, column.most) if column.most else text)}</span>"


def _head(column: Column) -> str:
    words = [word for word in column.style.split() if word in ("right", BELOW)]
    return f"<span{_style(column, ' '.join(words))}>{esc(column.label)}</span>"


def _style(column: Column, words: str) -> str:
    """Return the classes of a cell; one that has no room in a narrow panel is hidden there."""
    is_wide = not column.narrow and BELOW not in column.style
    told = f"{words}{' wide' if is_wide else ''}".strip()
    return f' class="{told}"' if told else ""


HEAD = f'<div class="mgpu-cells head"><span></span>{"".join(map(_head, IN_PANEL))}</div>'
WIDE = " ".join(("20px", *(column.width for column in IN_PANEL)))
NARROW = " ".join(("18px", *(column.narrow for column in IN_PANEL if column.narrow)))
"""Widths of the glyph and all columns, in CSS."""
EMPTY = "No jobs. Put <code>%%mgpu_srun --gpus 1</code> on top of a cell, or use the tab Submit."


def nothing(text: str) -> str:
    """Return the text in place of rows."""
    return f"No job matches “{esc(text)}”." if text.strip() else EMPTY
