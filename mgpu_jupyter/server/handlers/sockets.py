"""WebSockets: one job live, and the changes of everything. Slow readers get fewer, newer states, never a growing queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models
from mgpu_jupyter.master.views import node_view
from mgpu_jupyter.server.errors import answer_for
from mgpu_jupyter.server.follow import PING_S, Follower, Position, parse_offsets
from mgpu_jupyter.server.handlers.base import Guarded

EVENT_PAGE = 500
EVENT_PAUSE_S = 0.1  # changes that come closer together are sent as one
CLOSE_INTERNAL = 1011
CLOSE_NORMAL = 1000


class Socket(WebSocketMixin, WebSocketHandler, Guarded):
    """Sends frames from one task that ends with the connection."""

    _task: asyncio.Task[None] | None = None

    def open(self, *args: str, **kwargs: str) -> None:
        """Begin to send."""
        super().open(*args, **kwargs)
        self._task = asyncio.get_running_loop().create_task(self._send_all())

    def on_close(self) -> None:
        """Stop sending."""
        if self._task is not None:
            self._task.cancel()

    def on_message(self, message: str | bytes) -> None:
        """Nothing is expected from the other side yet."""

    def skip_check_origin(self) -> bool:
        """Refuse pages of other sites, also those that bring a token."""
        return False

    def get_compression_options(self) -> None:
        """Do without compression: it costs more memory per reader than it saves."""

    def frames(self) -> AsyncIterator[models.JobStreamFrame | models.EventFrame]:
        """Yield what is to be sent."""
        raise AssertionError(f"{type(self).__name__} sends nothing")

    async def _send_all(self) -> None:
        try:
            async for frame in self.frames():
                await self.write_message(msgspec.json.encode(frame).decode())
            self.close(CLOSE_NORMAL)
        except WebSocketClosedError:
            return
        except MgpuError as error:
            _, body = answer_for(error, 500)
            self.close(CLOSE_INTERNAL, f"{body.code}: {body.message}"[:120])


class JobStreamHandler(Socket):
    """Output and state of one job."""

    path = "jobs/{job_id}/stream"

    async def get(self, job_id: str) -> None:
        """Refuse before the upgrade what may not be read."""
        self.person.check_may_touch(self.service.saved_job(JobId(job_id)).job.user, job_id)
        await super().get(job_id)

    async def frames(self) -> AsyncIterator[models.JobStreamFrame | models.EventFrame]:
        """Follow the job."""
        job = self.service.saved_job(JobId(self.path_args[0])).job
        rank = self.query("rank", int, -1)
        position = Position(self.query("attempt", int, job.attempt), parse_offsets(self.query("offsets", str, "")))
        follower = Follower(self.service, job.id, rank=None if rank < 0 else rank, position=position)
        async for frame in follower.frames():
            yield frame


class EventsHandler(Socket):
    """Changes of jobs and nodes, in the order of their sequence numbers."""

    path = "events"

    async def frames(self) -> AsyncIterator[models.JobStreamFrame | models.EventFrame]:
        """Send what changed after `since`, then go on live."""
        seq = self.query("since", int, -1)
        if seq < 0:
            seq = self.service.master.seq
        ready = False
        with self.service.hub.watch() as watch:
            while True:
                target = self.service.master.seq
                async for frame in self._changes(seq):
                    seq = max(seq, frame.seq)
                    yield frame
                if not ready:
                    ready = True
                    seq = max(seq, target)
                    yield models.ReadyFrame(seq=seq)
                if await watch.wait(PING_S):
                    await asyncio.sleep(EVENT_PAUSE_S)
                else:
                    yield models.PingFrame()

    async def _changes(self, seq: int) -> AsyncIterator[models.JobFrame | models.NodeFrame]:
        """Yield what changed, merged in the order of sequence numbers, so that any of them is a place to resume from."""
        nodes = sorted((node for node in self.service.master.nodes() if node.seq > seq), key=lambda node: node.seq)
        while page := await self.service.changed_since(seq, EVENT_PAGE):
            for job in page:
                while nodes and nodes[0].seq < job.seq:
                    node = nodes.pop(0)
                    yield models.NodeFrame(seq=node.seq, node=node_view(node))
                yield models.JobFrame(seq=job.seq, job=job)
            seq = page[-1].seq
        for node in nodes:
            yield models.NodeFrame(seq=node.seq, node=node_view(node))
