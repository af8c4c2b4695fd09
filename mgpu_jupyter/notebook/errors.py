"""How a job that did not complete fails its cell: short, without the magics' own traceback. Prints nothing."""

from __future__ import annotations

from typing import TypeVar

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api import models
from mgpu_jupyter.client.words import ending, exit_status
from mgpu_jupyter.model.job import JobState

SHOWN_LINES = 5
E = TypeVar("E", bound=BaseException)


class JobFailed(MgpuError):
    """The job of this cell did not complete."""

    def __init__(self, job: models.Job, last_lines: tuple[str, ...] = (), *, code: str = "job-failed") -> None:
        super().__init__(code, printable(f"{ending(job)} · {job.id}"))
        self.job = job
        self.job_id = job.id
        self.exit_code = exit_status(job)
        self.last_lines = last_lines

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a traceback."""
        return rendered(self, self.last_lines)


class JobCancelled(JobFailed):
    """The job of this cell was cancelled."""

    def __init__(self, job: models.Job, last_lines: tuple[str, ...] = ()) -> None:
        super().__init__(job, last_lines, code="job-cancelled")


def interruption(job: models.Job) -> KeyboardInterrupt:
    """Return the interrupt to raise again once the job is cancelled; a loop over jobs stops by it, as users expect of the stop button."""
    state = ending(job, by_you=True) if job.state is JobState.CANCELLED else f"The job was {job.state} when you interrupted"
    return shorten(KeyboardInterrupt(f"{state} · {job.id}"))


def failure(job: models.Job, last_lines: tuple[str, ...]) -> JobFailed:
    """Return the error for a job that did not complete."""
    return JobCancelled(job, last_lines) if job.state is JobState.CANCELLED else JobFailed(job, last_lines)


def shorten(error: E) -> E:
    """Return `error` so that IPython shows its sentence and no traceback."""
    error.__dict__["_render_traceback_"] = lambda: rendered(error)
    return error


def rendered(error: BaseException, last_lines: tuple[str, ...] = ()) -> list[str]:
    """Return the lines that stand for an error in a cell."""
    return [f"{type(error).__name__}: {printable(str(error))}", *(f"    {printable(line)}" for line in last_lines[-SHOWN_LINES:])]
