"""Waits for several jobs together, with one progress bar: `gather(jobs)` and `await gather_async(jobs)`.

One stream reports about all of them; an interrupt leaves the jobs running.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Self, overload

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_jupyter.client import front
from mgpu_jupyter.client.array import JobArray, flat
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.job_ends import JobEnds, check_time, look_up
from mgpu_jupyter.client.table import Table
from mgpu_jupyter.client.words import duration, ending, exit_status, ran_for
from mgpu_jupyter.model.job import JobState

NAMED = 5
"""The most ids named in a sentence."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of several jobs."""

    total: int
    waiting: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def over(self) -> int:
        """How many have ended, in whatever way."""
        return self.completed + self.failed

    def text(self) -> str:
        """Return it as a line."""
        parts = [f"{self.over} of {self.total} over"]
        parts += [
            f"{count} {word}"
            for count, word in ((self.running, "running"), (self.waiting, "waiting"))
            if count
        ]
        return " · ".join([*parts, *([f"{self.failed} did not complete"] if self.failed else [])])


class JobsFailed(MgpuError):
    """Some of the jobs did not complete."""

    def __init__(self, failed: Sequence[Job]) -> None:
        shown = ", ".join(called(job) for job in failed[:NAMED]) + (
            f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
        )
        super().__init__("jobs-failed", f"{len(failed)} of the jobs did not complete: {shown}.")
        self.jobs = tuple(failed)


class Gathered(Sequence[Job]):
    """Jobs that are over, in the order in which they were given; shown as a table."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = tuple(jobs)

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> Gathered: ...
    def __getitem__(self, index: int | slice) -> Job | Gathered:
        """Return a job, or some of them."""
        return Gathered(self.jobs[index]) if isinstance(index, slice) else self.jobs[index]

    def __len__(self) -> int:
        return len(self.jobs)

    def __await__(self) -> Generator[object, None, Self]:
        """Return itself: nothing is left to wait for."""
        yield from ()
        return self

    @property
    def failed(self) -> list[Job]:
        """Return those that did not complete."""
        return [job for job in self.jobs if job.state is not JobState.COMPLETED]

    def check(self) -> Self:
        """Raise `JobsFailed`, which names them, if some did not complete."""
        if failed := self.failed:
            raise JobsFailed(failed)
        return self

    def table(self) -> Table:
        """Return a table of how each of them ended."""
        look_up(self.jobs)
        rows = [
            (
                job.id,
                info.name,
                info.state.value,
                duration(ran_for(info)),
                "" if info.exit_code is None else str(exit_status(info)),
            )
            for job, info in ((job, job.info) for job in self.jobs)
        ]
        return Table(tally_of(self.jobs).text(), ("Job", "Name", "State", "Time", "Exit"), rows, "No jobs.")

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        """Return the table as HTML."""
        return self.table()._repr_html_()


def gather(
    jobs: Iterable[Job] | Job,
    *,
    timeout: float | None = None,
    check: bool = False,
    bar: bool = True,
    cancel: Callable[[], bool] = lambda: False,
) -> Gathered:
    """Wait until all jobs, and all of each array, are over, with a progress bar; return them in their order.

    `check` raises `JobsFailed` at the end if some did not complete; more than `timeout` seconds raise
    `TimeoutError`. An interrupt leaves the jobs running and says so, unless `cancel()` returns True, which
    cancels them. `await gather_async(jobs)` does the same without blocking the kernel.
    """
    watched = _Watched(jobs, timeout, shows=bar)
    try:
        watched.step()
        while not watched.look():
            watched.step()
    except KeyboardInterrupt:
        raise watched.interrupted(cancel=cancel()) from None
    finally:
        watched.close()
    return watched.gathered.check() if check else watched.gathered


async def gather_async(
    jobs: Iterable[Job] | Job, *, timeout: float | None = None, check: bool = False, bar: bool = True
) -> Gathered:
    """Do the same as `gather` without blocking the event loop."""
    watched = _Watched(jobs, timeout, shows=bar)
    try:
        # Waits in a thread, shows on the loop's own: a front end assigns output to a cell by the context.
        await asyncio.to_thread(watched.step)
        while not watched.look():
            await asyncio.to_thread(watched.step)
    except asyncio.CancelledError:
        watched.interrupted()
        raise
    finally:
        watched.close()
    return watched.gathered.check() if check else watched.gathered


def tally_of(jobs: Iterable[Job]) -> Tally:
    """Count the jobs by their last known state."""
    states = [job.last_state or JobState.QUEUED for job in jobs]
    completed = states.count(JobState.COMPLETED)
    waiting = states.count(JobState.QUEUED)
    over = sum(state.is_final for state in states)
    return Tally(
        total=len(states),
        waiting=waiting,
        running=len(states) - waiting - over,
        completed=completed,
        failed=over - completed,
    )


def called(job: Job) -> str:
    """Return a job by its name and id."""
    name = job.snapshot.name if job.snapshot else ""
    return f"{name} ({job.id})" if name else str(job.id)


class _Watched:
    """Jobs that are being waited for, and their progress bar."""

    def __init__(self, jobs: Iterable[Job] | Job, timeout: float | None, *, shows: bool) -> None:
        self._jobs = list(flat([jobs] if isinstance(jobs, Job) else jobs))
        if not self._jobs:
            raise InvalidRequest(
                "no-jobs",
                "There is nothing to gather: give a list of jobs, as `--background --as job` makes them.",
            )
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._bar = front.now().bar(jobs if isinstance(jobs, JobArray) else None) if shows else None
        self._named: set[str] = set()
        self._tally: Tally | None = None
        self._waiting = JobEnds(self._jobs)

    @property
    def gathered(self) -> Gathered:
        return Gathered(self._jobs)

    def step(self) -> None:
        """Take what arrived; returns after a short while without news."""
        self._waiting.step()

    def look(self) -> bool:
        """Show their progress; tell whether all are over."""
        waiting, running = self._waiting.counts
        states = [job.last_state for job in self._jobs if job.is_over]
        completed = states.count(JobState.COMPLETED)
        failed = len(states) - completed
        tally = Tally(
            total=len(self._jobs), waiting=waiting, running=running, completed=completed, failed=failed
        )
        changed, self._tally = tally != self._tally, tally
        if self._bar is not None and changed:
            self._name_failed(self._bar)
            self._bar.update(tally)
        check_time(self._waiting, self._deadline, self._timeout, len(self._jobs))
        return self._waiting.is_over

    def _name_failed(self, bar: front.Bar) -> None:
        """Show how those ended that did not complete, each once."""
        failed = [
            job
            for job in self._jobs
            if job.is_over and job.last_state is not JobState.COMPLETED and job.id not in self._named
        ]
        look_up(failed)
        for job in failed:
            self._named.add(job.id)
            bar.say(f"{called(job)}: {ending(job.info)}")

    def interrupted(self, *, cancel: bool = False) -> KeyboardInterrupt:
        """Say that the jobs go on, or end them; return the interrupt with the same message."""
        left = self._waiting.left
        jobs = f"{len(left)} job{'' if len(left) == 1 else 's'}"
        shown = " ".join(str(job.id) for job in left[:NAMED]) + (" …" if len(left) > NAMED else "")
        text = f"Left {jobs} running; they go on. `mgpu_cancel {shown}` ends them."
        if cancel:
            for job in left:
                job.cancel()
            text = f"Cancelled {jobs} that had not ended: {shown}."
        if self._bar is not None:
            self._bar.say(text)
        return KeyboardInterrupt(text)

    def close(self) -> None:
        self._waiting.close()
        if self._bar is not None:
            self._bar.close()
