"""How a job that did not complete fails its cell: with what ended it on the node where that is known, else in
one line, and never with the magics' own traceback. Prints nothing.
"""

from __future__ import annotations

from typing import TypeVar

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api import models
from mgpu_jupyter.client.words import cause, ending, exit_status
from mgpu_jupyter.model.job import JobState

E = TypeVar("E", bound=BaseException)


class JobFailed(MgpuError):
    """The job of this cell did not complete."""

    def __init__(
        self,
        job: models.Job,
        last_lines: tuple[str, ...] = (),
        shown: tuple[str, ...] = (),
        *,
        code: str = "job-failed",
    ) -> None:
        """`shown` are the lines that the cell shows, harmless already; the job's output is above them, so its
        last lines are not among them.
        """
        super().__init__(code, printable(f"{ending(job)} · {job.id}"))
        self.job = job
        self.job_id = job.id
        self.exit_code = exit_status(job)
        self.last_lines = last_lines
        self.shown = shown

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a traceback."""
        return list(self.shown) or rendered(self, cause(self.job))


class JobCancelled(JobFailed):
    """The job of this cell was cancelled."""

    def __init__(
        self, job: models.Job, last_lines: tuple[str, ...] = (), shown: tuple[str, ...] = ()
    ) -> None:
        super().__init__(job, last_lines, shown, code="job-cancelled")


def interruption(job: models.Job) -> KeyboardInterrupt:
    """Return the interrupt to raise again once the job is cancelled; it stops a loop over jobs, as users
    expect of the stop button.
    """
    state = (
        ending(job, by_you=True)
        if job.state is JobState.CANCELLED
        else f"The job was {job.state} when you interrupted"
    )
    return shorten(KeyboardInterrupt(f"{state} · {job.id}"))


def failure(job: models.Job, last_lines: tuple[str, ...], shown: tuple[str, ...] = ()) -> JobFailed:
    """Return the error for a job that did not complete."""
    kind = JobCancelled if job.state is JobState.CANCELLED else JobFailed
    return kind(job, last_lines, shown)


def shorten(error: E) -> E:
    """Make IPython show the sentence of `error` and no traceback; return it."""
    error.__dict__["_render_traceback_"] = lambda: rendered(error)
    return error


def rendered(error: BaseException, text: str = "") -> list[str]:
    """Return the line that stands for an error in a cell."""
    return [f"{type(error).__name__}: {printable(text or str(error))}"]
