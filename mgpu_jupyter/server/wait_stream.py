"""The end of many jobs as frames for one reader, in one stream. Reads rows once, then listens to changes;
sends nothing.

Changes that come closer together than `GATHER_S` are one frame, so that a fast cluster costs few of them. The
first of them and the end of the last job are not delayed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api.frames import EndedJob, PingFrame, ProgressFrame, WaitFrame
from mgpu_jupyter.master.ports import SavedJob, SavedState
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.server.follow import PING_S
from mgpu_jupyter.server.hub import Watch

GATHER_S = 0.02


class WaitStream:
    """Waits for the end of several jobs for one reader."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._over = Watch()
        """Raised when the last of them ended."""
        self._open: dict[JobId, JobState] = {}
        """Jobs that are not over, by their last known state."""
        self._waiting = 0
        """How many of them wait."""
        self._ended: dict[JobId, EndedJob] = {}
        """Jobs that ended since the last frame."""
        self._heard: dict[JobId, SavedJob] | None = {}
        """Changes before the first look at the store was over; None from then on."""

    def hear(self, changed: Sequence[SavedJob]) -> None:
        """Take changes of jobs."""
        for saved in changed:
            if self._heard is not None:
                self._heard[saved.job.id] = saved
            else:
                self._take(saved.job.id, saved.job.state, saved.job.exit_code)

    def begin(self, states: Mapping[JobId, SavedState]) -> None:
        """Take the states in the store; changes that came meanwhile are newer."""
        self._open = dict.fromkeys(states, JobState.QUEUED)
        self._waiting = len(self._open)
        for job_id, one in states.items():
            self._take(job_id, one.state, one.exit_code)
        heard, self._heard = self._heard or {}, None
        self.hear(list(heard.values()))

    def _take(self, job_id: JobId, state: JobState, exit_code: int | None) -> None:
        before = self._open.get(job_id)
        if before is None or before is state:
            return
        self._waiting += (state is JobState.QUEUED) - (before is JobState.QUEUED)
        if state.is_final:
            del self._open[job_id]
            if not self._open:
                self._over.raise_flag()
            self._ended[job_id] = EndedJob(job_id, state, exit_code)
        else:
            self._open[job_id] = state
        self._watch.raise_flag()

    async def frames(self) -> AsyncIterator[WaitFrame]:
        """Yield the progress of the jobs whenever it changes, until all are over."""
        told: tuple[int, int] | None = None
        while True:
            ended, self._ended = self._ended, {}
            counts = (self._waiting, len(self._open) - self._waiting)
            if ended or counts != told:
                told = counts
                yield ProgressFrame(waiting=counts[0], running=counts[1], ended=tuple(ended.values()))
            if not self._open and not self._ended:
                return
            await self._over.wait(GATHER_S)
            if not await self._watch.wait(PING_S):
                yield PingFrame()
