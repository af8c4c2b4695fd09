"""Which jobs that end with their client are attended, and since when not. Cancels through the master."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId

LOOK_S = 1.0


class Presence:
    """Counts connections of jobs, and ends those jobs that end with their client after the grace."""

    def __init__(
        self,
        grace_s: float,
        bound_jobs: Callable[[], Awaitable[list[JobId]]],
        end: Callable[[JobId], Awaitable[object]],
        clock: Callable[[], float],
    ) -> None:
        self._grace_s = grace_s
        self._bound_jobs = bound_jobs
        self._end = end
        self._clock = clock
        self._counts: dict[JobId, int] = {}
        self._alone_since: dict[JobId, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to check."""
        self._task = asyncio.get_running_loop().create_task(self._look())

    def stop(self) -> None:
        """Stop checking."""
        if self._task is not None:
            self._task.cancel()

    @contextmanager
    def attached(self, job_id: JobId) -> Iterator[None]:
        """Count one connection."""
        self._counts[job_id] = self._counts.get(job_id, 0) + 1
        try:
            yield
        finally:
            self._counts[job_id] -= 1
            if not self._counts[job_id]:
                del self._counts[job_id]

    async def look(self) -> None:
        """Cancel the jobs that were unattended for too long."""
        now = self._clock()
        alone = {job_id for job_id in await self._bound_jobs() if job_id not in self._counts}
        self._alone_since = {job_id: self._alone_since.get(job_id, now) for job_id in alone}
        for job_id, since in self._alone_since.items():
            if now - since >= self._grace_s:
                await self._end(job_id)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(MgpuError):  # a failed turn: the next check tries again
                await self.look()
