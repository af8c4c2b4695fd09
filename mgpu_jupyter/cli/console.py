"""The shell's end of a running job: its stdin, and for `--pty` its terminal, on their way there. What comes back is the viewer's."""

from __future__ import annotations

import os
import signal
import threading

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.notes import note
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.keyboard import DETACH_HELP, Nothing, RawTerminal, Stdin
from mgpu_jupyter.client.stdin_sender import Source, StdinSender
from mgpu_jupyter.model.job import JobState

_AT_WORK = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


class Console:
    """Stdin and terminal of this process, lent to a job."""

    def __init__(self, *, pty: bool, only_typed: bool = False) -> None:
        self._only_typed = only_typed
        """Whether only a terminal counts: the end of a file must not end the stdin of a job that somebody comes back to."""
        self.detached = False
        """Whether the user left; the job goes on."""
        self._pty = pty
        self._typing: StdinSender | None = None
        self._terminal = RawTerminal(self._resized)

    def begin(self, job: Job) -> None:
        """Send what is typed from now on to this job."""

        def lost() -> None:
            note(f"mgpu {job.id}: it began anew, and what was piped into it is gone: it is cancelled. Give it a file, or submit it again.")
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
        """Be a raw terminal exactly while the job is at work."""
        if not self._pty:
            return
        if job.state in _AT_WORK:
            self._terminal.enter()
        else:
            self._terminal.leave()

    def end(self) -> None:
        """Bring the terminal back, and stop sending."""
        self._terminal.leave()
        if self._typing is not None:
            self._typing.close()

    def _resized(self, rows: int, columns: int) -> None:
        if self._typing is not None:
            self._typing.resize(rows, columns)

    def _detach(self) -> None:
        self.detached = True
        # The main thread waits for output; a signal is what ends that.
        ident = threading.main_thread().ident
        if ident is not None:
            signal.pthread_kill(ident, signal.SIGINT)


def say_how_to_leave() -> None:
    """Tell how one leaves a terminal."""
    note(f"mgpu: {DETACH_HELP}.")
