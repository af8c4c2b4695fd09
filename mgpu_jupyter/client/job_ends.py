"""Waits for many jobs over one stream, without a request for each and without polling. Prints nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import msgspec

from mgpu_jupyter.api import models
from mgpu_jupyter.api.frames import ProgressFrame, WaitFrame
from mgpu_jupyter.api.requests import WaitRequest
from mgpu_jupyter.api.route import NDJSON
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.follow import Pump
from mgpu_jupyter.client.frame_stream import FrameStream
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.transport import Request

KNOWN_FRAMES = frozenset(("progress", "ping"))
PACE_S = 0.1
_frames: msgspec.json.Decoder[WaitFrame] = msgspec.json.Decoder(WaitFrame)


class EndStream(FrameStream[WaitFrame]):
    """Iterates over the progress of jobs of one server until all are over, and updates the jobs."""

    def __init__(self, caller: Caller, jobs: Iterable[Job]) -> None:
        super().__init__(caller, _frames, KNOWN_FRAMES)
        self.waiting = self.running = 0
        self._left = {job.id: job for job in jobs}

    def _note(self, frame: WaitFrame) -> bool:
        if not isinstance(frame, ProgressFrame):
            return False
        self.waiting, self.running = frame.waiting, frame.running
        for one in frame.ended:
            if (job := self._left.pop(one.id, None)) is not None:
                job.ended = one
        return not self._left

    def _request(self) -> Request:
        body = msgspec.json.encode(WaitRequest(job_ids=tuple(self._left)))
        return Request(method="POST", path="jobs/wait", body=body, headers={"Accept": NDJSON})


class JobEnds:
    """The ends of several jobs as they come, over one stream for each of their servers."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = [job for job in dict.fromkeys(jobs) if not job.is_over]
        callers = dict.fromkeys(job.caller for job in self._jobs)
        self._streams = [
            EndStream(caller, [job for job in self._jobs if job.caller is caller]) for caller in callers
        ]
        self._pumps = [Pump(stream, PACE_S) for stream in self._streams]

    @property
    def is_over(self) -> bool:
        """Tell whether all have ended."""
        return not self._pumps

    @property
    def left(self) -> list[Job]:
        """Return the jobs that are not over."""
        return [job for job in self._jobs if not job.is_over]

    @property
    def counts(self) -> tuple[int, int]:
        """Return how many wait and how many run."""
        return sum(one.waiting for one in self._streams), sum(one.running for one in self._streams)

    def step(self) -> None:
        """Take what arrived; returns after a short while without news."""
        for pump in list(self._pumps):
            try:
                next(pump)
            except StopIteration:
                self._pumps.remove(pump)

    def close(self) -> None:
        """Stop waiting; the jobs go on."""
        for pump in self._pumps:
            pump.close()


def wait_for(jobs: Sequence[Job], timeout: float | None = None) -> None:
    """Wait until all jobs are over; raise `TimeoutError` if that takes more than `timeout` seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    waiting = JobEnds(jobs)
    try:
        while not waiting.is_over:
            waiting.step()
            check_time(waiting, deadline, timeout, len(jobs))
    finally:
        waiting.close()


def check_time(waiting: JobEnds, deadline: float | None, timeout: float | None, total: int) -> None:
    """Raise `TimeoutError` when the time is over and some jobs are not."""
    if deadline is not None and not waiting.is_over and time.monotonic() >= deadline:
        raise TimeoutError(f"{len(waiting.left)} of {total} jobs are not over after {timeout} s; they go on.")


def look_up(jobs: Iterable[Job]) -> None:
    """Fetch the present state of each job that is not known to be over, many in one request."""
    wanted = [job for job in jobs if job.snapshot is None or not job.snapshot.state.is_final]
    for caller in dict.fromkeys(job.caller for job in wanted):
        of_caller = [job for job in wanted if job.caller is caller]
        for first in range(0, len(of_caller), models.MAX_IDS):
            page = of_caller[first : first + models.MAX_IDS]
            query = {"ids": ",".join(job.id for job in page), "limit": str(models.MAX_IDS)}
            found = caller.call(Request(path="jobs", query=query), models.JobList)
            infos = {info.id: info for info in found.jobs}
            for job in page:
                job.snapshot = infos.get(job.id, job.snapshot)
