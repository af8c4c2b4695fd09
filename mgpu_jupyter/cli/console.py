"""The shell's end of a running job: its output, its stdin, and for `--pty` its terminal. Submits nothing."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
from typing import BinaryIO

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.text import printable, tell
from mgpu_jupyter.api import frames, models
from mgpu_jupyter.client import watch, words
from mgpu_jupyter.client.displays import Stripper
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.keyboard import DETACH_HELP, Nothing, RawTerminal, Stdin
from mgpu_jupyter.client.lines import Decoder, Labeller
from mgpu_jupyter.client.stdin_sender import Source, StdinSender
from mgpu_jupyter.model.job import JobState

INTERRUPT_EXIT = 130  # 128 + SIGINT

ERASE = "\x1b[K"
COUNTS_DOWN = "delayed"
"""The reason whose number of seconds changes every second."""
_SECONDS = re.compile(r"\b(\d+) s\b", re.ASCII)
_AT_WORK = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


class _Redrawn:
    """The one line of a terminal that is redrawn; later output begins below it."""

    is_open = False

    def draw(self, text: str) -> None:
        """Replace the text of the line."""
        sys.stdout.flush()
        self.is_open = True
        room = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r{ERASE}{words.middle(printable(text), room)}")
        sys.stderr.flush()

    def end(self) -> None:
        """Leave the line as it is."""
        if self.is_open:
            self.is_open = False
            sys.stderr.write("\r\n")
            sys.stderr.flush()


_redrawn = _Redrawn()


def note(text: str) -> None:
    """Print a line; in a raw terminal, too, the next one begins at the left."""
    _redrawn.end()
    sys.stdout.flush()
    end = "\r\n" if sys.stderr.isatty() else "\n"
    tell(text, file=sys.stderr, flush=True, end=end)


class ShellConsole:
    """Connects stdin and terminal of this process to a job."""

    def __init__(self, *, pty: bool, only_typed: bool = False) -> None:
        self._only_typed = only_typed
        """Whether only a terminal counts: the end of a file must not end the stdin of a job that goes on."""
        self.detached = False
        """Whether the user left; the job goes on."""
        self._pty = pty
        self._typing: StdinSender | None = None
        self._terminal = RawTerminal(self._resized)

    def has_left(self) -> bool:
        """Tell whether the user left; the job goes on."""
        return self.detached

    def begin(self, job: Job) -> None:
        """Send input to this job from now on."""

        def lost() -> None:
            note(
                f"mgpu {job.id}: it began anew, and what was piped into it is gone: it is cancelled. Give "
                f"it a file, or submit it again."
            )
            try:
                job.cancel()
            except MgpuError as error:
                note(error.message)

        source: Source = Stdin(on_detach=self._detach if self._pty else None)
        if self._only_typed and not os.isatty(0):
            source = Nothing()
        self._typing = StdinSender(job.caller, job.id, source, lost)
        self._typing.start()

    def changed(self, job: models.Job) -> None:
        """Make the terminal raw exactly while the job is running."""
        if not self._pty:
            return
        if job.state in _AT_WORK:
            self._terminal.enter()
        else:
            self._terminal.leave()

    def end(self) -> None:
        """Restore the terminal, and stop sending."""
        self._terminal.leave()
        if self._typing is not None:
            self._typing.close()

    def _resized(self, rows: int, columns: int) -> None:
        if self._typing is not None:
            self._typing.resize(rows, columns)

    def _detach(self) -> None:
        self.detached = True
        # The main thread waits for output; only a signal ends that.
        ident = threading.main_thread().ident
        if ident is not None:
            signal.pthread_kill(ident, signal.SIGINT)


def say_how_to_leave() -> None:
    """Print how to leave a terminal."""
    note(f"mgpu: {DETACH_HELP}.")


class ShellViewer(watch.Viewer):
    """Writes bytes as they come; lines of several ranks carry their rank."""

    def __init__(
        self,
        priority: int,
        ranks: int,
        err: BinaryIO | None = None,
        console: ShellConsole | None = None,
        *,
        label: bool = False,
    ) -> None:
        self._console = console
        self._priority = priority
        self._out = sys.stdout.buffer
        self._err = err or sys.stderr.buffer
        self._labels = Labeller("{}: ") if ranks > 1 or label else None
        self._decoder = Decoder()
        self._sources: dict[tuple[int, str], Stripper] = {}
        self._said = ""
        self._waited = False
        self._attempt = 0
        self._notes: set[str] = set()

    def submitted(self, job: Job) -> None:
        """Print the line that scripts look for."""
        note(f"Job submitted. ID: {job.id} (priority={self._priority})")

    def changed(self, job: models.Job) -> None:
        """Print why it waits, when that changes, and notes of its nodes."""
        if self._console is not None:
            self._console.changed(job)
        if job.state is JobState.QUEUED:
            if not self._waited:
                self._waited = True
                note("Waiting for job to start...")
            if job.reason and job.reason != self._said:
                self._wait(job)
                self._said = job.reason
        if job.attempt > self._attempt > 0:
            note(f"mgpu {job.id} runs again (attempt {job.attempt}).")
        self._attempt = max(self._attempt, job.attempt)
        told = [f"{placement.node}: {placement.note}" for placement in job.placements if placement.note]
        for text in (f"mgpu {one}" for one in (*told, *job.warnings)):
            if text not in self._notes:
                self._notes.add(text)
                note(text)

    def _wait(self, job: models.Job) -> None:
        """Print what it waits for; a countdown is one redrawn line in a terminal, elsewhere a sentence."""
        if job.reason_code != COUNTS_DOWN:
            note(words.waiting(job))
        elif sys.stderr.isatty():
            _redrawn.draw(words.waiting(job))
        else:
            (now, left), (before, last) = _countdown(job.reason), _countdown(self._said)
            if now != before or left > last:
                note(words.waiting(job))

    def output(self, frame: frames.OutputFrame) -> None:
        """Write output of a rank."""
        source = (frame.rank, frame.stream)
        data = self._sources.setdefault(source, Stripper()).feed(frame.data)
        if self._labels is None:
            self._write(frame.stream, data)
            return
        self._write(
            frame.stream,
            self._labels.feed(frame.rank, self._decoder.feed(source, data), frame.stream).encode(),
        )

    def gap(self, frame: frames.GapFrame) -> None:
        """Print that output is missing."""
        note(f"mgpu rank {frame.rank}: {frame.message}")

    def interrupted(self, job: Job) -> None:  # noqa: ARG002 - the line names no job
        """Print the line that scripts look for."""
        note("User interrupted. Canceling job...")

    def close(self) -> None:
        """Write what is still held."""
        for (rank, stream), stripper in self._sources.items():
            data = stripper.flush()
            if self._labels is None:
                self._write(stream, data)
                continue
            text = self._decoder.feed((rank, stream), data) + self._decoder.flush((rank, stream))
            self._write(
                stream, (self._labels.feed(rank, text, stream) + self._labels.flush(rank, stream)).encode()
            )

    def _write(self, stream: str, data: bytes) -> None:
        target = self._err if stream == "stderr" else self._out
        if data:
            _redrawn.end()
            target.write(data)
            target.flush()


def _countdown(reason: str) -> tuple[str, int]:
    """Return a sentence without its seconds, and the seconds."""
    found = _SECONDS.search(reason)
    return _SECONDS.sub("", reason, count=1), int(found[1]) if found else 0


def report(outcome: watch.Outcome) -> int:
    """Print how a job ended; return the exit code for the shell."""
    job = outcome.job
    if outcome.detached:
        note(f"mgpu {job.id} goes on: come back with `mgpu attach {job.id}`.")
        return 0
    if outcome.interrupted:
        if not job.state.is_final:
            note(f"Job {job.id} is still stopping: see mgpu_queue.")
        elif job.state is JobState.CANCELLED:
            note(f"Job {job.id} canceled successfully.")
        else:
            note(f"Job {job.id} had ended already ({job.state}).")
        return INTERRUPT_EXIT
    status = words.exit_status(job)
    if job.state is JobState.FAILED and job.reason:
        note(f"mgpu {job.id}: {printable(job.reason)}")
        if job.failure is not None and len(job.placements) > 1 and job.failure.last_lines:
            note(f"The last lines of rank {job.failure.rank}:")
            for line in job.failure.last_lines:
                note(f"    {printable(line)}")
    if job.state is JobState.COMPLETED or (job.state is JobState.FAILED and job.exit_code is not None):
        note(f"Job {job.id} completed with exit code {status}")
    else:
        note(f"Job {job.id}: {words.ending(job)}.")
    return status
