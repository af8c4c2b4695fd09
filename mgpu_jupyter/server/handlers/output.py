"""Output of a job over plain HTTP: bytes of one rank, or frames of all, once or as they come."""

from __future__ import annotations

import msgspec
from tornado.http1connection import HTTP1Connection
from tornado.iostream import StreamClosedError

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models
from mgpu_jupyter.api.routes import NDJSON
from mgpu_jupyter.master.ports import LogKey
from mgpu_jupyter.server.follow import Follower, Position, missing_ranks, parse_offsets
from mgpu_jupyter.server.handlers.base import Guarded
from mgpu_jupyter.store.logs import read_runs

DEFAULT_LIMIT = 1024 * 1024
MAX_LIMIT = 64 * 1024 * 1024


class OutputHandler(Guarded):
    """What a job wrote."""

    path = "jobs/{job_id}/output"

    async def get(self, job_id: str) -> None:
        """Send bytes or frames; with `follow` until the job is over."""
        job = self.service.saved_job(JobId(job_id)).job
        self.person.check_may_touch(job.user, job.id)
        rank = self.query("rank", int, -1)
        follow = self.query("follow", bool, default=False)
        offset = self.query("offset", int, 0)
        if offset < 0 or rank < -1:
            raise InvalidRequest("invalid", "rank and offset must not be negative.")
        wants_frames = NDJSON in self.request.headers.get("Accept", "")
        offsets = parse_offsets(self.query("offsets", str, "")) or ({max(rank, 0): offset} if offset else {})
        only = rank if rank >= 0 else (None if wants_frames else 0)
        position = Position(self.query("attempt", int, job.attempt), offsets)
        follower = Follower(self.service, job.id, rank=only, position=position)
        self.set_header("X-Accel-Buffering", "no")
        if not follow and not wants_frames:
            self._send_bytes(job.id, max(rank, 0), offset)
            return
        self.set_header("Content-Type", NDJSON if wants_frames else "application/octet-stream")
        if follow:
            await self._send_followed(follower, wants_frames=wants_frames)
        else:
            self.finish(b"".join(msgspec.json.encode(frame) + b"\n" for frame in follower.available()))

    def _send_bytes(self, job_id: JobId, rank: int, offset: int) -> None:
        limit = self.query("limit", int, DEFAULT_LIMIT)
        if not 1 <= limit <= MAX_LIMIT:
            raise InvalidRequest("invalid", f"limit must be between 1 and {MAX_LIMIT}.")
        job = self.service.saved_job(job_id).job
        runs = read_runs(self.service.log_root, LogKey(job.id, job.attempt, rank), offset, limit)
        data = b"".join(run.data for run in runs)
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("X-Mgpu-Next-Offset", str(offset + len(data)))
        complete = job.state.is_final and rank not in missing_ranks(self.service.log_root, job)
        self.set_header("X-Mgpu-Complete", "true" if complete and len(data) < limit else "false")
        self.finish(data)

    async def _send_followed(self, follower: Follower, *, wants_frames: bool) -> None:
        # Small frames must not wait for the acknowledgement of the one before.
        if isinstance(self.request.connection, HTTP1Connection):
            self.request.connection.stream.set_nodelay(True)
        try:
            async for frame in follower.frames():
                if wants_frames:
                    self.write(msgspec.json.encode(frame) + b"\n")
                elif isinstance(frame, models.OutputFrame):
                    self.write(frame.data)
                else:
                    continue
                await self.flush()
        except StreamClosedError:
            return
