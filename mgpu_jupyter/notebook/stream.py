"""Shows a running job in the cell that runs it. Everything happens in the cell's own thread, else nbclient
drops it.

The output of a single rank goes to the cell's own streams, unaltered, so that progress bars redraw; that of
several ranks is labelled (`ranks.py`). What ranks display appears in its place (`displays.py`), mgpu's own
lines are apart from both. What ended a rank is held for the error of the cell (`rank_errors.py`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api import frames, models
from mgpu_jupyter.client.displays import Display, Splitter, text_of
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.lines import Decoder, Tail
from mgpu_jupyter.client.watch import Viewer
from mgpu_jupyter.client.words import cause, ending, first_to_fail
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.actions import RUN_CELL, RUN_JOB
from mgpu_jupyter.notebook.budget import Budget
from mgpu_jupyter.notebook.errors import JobFailed, failure, rendered
from mgpu_jupyter.notebook.gauges import Gauges
from mgpu_jupyter.notebook.header import done_html
from mgpu_jupyter.notebook.header_updates import HeaderUpdates
from mgpu_jupyter.notebook.notes import Notes, RichNotes
from mgpu_jupyter.notebook.rank_errors import RankErrors
from mgpu_jupyter.notebook.ranks import RankLines
from mgpu_jupyter.notebook.screen import Buttons, PlainHeader, RichHeader, clear_output, display
from mgpu_jupyter.notebook.tracebacks import Drawing

KEPT_LINES = 20
PACE_S = 0.25
STOP_CANCELS, STOP_LEAVES = "Stop cancels", "Stop leaves it running"


class CellViewer(Viewer):
    """Streams a job into the running cell; with `ranks` larger than one, the rank is put before each line,
    and equal lines are shown once.
    """

    pace_s = PACE_S

    def __init__(
        self,
        notes: Notes,
        ranks: int,
        on_submitted: Callable[[Job], None] = lambda _: None,
        *,
        kernel: object = None,
        gauges: Gauges | None = None,
        shell: object = None,
    ) -> None:
        """`kernel` is None in a terminal, which gets lines and the text of displays; `shell` draws errors."""
        self._notes = notes
        self._on_submitted = on_submitted
        self._is_rich = kernel is not None
        self._tail = Tail()
        self._header_updates = HeaderUpdates(
            lambda updates: (
                RichHeader(Buttons(kernel, updates.cancel, updates.why)) if self._is_rich else PlainHeader()
            ),
            gauges,
            is_rich=self._is_rich,
            stop=STOP_CANCELS,
            run_again=RUN_CELL,
        )
        self._errors = RankErrors(Drawing(shell))
        self._decoder = Decoder()
        self._splitters: dict[tuple[int, str], Splitter] = {}
        self._lines = RankLines(ranks, colour=self._is_rich or sys.stdout.isatty()) if ranks > 1 else None
        self._budget = Budget(limited=self._is_rich)
        self._left_out: Notes | None = None
        self._said: set[str] = set()
        self._attempt = 0
        self._key = ""
        self._cleared: set[int] = set()
        self._shown: dict[str, str] = {}

    def attached(self) -> None:
        """Note that the user came back to a job: Stop leaves it, and running the cell again would show it
        again.
        """
        self._header_updates.stop, self._header_updates.run_again = STOP_LEAVES, RUN_JOB

    # --- events of the job ---------------------------------------------------------------------------

    def submitted(self, job: Job) -> None:
        """Note the job; one that starts at once needs no line."""
        self._header_updates.job = job
        self._on_submitted(job)

    def keyed(self, key: str) -> None:
        """Take the key of what this job displays; without one there is only text."""
        self._key = key

    def changed(self, job: models.Job) -> None:
        """Show its state, and notes of its nodes."""
        if job.state.is_final:
            self._write(*self._rest())
        self._header_updates.changed(job)
        if job.attempt > self._attempt > 0:
            self._write("stderr", self._errors.rest())
            self._notes.say(f"Runs again (attempt {job.attempt}) · {job.id}")
        self._attempt = max(self._attempt, job.attempt)
        told = [f"{placement.node}: {placement.note}" for placement in job.placements if placement.note]
        for text in (*told, *job.warnings):
            if text not in self._said:
                self._said.add(text)
                self._notes.say(text)

    def output(self, frame: frames.OutputFrame) -> None:
        """Write a rank's output and show its displays."""
        source = (frame.rank, frame.stream)
        text = self._decoder.feed(source, frame.data)
        self._pieces(source, self._splitters.setdefault(source, Splitter()).feed(text, self._key))
        self._bring_up_to_date()

    def gap(self, frame: frames.GapFrame) -> None:
        """Show that output is missing."""
        self._notes.say(f"rank {frame.rank}: {frame.message}")

    def tick(self) -> None:
        """Update what changes with time: held lines, elapsed time, load."""
        if self._lines is not None:
            self._write("stdout", self._lines.due())
        self._write("stderr", self._errors.due())
        self._bring_up_to_date()

    def trouble(self, text: str) -> None:
        """Show that the server does not answer; may come from any thread, and is shown by the next tick."""
        self._header_updates.trouble = text
        if not self._is_rich:
            self._notes.show_waiting(text)

    def interrupted(self, job: Job) -> None:
        """Show that the job is being cancelled."""
        self._header_updates.cancelling = True
        if self._info is None or self._info.state is JobState.QUEUED:
            self._notes.show_waiting(f"Interrupted: cancelling {job.id} …")
        else:
            self._header_updates.show()

    def close(self) -> None:
        """Write what is still held; the header of a job that is not over is removed."""
        for (rank, stream), splitter in self._splitters.items():
            text = self._decoder.flush((rank, stream))
            self._pieces((rank, stream), [*splitter.feed(text, self._key), *splitter.flush(self._key)])
        self._splitters.clear()
        self._write(*self._rest())
        if self._info is None or self._info.state is not JobState.FAILED:
            self._write("stderr", self._errors.rest())
        self._notes.clear_waiting()
        self._header_updates.close()
        self._say_what_is_left_out(last=True)
        if self._lines is not None and (summary := self._lines.summary()):
            lines = [
                f"{rank} │ {line}"
                for rank in sorted(self._lines.folded)
                for line in self._tail.last_lines(rank, KEPT_LINES)
            ]
            self._notes.fold(summary, lines)
            self._lines = None

    def done(self, job: models.Job, brought: str = "") -> None:
        """Show the one line of a job that completed, with what it returned; call it after `close`."""
        used = used_gpus(self._header_updates.job) if self._is_rich and job.gpus else ""
        more = [text for text in (used, brought) if text]
        text = " · ".join((ending(job), *more, job.id))
        if self._is_rich:
            page = done_html(job, more)
            display(
                {"text/html": page, "text/plain": printable(text)},
                raw=True,
                metadata={"mgpu": {"job_id": job.id}},
            )
        else:
            self._notes.say(text)

    def failure(self, job: models.Job) -> JobFailed:
        """Return the error of the cell for a job that did not complete; call it after `close`."""
        culprit = first_to_fail(job)
        last_lines = self._tail.last_lines(culprit.rank if culprit else 0, KEPT_LINES)
        error = failure(job, last_lines)
        if job.state is JobState.FAILED:
            about = [self._errors.quiet(job), self._header_updates.hint(job)]
            shown = self._errors.lines(job) or rendered(error, cause(job))
            error.shown = (*shown, *(printable(line) for line in about if line))
        return error

    @property
    def _info(self) -> models.Job | None:
        return self._header_updates.info

    def _bring_up_to_date(self) -> None:
        if self._header_updates.bring_up_to_date():
            self._say_what_is_left_out()

    # --- output ------------------------------------------------------------------------------------------

    def _pieces(self, source: tuple[int, str], pieces: Sequence[str | Display]) -> None:
        rank, stream = source
        for piece in pieces:
            if isinstance(piece, str):
                self._text(rank, stream, piece)
            elif piece.kind == "error":
                self._tail.feed(rank, text_of(piece))
                self._errors.add(rank, piece.data)
            elif not self._is_rich:
                self._text(rank, stream, text_of(piece))
            else:
                self._write(*self._rest())
                self._display(rank, piece)

    def _text(self, rank: int, stream: str, text: str) -> None:
        self._tail.feed(rank, text)
        if self._lines is not None:
            self._write("stdout", self._lines.feed(rank, stream, text))
        else:
            self._clear_if_due(rank)
            self._write(stream, text)

    def _rest(self) -> tuple[str, str]:
        return "stdout", self._lines.flush() if self._lines is not None else ""

    def _write(self, stream: str, text: str) -> None:
        shown = self._budget.take(text)
        if shown:
            target = sys.stderr if stream == "stderr" else sys.stdout
            target.write(shown)
            target.flush()

    def _display(self, rank: int, shown: Display) -> None:
        """Show a display of a rank; ids belong to the rank, so that ranks do not replace each other's."""
        if shown.kind == "clear":
            self._cleared.add(rank)
            if self._lines is None and not shown.metadata.get("wait"):
                self._clear_if_due(rank)
            return
        name = (
            f"mgpu-{self._info.id if self._info else ''}-{self._attempt}-{rank}-{shown.id}"
            if shown.id
            else ""
        )
        if shown.kind == "update":
            if name in self._shown:
                display(
                    shown.data, raw=True, metadata=shown.metadata, display_id=self._shown[name], update=True
                )
            return
        if self._replaces(rank, shown):
            return
        self._clear_if_due(rank)
        if not self._budget.take_display():
            return
        if name or self._lines is not None:
            self._shown[name or f"rank-{rank}"] = unique = (
                name or f"mgpu-{self._info.id if self._info else ''}-{rank}-{time.monotonic_ns()}"
            )
            display(shown.data, raw=True, metadata=shown.metadata, display_id=unique)
        else:
            display(shown.data, raw=True, metadata=shown.metadata)

    def _replaces(self, rank: int, shown: Display) -> bool:
        """Replace the rank's last display if it cleared its output: with several ranks, none may erase the
        others' output.
        """
        last = self._shown.get(f"rank-{rank}")
        if self._lines is None or rank not in self._cleared or last is None:
            return False
        self._cleared.discard(rank)
        display(shown.data, raw=True, metadata=shown.metadata, display_id=last, update=True)
        return True

    def _clear_if_due(self, rank: int) -> None:
        if rank not in self._cleared:
            return
        self._cleared.discard(rank)
        if self._lines is None:
            clear_output()
            self._shown.clear()
            self._budget.renew()
            self._left_out = None
            self._header_updates.header.again()

    def _say_what_is_left_out(self, *, last: bool = False) -> None:
        note = self._budget.note(self._info.id) if self._info is not None else ""
        if not note:
            return
        if self._left_out is None:
            self._left_out = RichNotes()
        self._left_out.show_waiting(note)
        if last:
            self._left_out = None
            sys.stdout.write(self._budget.tail())
            sys.stdout.flush()


def used_gpus(job: Job | None) -> str:
    """Return `asked 4, used 1.3`; empty where the GPUs or the server do not tell."""
    try:
        told = None if job is None else job.summary()
    except MgpuError:
        return ""
    if told is None or told.gpu_utilisation_percent is None:
        return ""
    return f"asked {told.gpus_requested}, used {told.gpus_requested * told.gpu_utilisation_percent / 100:.1f}"
