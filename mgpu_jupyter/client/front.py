"""How the client shows what takes time: as text, unless a front end (the magics) shows it better."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol, TextIO

from mgpu_agent.protocol.text import printable, tell
from mgpu_jupyter.api.frames import EndFrame, JobFrame, OutputFrame
from mgpu_jupyter.client.lines import Decoder, Labeller
from mgpu_jupyter.client.words import ending

if TYPE_CHECKING:
    from mgpu_jupyter.client.gather import Tally
    from mgpu_jupyter.client.job import Job

BAR_CHARS = 24


class Bar(Protocol):
    """One progress bar for several jobs."""

    def update(self, tally: Tally) -> None:
        """Show their progress."""

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def close(self) -> None:
        """Leave the last state visible."""


class Front(Protocol):
    """Where progress and jobs are shown."""

    def bar(self, array: Job | None = None) -> Bar:
        """Return a progress bar, of one array if it is about that alone."""

    def attach(self, job: Job, rank: int | None) -> None:
        """Show a job until it ends."""


class TextBar:
    """A bar that is redrawn in a terminal; elsewhere a line whenever another job is over."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._redraws = self._stream.isatty()
        self._shown = ""
        self._over = -1

    def update(self, tally: Tally) -> None:
        """Show their progress."""
        text = f"[{'#' * (BAR_CHARS * tally.over // tally.total):{BAR_CHARS}}] {tally.text()}"
        if self._redraws:
            self._stream.write(f"\r{text:{len(self._shown)}}")
        elif tally.over != self._over:
            self._stream.write(f"{text}\n")
        self._shown, self._over = text, tally.over
        self._stream.flush()

    def say(self, text: str) -> None:
        """Show a line over the bar."""
        line = (
            f"\r{printable(text):{len(self._shown)}}\n{self._shown}"
            if self._redraws
            else f"{printable(text)}\n"
        )
        self._stream.write(line)
        self._stream.flush()

    def close(self) -> None:
        """End the line."""
        if self._redraws and self._shown:
            self._stream.write("\n")
            self._stream.flush()


class TextFront:
    """Plain text on this process's own streams."""

    def bar(self, array: Job | None = None) -> Bar:  # noqa: ARG002 - text looks alike for all jobs
        """Return a progress bar."""
        return TextBar()

    def attach(self, job: Job, rank: int | None) -> None:
        """Print the job's output; with several ranks, the rank before each line."""

        decoder, labels = Decoder(), None
        info = job.info
        if rank is None and (info.nodes_wanted > 1 or len(info.placements) > 1):
            labels = Labeller("[{}] ")
        try:
            with job.follow(rank=rank) as frames:
                for frame in frames:
                    if isinstance(frame, OutputFrame):
                        text = decoder.feed((frame.rank, frame.stream), frame.data)
                        stream = sys.stderr if frame.stream == "stderr" else sys.stdout
                        stream.write(text if labels is None else labels.feed(frame.rank, text, frame.stream))
                        stream.flush()
                    elif isinstance(frame, JobFrame | EndFrame):
                        job.snapshot = frame.job
        except KeyboardInterrupt:
            tell(left(job), file=sys.stderr)
            raise
        tell(f"{ending(job.info)} · {job.id}", file=sys.stderr)


def left(job: Job) -> str:
    """Return the sentence for a user who leaves a job that goes on."""
    return (
        f"Left {job.id}; it goes on. `mgpu attach {job.id}` shows it again, `mgpu_cancel {job.id}` ends it."
    )


_current: list[Front] = [TextFront()]


def now() -> Front:
    """Return the front end in use."""
    return _current[-1]


def use(front: Front) -> None:
    """Use this front end from now on."""
    _current[:] = [front]
