"""An array as an object: many jobs of one request, queried and ended together."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from mgpu_agent.protocol.errors import Conflict, InvalidRequest
from mgpu_jupyter.api import models
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.follow import Follow
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.job_ends import JobEnds, wait_for
from mgpu_jupyter.client.sweep_table import SweepTable
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.model.job import JobState

ORDER = (JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


class JobArray(Job):
    """`id` is the array's, `jobs` are its jobs; `info` is of the least advanced one, failed ones first."""

    def __init__(self, caller: Caller, array_id: str, job_ids: tuple[str, ...]) -> None:
        super().__init__(caller, array_id)
        self.jobs = [Job(caller, job_id) for job_id in job_ids]

    def __repr__(self) -> str:
        return f"<JobArray {self.id} of {len(self.jobs)} jobs>"

    def refresh(self) -> models.Job:
        """Ask the server about all jobs of the array."""
        found: dict[str, models.Job] = {}
        query = {"array": str(self.id), "limit": str(models.MAX_PAGE)}
        while True:
            page = self._caller.call(Request(path="jobs", query=dict(query)), models.JobList)
            found |= {info.id: info for info in page.jobs}
            if page.next_cursor is None:
                break
            query["cursor"] = page.next_cursor
        for job in self.jobs:
            job.snapshot = found.get(job.id, job.snapshot)
        self.snapshot = min((job.snapshot for job in self.jobs if job.snapshot is not None), key=_far)
        return self.snapshot

    def wait(self, timeout: float | None = None) -> JobArray:
        """Wait until all jobs are over; raise `TimeoutError` if that takes more than `timeout` seconds."""
        wait_for(self.jobs, timeout)
        self.refresh()
        return self

    def wait_unless(self, left: threading.Event) -> None:
        """Wait until all are over, or `left` is set."""
        waiting = JobEnds(self.jobs)
        try:
            while not waiting.is_over and not left.is_set():
                waiting.step()
        finally:
            waiting.close()
        self.refresh()

    def table(self) -> SweepTable:
        """Return the result of each job: values of a sweep, state, time, exit code, and last line or
        variables.
        """
        self.refresh()
        return SweepTable(self.jobs)

    def result(self) -> object:
        """Return the variables that its jobs returned (`--out`): a list in their order; for several names, a
        dict.

        A job that did not complete, or did not set a variable, has None in its place.
        """
        table = self.table()
        waited = [job.id for job in self.jobs if not job.info.state.is_final]
        if waited:
            raise Conflict(
                "not-over",
                f"{len(waited)} jobs of {self.id} are not over, and variables come with the end: wait() "
                f"waits for that.",
            )
        found = table.variables()
        if not found:
            raise InvalidRequest(
                "no-outputs",
                f"Jobs of {self.id} were not asked for variables: name them with --out (outputs=[…] in "
                f"Python).",
            )
        return found if len(found) > 1 else next(iter(found.values()))

    def tail(self, lines: int = 10, rank: int = 0) -> str:
        """Return the last lines of each job, one after the other."""
        return "".join(job.tail(lines, rank) for job in self.jobs)

    def output(self, rank: int | None = None) -> str:
        """Return the output of the jobs so far, one after the other."""
        return "".join(job.output(rank) for job in self.jobs)

    def output_bytes(self, rank: int = 0, offset: int = 0) -> bytes:  # noqa: ARG002 - as of one job
        """Refuse: an offset belongs to one job."""
        raise InvalidRequest("array", f"{self.id} is an array: take the output of one of its `jobs`.")

    def follow(self, offsets: object = None, *, rank: int | None = None) -> Follow:  # noqa: ARG002 - as of one job
        """Refuse: one stream shows one job."""
        raise InvalidRequest("array", f"{self.id} is an array: follow one of its `jobs`.")


def _far(info: models.Job) -> tuple[int, int]:
    if info.state in ORDER:
        return (ORDER.index(info.state), 0)
    return (len(ORDER), int(info.state is JobState.COMPLETED))


def flat(jobs: Iterable[Job]) -> Iterator[Job]:
    """Return jobs one by one, all of each array."""
    for job in jobs:
        if not isinstance(job, Job):
            raise InvalidRequest(
                "no-jobs",
                f"{type(job).__name__!r} is no job: give jobs as `--background --as job` makes them.",
            )
        if isinstance(job, JobArray):
            yield from job.jobs
        else:
            yield job
