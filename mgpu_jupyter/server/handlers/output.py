"""Streams over plain HTTP: output of one job, as bytes of one rank or frames of all, once or as they come;
the end of many jobs.

Nothing is read before the reader took what came before, so a slow one costs one chunk. One that takes nothing
for `follower_timeout` is cut off and may continue from its offset.
"""

from __future__ import annotations

import asyncio

import msgspec
from tornado.http1connection import HTTP1Connection
from tornado.iostream import StreamClosedError

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import frames, models, requests
from mgpu_jupyter.api.route import NDJSON
from mgpu_jupyter.master.ports import LogKey, SavedState
from mgpu_jupyter.server.follow import CHUNK_BYTES, Follower, Position, missing_ranks, parse_offsets
from mgpu_jupyter.server.foreign import BYTES
from mgpu_jupyter.server.handlers.base import Guarded
from mgpu_jupyter.server.handlers.reading import job_id_of
from mgpu_jupyter.server.limits import Cost
from mgpu_jupyter.server.service import no_such_job
from mgpu_jupyter.server.wait_stream import WaitStream
from mgpu_jupyter.store.logs import log_size, read_runs

DEFAULT_LIMIT = 1024 * 1024
PAGE = 1_000
"""So many jobs are looked up at once."""


class Streaming(Guarded):
    """Sends an answer piece by piece, at its reader's speed."""

    cost = Cost.STREAM

    def send_small_ones_at_once(self) -> None:
        """Send each frame without waiting for the acknowledgement of the one before."""
        if isinstance(self.request.connection, HTTP1Connection):
            self.request.connection.stream.set_nodelay(True)

    async def send_piece(self, data: bytes) -> bool:
        """Send a chunk and wait until it was taken; False when the reader is gone or takes nothing."""
        self.write(data)
        try:
            await asyncio.wait_for(self.flush(), self.service.settings.follower_timeout_s)
        except StreamClosedError:
            return False
        except TimeoutError:
            self.log.info(
                "mgpu: a reader took nothing for %g s and was cut off",
                self.service.settings.follower_timeout_s,
            )
            if isinstance(self.request.connection, HTTP1Connection):
                self.request.connection.stream.close()
            return False
        return True


class WaitHandler(Streaming):
    """The end of many jobs."""

    path = "jobs/wait"

    async def post(self) -> None:
        """Send the progress of these jobs until all are over."""
        wanted = tuple(dict.fromkeys(self.read_body(requests.WaitRequest).job_ids))
        stream = WaitStream()
        with self.service.hub.listen(stream.hear):
            known: dict[JobId, SavedState] = {}
            for first in range(0, len(wanted), PAGE):  # others look at the store between two pages
                page = wanted[first : first + PAGE]
                known |= await self.service.look(lambda reader, page=page: reader.states_of(page))  # type: ignore[misc]
            if unknown := [job_id for job_id in wanted if job_id not in known]:
                raise no_such_job(unknown[0])
            stream.begin({job_id: known[job_id] for job_id in wanted})
            self.set_header("Content-Type", NDJSON)
            self.set_header("X-Accel-Buffering", "no")
            self.send_small_ones_at_once()
            async for frame in stream.frames():
                if not await self.send_piece(msgspec.json.encode(frame) + b"\n"):
                    return


class OutputHandler(Streaming):
    """The output of a job."""

    path = "jobs/{job_id}/output"

    async def get(self, job_id: str) -> None:
        """Send bytes or frames; with `follow` until the job is over."""
        job = self.service.saved_job(job_id_of(job_id)).job
        self.person.check_may_touch(job.user, job.id)
        rank = (
            self.number("rank", 0, 0, models.MAX_RANK)
            if self.get_query_argument("rank", None) is not None
            else -1
        )
        follow = self.query("follow", bool, default=False)
        offset = self.number("offset", 0, 0, models.MAX_OFFSET)
        limit = self.number("limit", DEFAULT_LIMIT, 1, models.MAX_OUTPUT_LIMIT)
        tail = self.number("tail", 0, 0, models.MAX_OFFSET)
        wants_frames = NDJSON in self.request.headers.get("Accept", "")
        offsets = parse_offsets(self.query("offsets", str, "")) or ({max(rank, 0): offset} if offset else {})
        only = rank if rank >= 0 else (None if wants_frames else 0)
        position = Position(self.number("attempt", job.attempt, 0, models.MAX_OFFSET), offsets)
        follower = Follower(self.service, job.id, rank=only, position=position, reader=self.person.name)
        self.set_header("X-Accel-Buffering", "no")
        if not follow and not wants_frames:
            await self._send_bytes(job.id, max(rank, 0), offset, limit, tail)
            return
        self.set_saved(NDJSON if wants_frames else BYTES)
        if follow:
            await self._send_followed(follower, wants_frames=wants_frames)
        else:
            for frame in follower.available():
                if not await self.send_piece(msgspec.json.encode(frame) + b"\n"):
                    return
            self.finish()

    async def _send_bytes(self, job_id: JobId, rank: int, offset: int, limit: int, tail: int) -> None:
        job = self.service.saved_job(job_id).job
        root, key = self.service.log_root, LogKey(job.id, job.attempt, rank)
        complete = job.state.is_final and rank not in missing_ranks(root, job)
        size = log_size(root, key)
        if tail:
            offset = max(offset, size - tail)
        end = max(offset, min(size, offset + limit))
        self.set_saved(BYTES)
        self.set_header("Content-Length", str(end - offset))
        self.set_header("X-Mgpu-Next-Offset", str(end))
        self.set_header("X-Mgpu-Complete", "true" if complete and end >= size else "false")
        while offset < end:
            data = b"".join(run.data for run in read_runs(root, key, offset, min(CHUNK_BYTES, end - offset)))
            if not data or not await self.send_piece(data):
                return
            offset += len(data)
        self.finish()

    async def _send_followed(self, follower: Follower, *, wants_frames: bool) -> None:
        self.send_small_ones_at_once()
        async for frame in follower.frames():
            if wants_frames:
                taken = await self.send_piece(msgspec.json.encode(frame) + b"\n")
            elif isinstance(frame, frames.OutputFrame):
                taken = await self.send_piece(frame.data)
            else:
                continue
            if not taken:
                return
