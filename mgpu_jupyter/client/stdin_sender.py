"""Sends typed or piped input to a job: exactly once, whatever happens to connections. Shows nothing.

A thread of its own holds one WebSocket. It reads its source only as far ahead of the job as the window
allows, keeps what the job has not read, and after a break continues from where the job is. While it lives,
the server knows that the job's client is there.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import threading
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api.frames import (
    INPUT_WINDOW_BYTES,
    EndFrame,
    JobSocketFrame,
    ResizeFrame,
    StdinAckFrame,
    StdinFrame,
)
from mgpu_jupyter.client.call import RETRIED, Caller, RetryPause, error_of
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.client.websocket import SWITCHED, ConnectionLost, WebSocket
from mgpu_jupyter.model.job import MAX_NODES

CHUNK_BYTES = 32 * 1024
LOOK_S = 0.5
ASK_AGAIN_S = 2.0
_frames: msgspec.json.Decoder[JobSocketFrame] = msgspec.json.Decoder(JobSocketFrame)


class Source(Protocol):
    """Where input comes from."""

    def fileno(self) -> int:
        """Return the descriptor to wait for; -1 when there is nothing to read now."""

    def read(self, size: int) -> bytes | None:
        """Return what is there; empty at the end, and None when nothing of it is for the job."""

    def rewind(self) -> bool:
        """Start over for a job that runs again; tell whether that is possible."""


class StdinSender:
    """Sends one source to one job."""

    def __init__(self, caller: Caller, job_id: str, source: Source, on_lost: Callable[[], None]) -> None:
        self._caller = caller
        self._job_id = job_id
        self._source = source
        self._on_lost = on_lost
        """Called when the job runs again and its earlier input cannot be repeated."""
        self._writer = secrets.token_hex(8)
        self._attempt = 0
        self._kept = bytearray()
        """What the job has not read, from `_base` on."""
        self._base = self._sent = 0
        self._has_ended = self._end_sent = self._end_known = self._is_closed = False
        self._moved_at = 0.0
        self._size: tuple[int, int] | None = None
        self._told_size: tuple[int, int] | None = None
        self._closing = threading.Event()
        self._wake, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._run, name="mgpu-typing", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def resize(self, rows: int, columns: int) -> None:
        """Tell the job the size of the terminal."""
        self._size = (rows, columns)
        self._stir()

    def close(self) -> None:
        """End; what the job has not read by now is lost."""
        self._closing.set()
        self._stir()
        if self._thread.is_alive():
            self._thread.join(self._caller.timeouts.connect_s)

    def _stir(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._waker, b"\0")

    # --- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        retry = RetryPause(self._caller.timeouts, self._caller.timeouts.resume_s)
        while not self._closing.is_set():
            try:
                socket = self._open()
                try:
                    retry.renew()
                    if self._serve(socket):
                        return
                finally:
                    socket.close()
            except ConnectionLost as lost:
                try:
                    retry.pause(lost)
                except MgpuError:
                    return  # the part that follows the job reports it
            except MgpuError:
                return

    def _open(self) -> WebSocket:
        # A rank that no job has: this connection carries no output.
        query = {"rank": str(MAX_NODES), "input": self._writer}
        status, body, socket = self._caller.transport.upgrade(
            Request(path=f"jobs/{self._job_id}/stream", query=query)
        )
        if socket is not None:
            return socket
        error = error_of(status, body)
        if status in RETRIED or status == SWITCHED:
            raise ConnectionLost(error.code, error.message)
        raise error

    def _serve(self, socket: WebSocket) -> bool:
        """Serve one connection; tell whether all is over."""
        is_ready = False
        heard_at = time.monotonic()
        self._told_size = None
        while not self._closing.is_set():
            ready = [] if socket.has_data else self._wait(socket, may_read=is_ready)
            now = time.monotonic()
            if self._wake in ready:
                os.read(self._wake, 4096)
            if socket.has_data or socket.fileno() in ready:
                heard_at = now
                for frame in self._received(socket):
                    if isinstance(frame, EndFrame):
                        return True
                    if isinstance(frame, StdinAckFrame):
                        if not self._take(frame, is_first=not is_ready):
                            return True
                        is_ready = True
            if now - heard_at > self._caller.timeouts.stream_idle_s:
                raise ConnectionLost("no-answer", "The mgpu server fell silent.")
            if is_ready:
                if self._source.fileno() in ready:
                    self._read()
                self._send(socket, now)
        return True

    def _wait(self, socket: WebSocket, *, may_read: bool) -> list[int]:
        wanted = [socket.fileno(), self._wake]
        if (
            may_read
            and not self._has_ended
            and not self._is_closed
            and len(self._kept) < INPUT_WINDOW_BYTES
            and self._source.fileno() >= 0
        ):
            wanted.append(self._source.fileno())
        return select.select(wanted, [], [], LOOK_S)[0]

    def _received(self, socket: WebSocket) -> list[JobSocketFrame]:
        messages = socket.receive()
        if messages is None:
            raise ConnectionLost("no-answer", "The mgpu server closed the connection.")
        frames = []
        for message in messages:
            with contextlib.suppress(msgspec.DecodeError):  # of a later server
                frames.append(_frames.decode(message))
        return frames

    def _take(self, ack: StdinAckFrame, *, is_first: bool) -> bool:
        """Note how far the job is; False when it accepts no more."""
        if ack.attempt != self._attempt:
            if self._attempt and not self._begin_again():
                self._on_lost()
                return False
            self._attempt = ack.attempt
        passed = ack.offset - self._base
        if passed > 0:
            del self._kept[:passed]
            self._base = ack.offset
            self._moved_at = time.monotonic()
        if ack.again or is_first:
            self._sent, self._end_sent = self._base, False
        self._is_closed = ack.closed
        if self._end_sent and ack.offset >= self._base + len(self._kept):
            self._end_known = True
        return True

    def _begin_again(self) -> bool:
        """Start the input again for a new attempt."""
        if (self._base or self._kept or self._has_ended) and not self._source.rewind():
            return False
        self._kept.clear()
        self._base = self._sent = 0
        self._has_ended = self._end_sent = self._end_known = self._is_closed = False
        return True

    def _read(self) -> None:
        try:
            data = self._source.read(min(CHUNK_BYTES, INPUT_WINDOW_BYTES - len(self._kept)))
        except OSError:
            data = b""
        if data is not None:
            self._has_ended = not data
            self._kept += data

    def _send(self, socket: WebSocket, now: float) -> None:
        if self._size is not None and self._size != self._told_size:
            self._told_size = self._size
            _say(socket, ResizeFrame(rows=self._size[0], columns=self._size[1]))
        if self._is_closed:
            return
        end = self._base + len(self._kept)
        while self._sent < end:
            start = self._sent - self._base
            data = bytes(self._kept[start : start + CHUNK_BYTES])
            _say(socket, StdinFrame(offset=self._sent, attempt=self._attempt, data=data))
            self._sent += len(data)
            self._moved_at = now
        if self._has_ended and not self._end_sent:
            self._end_sent = True
            self._moved_at = now
            _say(socket, StdinFrame(offset=end, attempt=self._attempt, eof=True))
        elif (
            self._sent > self._base or (self._end_sent and not self._end_known)
        ) and now - self._moved_at > ASK_AGAIN_S:
            # Without data it is a question; the answer asks again for what was lost.
            self._moved_at = now
            _say(socket, StdinFrame(offset=end, attempt=self._attempt, eof=self._end_sent))


def _say(socket: WebSocket, frame: StdinFrame | ResizeFrame) -> None:
    socket.send(msgspec.json.encode(frame))
