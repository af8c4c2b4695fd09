"""WebSockets: one job live, and all changes. Slow readers get fewer, newer states, never a growing queue.

A reader that takes nothing for `follower_timeout` is cut off and may come back with its offsets.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from jupyter_core.utils import ensure_async
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketHandler

from mgpu_agent.protocol.errors import Forbidden, InvalidRequest, MgpuError, Unavailable
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models
from mgpu_jupyter.api.frames import WRITER_PATTERN, ClientFrame, EventFrame, JobFrame, JobSocketFrame
from mgpu_jupyter.server.errors import answer_for
from mgpu_jupyter.server.events import EventStream, WantedEvents
from mgpu_jupyter.server.follow import Follower, Position, parse_offsets
from mgpu_jupyter.server.foreign import JSON
from mgpu_jupyter.server.handlers.base import RESOURCE, Guarded
from mgpu_jupyter.server.handlers.reading import job_id_of
from mgpu_jupyter.server.job_stdin import JobStdin
from mgpu_jupyter.server.limits import Cost
from mgpu_jupyter.server.relay import RelayRefused, open_socket, pump
from mgpu_jupyter.server.upstream import Upstream

SWITCHING_PROTOCOLS = 101
FAREWELL_S = 0.5
"""How long a reader who lost access may take to close its side."""
CLOSE_INTERNAL = 1011
CLOSE_NORMAL = 1000
CLOSE_POLICY = 1008
_WRITER = re.compile(WRITER_PATTERN)


class Socket(WebSocketMixin, WebSocketHandler, Guarded):
    """Sends frames from one task that ends with the connection."""

    cost = Cost.STREAM
    _task: asyncio.Task[None] | None = None
    _upstream: WebSocketClientConnection | None = None

    async def relay(self, upstream: Upstream) -> None:
        """Open the master's own socket before this one, so that its refusal is returned."""
        try:
            self._upstream = await open_socket(self.request.uri, upstream)
        except RelayRefused as refused:
            self.set_status(refused.status)
            self.set_header("Content-Type", JSON)
            if refused.retry_after:
                self.set_header("Retry-After", refused.retry_after)
            self.finish(msgspec.json.encode(refused.body))

    def open(self, *args: str, **kwargs: str) -> None:
        """Begin to send."""
        super().open(*args, **kwargs)
        sending = self._send_all() if self._upstream is None else pump(self._upstream, self)
        self._task = asyncio.get_running_loop().create_task(sending)

    def on_finish(self) -> None:
        """Close the master's socket where this one did not come about."""
        if self._upstream is not None and self.get_status() != SWITCHING_PROTOCOLS:
            self._upstream.close()
        super().on_finish()

    def end_stream(self, why: str) -> None:
        """Close the socket of a reader who lost access: nothing more is sent or accepted."""
        self.is_ended = True
        connection: Any = self.ws_connection
        if connection is None:  # not open yet
            super().end_stream(why)
            return
        self.close(CLOSE_POLICY, why)
        self._stop()
        if connection.stream is not None:
            asyncio.get_running_loop().call_later(FAREWELL_S, connection.stream.close)

    def on_close(self) -> None:
        """Stop sending."""
        self._stop()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._upstream is not None:
            self._upstream.close()

    async def on_message(self, message: str | bytes) -> None:
        """Pass it on to a master elsewhere, or handle it."""
        if self.is_ended:
            return
        if self._upstream is not None:
            with contextlib.suppress(WebSocketClosedError):
                await self._upstream.write_message(message, binary=isinstance(message, bytes))
        else:
            await self.take(message)

    async def take(self, message: str | bytes) -> None:
        """Handle a message; most sockets expect none."""

    def skip_check_origin(self) -> bool:
        """Refuse pages of other sites, also those that have a token."""
        return False

    def get_compression_options(self) -> None:
        """Disable compression: it costs more memory for each reader than it saves."""

    def frames(self) -> AsyncIterator[JobSocketFrame | EventFrame]:
        """Yield the frames to send."""
        raise AssertionError(f"{type(self).__name__} sends nothing")

    async def _send_all(self) -> None:
        await self._send_frames(self.frames())
        self.close(CLOSE_NORMAL)

    async def _send_frames(self, frames: AsyncIterator[JobSocketFrame | EventFrame]) -> None:
        timeout_s = self.service.settings.follower_timeout_s
        try:
            async for frame in frames:
                await asyncio.wait_for(
                    self.write_message(msgspec.json.encode(self.seen(frame)).decode()), timeout_s
                )
        except WebSocketClosedError:
            return
        except TimeoutError:
            self.log.info(
                "mgpu: a reader of %s took nothing for %g s and was cut off", type(self).__name__, timeout_s
            )
            if self.ws_connection is not None and self.ws_connection.stream is not None:
                self.ws_connection.stream.close()
        except MgpuError as error:
            self.refuse(error, CLOSE_INTERNAL)

    def refuse(self, error: MgpuError, code: int) -> None:
        """Close with a reason."""
        _, body = answer_for(error, 500)
        self.close(code, f"{body.code}: {body.message}".encode()[:120].decode(errors="ignore"))


class JobStreamHandler(Socket):
    """Output and state of one job; with `input`, also its stdin."""

    path = "jobs/{job_id}/stream"
    _typist: JobStdin | None = None
    _acks: asyncio.Task[None] | None = None

    async def get(self, job_id: str) -> None:
        """Refuse before the upgrade what may not be read."""
        if self._upstream is None:
            self.person.check_may_touch(self.service.saved_job(job_id_of(job_id)).job.user, job_id)
            self._position()
            await self._let_type(JobId(job_id))
        await super().get(job_id)

    async def _let_type(self, job_id: JobId) -> None:
        writer = self.query("input", str, "")
        if not writer:
            return
        if not _WRITER.fullmatch(writer):
            raise InvalidRequest(
                "invalid",
                "The parameter input is 8 to 40 letters and digits, which you make up: see openapi.json.",
            )
        if not await ensure_async(self.authorizer.is_authorized(self, self.current_user, "write", RESOURCE)):
            raise Forbidden(
                "forbidden", "The server's authorizer does not let you write here: ask an administrator."
            )
        self._typist = JobStdin(self.service, job_id, writer)

    async def _send_all(self) -> None:
        if self._typist is None:
            await super()._send_all()
            return
        with self._typist.attached():
            self._acks = asyncio.get_running_loop().create_task(self._send_frames(self._typist.acks()))
            try:
                await super()._send_all()
            finally:
                self._acks.cancel()

    async def take(self, message: str | bytes) -> None:
        """Pass on what was typed."""
        if self._typist is None:
            return
        try:
            frame = msgspec.json.decode(message, type=ClientFrame)
            await self._typist.take(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.refuse(InvalidRequest("bad-frame", f"A frame could not be read ({error})."), CLOSE_POLICY)
        except Unavailable:
            return  # its sender sees that it was not read, and sends it again
        except MgpuError as error:
            self.refuse(error, CLOSE_POLICY)

    def _position(self) -> tuple[int | None, dict[int, int], int]:
        rank = (
            self.number("rank", 0, 0, models.MAX_RANK)
            if self.get_query_argument("rank", None) is not None
            else None
        )
        return (
            rank,
            parse_offsets(self.query("offsets", str, "")),
            self.number("attempt", -1, -1, models.MAX_OFFSET),
        )

    async def frames(self) -> AsyncIterator[JobSocketFrame | EventFrame]:
        """Follow the job."""
        job = self.service.saved_job(JobId(self.path_args[0])).job
        rank, offsets, attempt = self._position()
        position = Position(job.attempt if attempt < 0 else attempt, offsets)
        follower = Follower(self.service, job.id, rank=rank, position=position, reader=self.person.name)
        async for frame in follower.frames():
            if self._typist is not None and isinstance(frame, JobFrame):
                await self._typist.ask(self.service.saved_job(job.id).job)
            yield frame


class EventsHandler(Socket):
    """Changes of jobs and nodes, in the order of their sequence numbers."""

    path = "events"

    async def get(self) -> None:
        """Refuse before the upgrade what cannot be read."""
        if self._upstream is None:
            self._wanted()
        await super().get()

    def _wanted(self) -> WantedEvents:
        return WantedEvents(
            since=self.number("since", -1, -1, models.MAX_OFFSET),
            samples=self.query("samples", bool, False),
            queue=self.number("queue", 0, 0, models.MAX_OFFSET),
        )

    def frames(self) -> AsyncIterator[JobSocketFrame | EventFrame]:
        """Send what changed after `since`, then go on live."""
        return EventStream(self.service, self._wanted()).frames()
