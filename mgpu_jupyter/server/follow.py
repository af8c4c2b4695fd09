"""Output and state of one job as frames, from any offset to the end. Reads files and rows; sends nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import JobId
from mgpu_agent.protocol.model import STDOUT
from mgpu_jupyter.api import models
from mgpu_jupyter.api.frames import EndFrame, GapFrame, JobFrame, JobStreamFrame, OutputFrame, PingFrame
from mgpu_jupyter.master.ports import LogKey, SavedJob
from mgpu_jupyter.model.display import display_key
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.server.service import Service
from mgpu_jupyter.store.logs import is_cut, log_size, read_runs

_NUMBER = re.compile("[0-9]{1,18}")
CHUNK_BYTES = 256 * 1024
PING_S = 10.0
WHY_S = 2.0  # how often a waiting job's place and reason are looked up again
OUTPUT_PATIENCE_S = 10.0  # how long the end waits for output of a node that is away


class Position(msgspec.Struct):
    """The position of a follower: by rank, in one attempt."""

    attempt: int
    offsets: dict[int, int]


def parse_offsets(text: str) -> dict[int, int]:
    """Read `rank:offset,rank:offset`."""
    offsets = {}
    for part in filter(None, text.split(",")):
        rank, _, offset = part.partition(":")
        if not (_NUMBER.fullmatch(rank) and _NUMBER.fullmatch(offset)):
            raise InvalidRequest("bad-offsets", f"offsets must look like 0:1024,1:0, not {text[:50]!r}.")
        offsets[int(rank)] = int(offset)
    return offsets


class Follower:
    """Follows one job for one reader."""

    def __init__(
        self, service: Service, job_id: JobId, *, rank: int | None, position: Position, reader: str = ""
    ) -> None:
        """Only its owner (if `reader` is that) gets the key of what it displays: others see plain text."""
        self._service = service
        self._root = service.log_root
        self._job_id = job_id
        self._rank = rank
        self._at = position
        self._reader = reader
        self._told: models.Job | None = None

    async def frames(self) -> AsyncIterator[JobStreamFrame]:
        """Yield frames until the job is over and its output complete."""
        with self._service.hub.watch(self._job_id) as watch:
            patience_s = OUTPUT_PATIENCE_S
            while True:
                saved = self._service.saved_job(self._job_id)
                frame = await self._state_frame(saved)
                if frame is not None:
                    yield frame
                grew = False
                for output in self._read(saved.job):
                    grew = True
                    yield output
                if grew:
                    # Other requests of this server are served between chunks.
                    await asyncio.sleep(0)
                    continue
                if saved.job.state.is_final:
                    missing = self._missing(saved.job)
                    if missing and patience_s <= 0:
                        for rank in missing:
                            yield GapFrame(
                                rank=rank,
                                message=f"The rest of rank {rank}'s output is on a node that is away.",
                            )
                        missing = []
                    if not missing:
                        yield EndFrame(job=await self._service.job(self._job_id, with_lines=True))
                        return
                wait_s = WHY_S if saved.job.state is JobState.QUEUED or saved.job.state.is_final else PING_S
                if not await watch.wait(wait_s):
                    if saved.job.state.is_final and self._is_away(saved.job):
                        patience_s -= wait_s
                    yield PingFrame()

    def available(self) -> Iterator[OutputFrame]:
        """Yield what is there now, one chunk for each rank."""
        return self._read(self._service.saved_job(self._job_id).job)

    async def _state_frame(self, saved: SavedJob) -> JobFrame | None:
        if self._told is not None and saved.seq == self._told.seq and saved.job.state is not JobState.QUEUED:
            return None
        job = await self._service.job(self._job_id, with_lines=True)
        if self._told == job:
            return None
        self._told = job
        key = display_key(saved.job.spec) if saved.job.user == self._reader else ""
        return JobFrame(seq=job.seq, job=job, display_key=key)

    def _read(self, job: Job) -> Iterator[OutputFrame]:
        """Yield the next chunk of every rank, each read only when the one before was taken."""
        if job.attempt != self._at.attempt:
            self._at = Position(job.attempt, {})
        for rank in self._ranks(job):
            offset = self._at.offsets.get(rank, 0)
            for run in read_runs(self._root, LogKey(job.id, job.attempt, rank), offset, CHUNK_BYTES):
                stream: Literal["stdout", "stderr"] = "stdout" if run.stream == STDOUT else "stderr"
                self._at.offsets[rank] = run.offset + len(run.data)
                yield OutputFrame(
                    rank=rank, stream=stream, offset=run.offset, data=run.data, attempt=job.attempt
                )

    def _ranks(self, job: Job) -> list[int]:
        return [rank for one in job.placements for rank in one.ranks if self._rank in (None, rank)]

    def _missing(self, job: Job) -> list[int]:
        return [rank for rank in missing_ranks(self._root, job) if self._rank in (None, rank)]

    def _is_away(self, job: Job) -> bool:
        nodes = [self._service.master.node(placement.node_id) for placement in job.placements]
        return any(node is None or node.state != NodeState.ONLINE for node in nodes)


def missing_ranks(root: Path, job: Job) -> list[int]:
    """Return the ranks that have ended and whose output is incomplete here."""
    return [
        task.rank
        for task in job.tasks
        if task.ended_at is not None
        and not task.lost
        and log_size(root, LogKey(job.id, job.attempt, task.rank)) < task.stdout_bytes + task.stderr_bytes
        and not is_cut(root, LogKey(job.id, job.attempt, task.rank))
    ]
