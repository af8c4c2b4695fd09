"""Shows a running job in the cell that runs it. Everything happens in the cell's own thread, else nbclient drops it.

stdout and stderr go to the cell's own streams, unaltered, so that progress bars redraw; mgpu's own lines are apart from them.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from mgpu_jupyter.api import models
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.lines import Decoder, Labeller, Tail
from mgpu_jupyter.client.repeats import Repeats
from mgpu_jupyter.client.words import first_to_fail, printable, waiting
from mgpu_jupyter.model.job import JobState

KEPT_LINES = 20
QUIET = "color: var(--jp-ui-font-color2, #616161); font-family: var(--jp-ui-font-family, sans-serif); font-size: 12px"


class Notes(Protocol):
    """mgpu's own lines in a front end."""

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def show_waiting(self, text: str) -> None:
        """Show or replace the line about waiting."""

    def clear_waiting(self) -> None:
        """Take the line about waiting away."""

    def fold(self, summary: str, lines: Sequence[str]) -> None:
        """Show a line that opens to more where that is possible."""


class _Handle(Protocol):
    def update(self, obj: object, *, raw: bool) -> None:
        """Replace what is shown."""


class RichNotes:
    """Lines as HTML with a plain text beside it; the line about waiting is updated in place."""

    def __init__(self) -> None:
        self._handle: _Handle | None = None

    def say(self, text: str) -> None:
        """Show a line that stays."""
        _display(bundle(text), raw=True)

    def show_waiting(self, text: str) -> None:
        """Show or replace the line about waiting."""
        if self._handle is None:
            self._handle = _display(bundle(text), raw=True, display_id=True)
        else:
            self._handle.update(bundle(text), raw=True)

    def clear_waiting(self) -> None:
        """Take the line about waiting away."""
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)
            self._handle = None

    def fold(self, summary: str, lines: Sequence[str]) -> None:
        """Show a line that opens to more."""
        body = html.escape("\n".join(lines))
        text = f'<details style="{QUIET}"><summary>{html.escape(summary)}</summary><pre>{body}</pre></details>'
        _display({"text/plain": printable(summary), "text/html": text}, raw=True)


class PlainNotes:
    """Lines on stderr for terminals, where nothing can be taken back: one when the text changes."""

    def __init__(self) -> None:
        self._last = ""

    def say(self, text: str) -> None:
        """Show a line that stays."""
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()

    def show_waiting(self, text: str) -> None:
        """Show the line about waiting if it says something new."""
        if text != self._last:
            self._last = text
            self.say(text)

    def clear_waiting(self) -> None:
        """Leave it: a terminal keeps its lines."""

    def fold(self, summary: str, lines: Sequence[str]) -> None:  # noqa: ARG002 - nothing opens in a terminal
        """Show the line."""
        self.say(summary)


class CellViewer:
    """Streams a job into the running cell; `ranks` above one puts the rank before each line, and what all say is shown once."""

    def __init__(self, notes: Notes, ranks: int, on_submitted: Callable[[Job], None] = lambda _: None) -> None:
        self._notes = notes
        self._on_submitted = on_submitted
        self._decoder = Decoder()
        self._ranks = ranks
        self._repeats = Repeats()
        self._labels = Labeller("[{}] ", self._repeats.is_new) if ranks > 1 else None
        self._sources: dict[tuple[int, str], None] = {}
        self._tail = Tail()
        self._said: set[str] = set()
        self._attempt = 0

    def submitted(self, job: Job) -> None:
        """Pass the job on; one that starts at once needs no words."""
        self._on_submitted(job)

    def changed(self, job: models.Job) -> None:
        """Show why it waits, and what the nodes have to say."""
        if job.state is JobState.QUEUED:
            if job.reason:
                self._notes.show_waiting(waiting(job))
        else:
            self._notes.clear_waiting()
        if job.attempt > self._attempt > 0:
            self._notes.say(f"Runs again (attempt {job.attempt}) · {job.id}")
        self._attempt = max(self._attempt, job.attempt)
        told = [f"{placement.node}: {placement.note}" for placement in job.placements if placement.note]
        for text in (*told, *job.warnings):
            if text not in self._said:
                self._said.add(text)
                self._notes.say(text)

    def output(self, frame: models.OutputFrame) -> None:
        """Write what a rank printed."""
        source = (frame.rank, frame.stream)
        self._sources[source] = None
        self._show(source, self._decoder.feed(source, frame.data))

    def gap(self, frame: models.GapFrame) -> None:
        """Say that output is missing."""
        self._notes.say(f"rank {frame.rank}: {frame.message}")

    def interrupted(self, job: Job) -> None:
        """Say that the job is being cancelled."""
        self._notes.clear_waiting()
        self._notes.show_waiting(f"Interrupted: cancelling {job.id} …")

    def close(self) -> None:
        """Write what is still held and take the line about waiting away."""
        for rank, stream in self._sources:
            self._show((rank, stream), self._decoder.flush((rank, stream)))
            if self._labels is not None:
                _write(stream, self._labels.flush(rank, stream))
        self._sources.clear()
        self._notes.clear_waiting()
        if self._ranks > 1 and (summary := self._repeats.summary(self._ranks)):
            self._notes.fold(
                summary, [f"[{rank}] {line}" for rank in self._repeats.folded for line in self._tail.last_lines(rank, KEPT_LINES)]
            )
            self._ranks = 1

    def last_lines(self, job: models.Job) -> tuple[str, ...]:
        """Return the last lines of the rank that failed first."""
        culprit = first_to_fail(job)
        return self._tail.last_lines(culprit.rank if culprit else 0, KEPT_LINES)

    def _show(self, source: tuple[int, str], text: str) -> None:
        rank, stream = source
        self._tail.feed(rank, text)
        _write(stream, text if self._labels is None else self._labels.feed(rank, text, stream))


def _display(data: Mapping[str, str], **options: bool) -> _Handle | None:
    from IPython import display

    show: Callable[..., _Handle | None] = display.display
    return show(data, **options)


def bundle(text: str) -> Mapping[str, str]:
    """Return a quiet line for any front end."""
    return {"text/plain": printable(text), "text/html": f'<div style="{QUIET}">{html.escape(text)}</div>'}


def _write(stream: str, text: str) -> None:
    if text:
        target = sys.stderr if stream == "stderr" else sys.stdout
        target.write(text)
        target.flush()
