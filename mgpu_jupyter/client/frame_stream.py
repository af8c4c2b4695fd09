"""A stream of frames, one line of JSON each, that survives lost connections. Knows no kind of frame.

A subclass says what to ask for and notes every frame, so that after a break the next request continues where
the frames ended. Prints nothing.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Generic, Self, TypeVar

import msgspec

from mgpu_agent.protocol.errors import RemoteProtocolError
from mgpu_jupyter.client.call import RETRIED, Caller, RetryPause, error_of
from mgpu_jupyter.client.transport import Request, Stream
from mgpu_jupyter.client.websocket import ConnectionLost

FrameType = TypeVar("FrameType")


class _Tag(msgspec.Struct):
    type: str = ""


class FrameStream(ABC, Generic[FrameType]):
    """Iterates over frames until the last one."""

    _stream: Stream | None = None

    def __init__(
        self, caller: Caller, decoder: msgspec.json.Decoder[FrameType], known: frozenset[str]
    ) -> None:
        """`known` are the tags of all frames that the decoder reads; others are of later servers."""
        self.deadline: float | None = None
        """`time.monotonic()` at which waiting ends with `TimeoutError`."""
        self._caller = caller
        self._decoder, self._known = decoder, known
        self._retry = RetryPause(caller.timeouts, caller.timeouts.resume_s)
        self._pending = bytearray()
        self._searched = 0
        self._ended = False

    @abstractmethod
    def _request(self) -> Request:
        """Return the request from the present position on."""

    @abstractmethod
    def _note(self, frame: FrameType) -> bool:
        """Note a frame that is returned to the caller; True for the last one."""

    def __iter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __next__(self) -> FrameType:
        while not self._ended:
            try:
                frame = self._buffered_frame()
                if frame is None:
                    self._read_on()
                    continue
            except BaseException:  # half a line may be lost: the next call asks again
                self.close()
                raise
            if self._note(frame):
                self._ended = True
                self.close()
            return frame
        raise StopIteration

    def close(self) -> None:
        """Close the connection; further iteration opens a new one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._pending.clear()
            self._searched = 0
            stream.close()

    def _read_on(self) -> None:
        try:
            if self._stream is None:
                self._stream = self._open()
            data = self._stream.read(self._time_left())
        except TimeoutError as error:
            self.close()
            if self.deadline is not None and time.monotonic() >= self.deadline:
                raise
            self._pause(
                ConnectionLost("no-answer", "The mgpu server fell silent: see whether it still runs."), error
            )
        except ConnectionLost as lost:
            self.close()
            self._pause(lost, lost)
        else:
            if data:
                self._retry.renew()
                self._pending += data
            else:  # closed in order, yet more is to come: the server stops
                self.close()
                self._pause(
                    ConnectionLost(
                        "no-answer", "The mgpu server ended the stream: start it again; the job goes on."
                    ),
                    None,
                )

    def _open(self) -> Stream:
        stream = self._caller.transport.open(self._request())
        if stream.status == 200:
            return stream
        try:
            body = stream.read(self._caller.timeouts.request_s)
        finally:
            stream.close()
        error = error_of(stream.status, body)
        if stream.status in RETRIED:
            raise ConnectionLost(error.code, error.message, error.details)
        raise error

    def _time_left(self) -> float:
        idle_s = self._caller.timeouts.stream_idle_s
        if self.deadline is None:
            return idle_s
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the time is over")
        return min(idle_s, left_s)

    def _pause(self, lost: ConnectionLost, cause: BaseException | None) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise TimeoutError("the time is over") from cause
        self._retry.pause(lost, self._caller.on_trouble)

    def _buffered_frame(self) -> FrameType | None:
        while (end := self._pending.find(b"\n", self._searched)) >= 0:
            line = bytes(memoryview(self._pending)[:end])
            del self._pending[: end + 1]
            self._searched = 0
            if line.strip() and (frame := self._decode(line)) is not None:
                return frame
        self._searched = len(self._pending)
        return None

    def _decode(self, line: bytes) -> FrameType | None:
        try:
            return self._decoder.decode(line)
        except msgspec.DecodeError as error:
            if self._is_newer(line):
                return None
            raise RemoteProtocolError(
                "bad-frame", f"A frame of the job's stream could not be read ({error})."
            ) from error

    def _is_newer(self, line: bytes) -> bool:
        """Tell whether the frame is of a kind that a later server added: such frames are ignored."""
        try:
            return msgspec.json.decode(line, type=_Tag).type not in (*self._known, "")
        except msgspec.DecodeError:
            return False
