"""WebSockets: one job live, and the changes of everything. Slow readers get fewer, newer states, never a growing queue.

A reader that takes nothing for `follower_timeout` is cut off and may come back with its offsets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketHandler

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models
from mgpu_jupyter.master.views import node_view
from mgpu_jupyter.server.errors import answer_for
from mgpu_jupyter.server.follow import PING_S, Follower, Position, parse_offsets
from mgpu_jupyter.server.handlers.base import Guarded, job_id_of
from mgpu_jupyter.server.relay import Refused, open_socket, pump
from mgpu_jupyter.server.upstream import Upstream

EVENT_PAGE = 500
EVENT_PAUSE_S = 0.1  # changes that come closer together are sent as one
SWITCHING_PROTOCOLS = 101
CLOSE_INTERNAL = 1011
CLOSE_NORMAL = 1000
CLOSE_POLICY = 1008


class Socket(WebSocketMixin, WebSocketHandler, Guarded):
    """Sends frames from one task that ends with the connection."""

    _task: asyncio.Task[None] | None = None
    _upstream: WebSocketClientConnection | None = None

    async def relay(self, upstream: Upstream) -> None:
        """Open the master's own socket before this one, so that its refusal is ours."""
        try:
            self._upstream = await open_socket(self.request.uri, upstream)
        except Refused as refused:
            self.set_status(refused.status)
            self.set_header("Content-Type", "application/json")
            self.finish(refused.body)

    def open(self, *args: str, **kwargs: str) -> None:
        """Begin to send."""
        super().open(*args, **kwargs)
        self.extension.streams.add(self)
        sending = self._send_all() if self._upstream is None else pump(self._upstream, self)
        self._task = asyncio.get_running_loop().create_task(sending)

    def on_finish(self) -> None:
        """Let go of the master's socket where this one did not come about."""
        if self._upstream is not None and self.get_status() != SWITCHING_PROTOCOLS:
            self._upstream.close()
        super().on_finish()

    def end_stream(self) -> None:
        """Close the socket of a reader who was shut out."""
        self.close(CLOSE_POLICY, "You were logged out by an administrator.")

    def on_close(self) -> None:
        """Stop sending."""
        if self._task is not None:
            self._task.cancel()
        if self._upstream is not None:
            self._upstream.close()

    async def on_message(self, message: str | bytes) -> None:
        """Pass it on; a master expects nothing from the other side yet."""
        if self._upstream is not None:
            with contextlib.suppress(WebSocketClosedError):
                await self._upstream.write_message(message, binary=isinstance(message, bytes))

    def skip_check_origin(self) -> bool:
        """Refuse pages of other sites, also those that bring a token."""
        return False

    def get_compression_options(self) -> None:
        """Do without compression: it costs more memory per reader than it saves."""

    def frames(self) -> AsyncIterator[models.JobStreamFrame | models.EventFrame]:
        """Yield what is to be sent."""
        raise AssertionError(f"{type(self).__name__} sends nothing")

    async def _send_all(self) -> None:
        timeout_s = self.service.settings.follower_timeout_s
        try:
            async for frame in self.frames():
                await asyncio.wait_for(self.write_message(msgspec.json.encode(frame).decode()), timeout_s)
            self.close(CLOSE_NORMAL)
        except WebSocketClosedError:
            return
        except TimeoutError:
            self.log.info("mgpu: a reader of %s took nothing for %g s and was cut off", type(self).__name__, timeout_s)
            if self.ws_connection is not None and self.ws_connection.stream is not None:
                self.ws_connection.stream.close()
        except MgpuError as error:
            _, body = answer_for(error, 500)
            self.close(CLOSE_INTERNAL, f"{body.code}: {body.message}"[:120])


class JobStreamHandler(Socket):
    """Output and state of one job."""

    path = "jobs/{job_id}/stream"

    async def get(self, job_id: str) -> None:
        """Refuse before the upgrade what may not be read."""
        if self._upstream is None:
            self.person.check_may_touch(self.service.saved_job(job_id_of(job_id)).job.user, job_id)
            self._position()
        await super().get(job_id)

    def _position(self) -> tuple[int | None, dict[int, int], int]:
        rank = self.number("rank", 0, 0, models.MAX_RANK) if self.get_query_argument("rank", None) is not None else None
        return rank, parse_offsets(self.query("offsets", str, "")), self.number("attempt", -1, -1, models.MAX_OFFSET)

    async def frames(self) -> AsyncIterator[models.JobStreamFrame | models.EventFrame]:
        """Follow the job."""
        job = self.service.saved_job(JobId(self.path_args[0])).job
        rank, offsets, attempt = self._position()
        position = Position(job.attempt if attempt < 0 else attempt, offsets)
        follower = Follower(self.service, job.id, rank=rank, position=position)
        async for frame in follower.frames():
            yield frame


class EventsHandler(Socket):
    """Changes of jobs and nodes, in the order of their sequence numbers."""

    path = "events"

    async def frames(self) -> AsyncIterator[models.JobStreamFrame | models.EventFrame]:
        """Send what changed after `since`, then go on live."""
        seq = self.number("since", -1, -1, models.MAX_OFFSET)
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
