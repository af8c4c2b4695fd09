"""Several jobs waited for together, with one progress bar: `gather(jobs)`, and `await gather_async(jobs)` beside other work.

One request tells about all of them, a few times a second; an interrupt leaves the jobs alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Self, overload

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.client import front
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.table import Table
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.client.words import duration, ending, exit_status, ran_for
from mgpu_jupyter.model.job import JobState

LEAST_PAUSE_S, MOST_PAUSE_S = 0.1, 1.0
FEW = 4
"""So many jobs are asked one by one; more by a list."""
NAMED = 5
"""So many ids are named in a sentence."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How far several jobs are."""

    total: int
    waiting: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def over(self) -> int:
        """How many have ended, however they did."""
        return self.completed + self.failed

    def text(self) -> str:
        """Return it as a line."""
        parts = [f"{self.over} of {self.total} over"]
        parts += [f"{count} {word}" for count, word in ((self.running, "running"), (self.waiting, "waiting")) if count]
        return " · ".join([*parts, *([f"{self.failed} did not complete"] if self.failed else [])])


class JobsFailed(MgpuError):
    """Some of the jobs did not complete."""

    def __init__(self, failed: Sequence[Job]) -> None:
        shown = ", ".join(called(job) for job in failed[:NAMED]) + (f" and {len(failed) - NAMED} more" if len(failed) > NAMED else "")
        super().__init__("jobs-failed", f"{len(failed)} of the jobs did not complete: {shown}.")
        self.jobs = tuple(failed)


class Gathered(Sequence[Job]):
    """Jobs that are over, in the order in which they were given; a table where it is shown."""

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
        """Return how each of them ended."""
        rows = [
            (job.id, info.name, info.state.value, duration(ran_for(info)), "" if info.exit_code is None else str(exit_status(info)))
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
    """Wait until all jobs (of arrays: all of each) are over, with one progress bar, and return them in their order.

    `check` raises `JobsFailed` at the end if some did not complete; more than `timeout` seconds raise `TimeoutError`. An interrupt
    leaves the jobs running and says so, unless `cancel` then tells that they should end. `await gather_async(jobs)` does the same
    without blocking the kernel.
    """
    watched = _Watched(jobs, timeout, shows=bar)
    try:
        while (pause_s := watched.look()) is not None:
            time.sleep(pause_s)
    except KeyboardInterrupt:
        raise watched.interrupted(cancel=cancel()) from None
    finally:
        watched.close()
    return watched.gathered.check() if check else watched.gathered


async def gather_async(jobs: Iterable[Job] | Job, *, timeout: float | None = None, check: bool = False, bar: bool = True) -> Gathered:
    """Do as `gather` does beside everything else that the event loop does."""
    watched = _Watched(jobs, timeout, shows=bar)
    try:
        # Asked on a thread, shown on the loop's own: a front end takes what a cell shows by its context.
        while (pause_s := watched.seen(await asyncio.to_thread(watched.ask))) is not None:  # noqa: ASYNC110 - a server is asked
            await asyncio.sleep(pause_s)
    except asyncio.CancelledError:
        watched.interrupted()
        raise
    finally:
        watched.close()
    return watched.gathered.check() if check else watched.gathered


def tally_of(jobs: Iterable[Job]) -> Tally:
    """Count what was seen last of the jobs."""
    states = [job.snapshot.state if job.snapshot else JobState.QUEUED for job in jobs]
    completed = states.count(JobState.COMPLETED)
    waiting = states.count(JobState.QUEUED)
    over = sum(state.is_final for state in states)
    return Tally(total=len(states), waiting=waiting, running=len(states) - waiting - over, completed=completed, failed=over - completed)


def called(job: Job) -> str:
    """Return a job by its name and id."""
    name = job.snapshot.name if job.snapshot else ""
    return f"{name} ({job.id})" if name else str(job.id)


class _Watched:
    """Jobs on their way to their end, and the bar that shows it."""

    def __init__(self, jobs: Iterable[Job] | Job, timeout: float | None, *, shows: bool) -> None:
        self._jobs = list(_flat([jobs] if isinstance(jobs, Job) else jobs))
        if not self._jobs:
            raise InvalidRequest("no-jobs", "There is nothing to gather: give a list of jobs, as `--background --as job` makes them.")
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._bar = front.now().bar() if shows else None
        self._named: set[str] = set()
        self._tally: Tally | None = None
        self._pause_s = LEAST_PAUSE_S

    @property
    def gathered(self) -> Gathered:
        return Gathered(self._jobs)

    def look(self) -> float | None:
        """Ask and show; return how long to pause, or None when all are over."""
        return self.seen(self.ask())

    def ask(self) -> dict[str, models.Job]:
        """Return what the server knows of those that are not over."""
        pending = [job for job in self._jobs if job.snapshot is None or not job.snapshot.state.is_final]
        fresh: dict[str, models.Job] = {}
        if len(pending) > FEW:
            arrays = {job.snapshot.array_id for job in pending if job.snapshot}
            known = [job.snapshot.submitted_at for job in pending if job.snapshot]
            if len(known) == len(pending):
                array = next(iter(arrays)) if len(arrays) == 1 else None
                query = {"limit": str(models.MAX_PAGE), **({"array": array} if array else {"since": repr(min(known))})}
                page = pending[0].caller.call(Request(path="jobs", query=query), models.JobList)
                fresh = {info.id: info for info in page.jobs}
        for job in pending:
            if job.id not in fresh:
                fresh[job.id] = job.caller.call(Request(path=f"jobs/{job.id}"), models.Job)
        return fresh

    def seen(self, fresh: dict[str, models.Job]) -> float | None:
        """Show what was found; return how long to pause, or None when all are over."""
        for job in self._jobs:
            job.snapshot = fresh.get(job.id, job.snapshot)
        tally = tally_of(self._jobs)
        changed, self._tally = tally != self._tally, tally
        if self._bar is not None and changed:
            for job in self._jobs:
                if (info := job.snapshot) and info.state.is_final and info.state is not JobState.COMPLETED and job.id not in self._named:
                    self._named.add(job.id)
                    self._bar.say(f"{called(job)}: {ending(info)}")
            self._bar.update(tally)
        if tally.over == tally.total:
            return None
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise TimeoutError(f"{tally.total - tally.over} of {tally.total} jobs are not over after {self._timeout} s; they go on.")
        self._pause_s = LEAST_PAUSE_S if changed else min(2 * self._pause_s, MOST_PAUSE_S)
        return self._pause_s if self._deadline is None else max(0.0, min(self._pause_s, self._deadline - time.monotonic()))

    def interrupted(self, *, cancel: bool = False) -> KeyboardInterrupt:
        """Say that the jobs go on, or end them; return the interrupt that says it too."""
        left = [job for job in self._jobs if job.snapshot is None or not job.snapshot.state.is_final]
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
        if self._bar is not None:
            self._bar.close()


def _flat(jobs: Iterable[Job]) -> Iterator[Job]:
    for job in jobs:
        if not isinstance(job, Job):
            raise InvalidRequest("no-jobs", f"{type(job).__name__!r} is no job: give jobs as `--background --as job` makes them.")
        if isinstance(job, JobArray):
            yield from job.jobs
        else:
            yield job
