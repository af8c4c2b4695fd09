"""One job's stream of frames, which survives lost connections. Prints nothing.

The position is one offset for each rank of one attempt, kept here and moved with every frame that is handed out, so that after a break,
a restart of the server or an interrupt the stream goes on with the next byte. A new attempt starts again at 0.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import msgspec

from mgpu_agent.protocol.errors import RemoteProtocolError
from mgpu_jupyter.api.models import EndFrame, JobStreamFrame, OutputFrame
from mgpu_jupyter.api.routes import NDJSON
from mgpu_jupyter.client.call import RETRIED, Caller, Patience, error_of
from mgpu_jupyter.client.transport import Request, Stream
from mgpu_jupyter.client.websocket import ConnectionLost

KNOWN_FRAMES = frozenset(("output", "job", "gap", "end", "ping"))
_frames: msgspec.json.Decoder[JobStreamFrame] = msgspec.json.Decoder(JobStreamFrame)


class _Tag(msgspec.Struct):
    type: str = ""


class Follow:
    """Iterates over the frames of a job until its end."""

    def __init__(self, caller: Caller, job_id: str, offsets: Mapping[int, int] | None = None, rank: int | None = None) -> None:
        self.offsets: dict[int, int] = dict(offsets or {})
        """Where each rank goes on; keep it to follow again later."""
        self.attempt: int | None = None
        """The attempt that the offsets belong to, once output told it."""
        self.deadline: float | None = None
        """`time.monotonic()` at which waiting ends with `TimeoutError`."""
        self._caller = caller
        self._job_id = job_id
        self._rank = rank
        self._patience = Patience(caller.timeouts, caller.timeouts.resume_s)
        self._stream: Stream | None = None
        self._pending = bytearray()
        self._searched = 0
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __next__(self) -> JobStreamFrame:
        while not self._ended:
            try:
                frame = self._buffered_frame()
                if frame is None:
                    self._read_on()
                    continue
            except BaseException:  # half a line may be gone: the next call starts from the offsets
                self.close()
                raise
            self._note(frame)
            return frame
        raise StopIteration

    def close(self) -> None:
        """Let go of the connection; iterating goes on with a new one."""
        stream, self._stream = getattr(self, "_stream", None), None
        if stream is not None:
            self._pending.clear()
            self._searched = 0
            stream.close()

    def _note(self, frame: JobStreamFrame) -> None:
        if isinstance(frame, OutputFrame):
            if self.attempt is not None and frame.attempt != self.attempt:
                self.offsets.clear()
            self.attempt = frame.attempt
            self.offsets[frame.rank] = frame.offset + len(frame.data)
        elif isinstance(frame, EndFrame):
            self._ended = True
            self.close()

    def _read_on(self) -> None:
        try:
            if self._stream is None:
                self._stream = self._open()
            data = self._stream.read(self._time_left())
        except TimeoutError as error:
            self.close()
            if self.deadline is not None and time.monotonic() >= self.deadline:
                raise
            self._pause(ConnectionLost("no-answer", "The mgpu server fell silent: see whether it still runs."), error)
        except ConnectionLost as lost:
            self.close()
            self._pause(lost, lost)
        else:
            if data:
                self._patience.renew()
                self._pending += data
            else:  # closed in order, yet the job is not over: the server stops
                self.close()
                self._pause(ConnectionLost("no-answer", "The mgpu server ended the stream: start it again; the job goes on."), None)

    def _open(self) -> Stream:
        query = {"follow": "1"}
        if self._rank is not None:
            query["rank"] = str(self._rank)
        if self.offsets:
            query["offsets"] = ",".join(f"{rank}:{offset}" for rank, offset in sorted(self.offsets.items()))
            if self.attempt is not None:
                query["attempt"] = str(self.attempt)
        stream = self._caller.transport.open(Request(path=f"jobs/{self._job_id}/output", query=query, headers={"Accept": NDJSON}))
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
        self._patience.pause(lost, self._caller.on_trouble)

    def _buffered_frame(self) -> JobStreamFrame | None:
        while (end := self._pending.find(b"\n", self._searched)) >= 0:
            line = bytes(memoryview(self._pending)[:end])
            del self._pending[: end + 1]
            self._searched = 0
            if line.strip() and (frame := _decode(line)) is not None:
                return frame
        self._searched = len(self._pending)
        return None


def _decode(line: bytes) -> JobStreamFrame | None:
    try:
        return _frames.decode(line)
    except msgspec.DecodeError as error:
        if _is_newer(line):
            return None
        raise RemoteProtocolError("bad-frame", f"A frame of the job's stream could not be read ({error}).") from error


def _is_newer(line: bytes) -> bool:
    """Tell whether the frame is of a kind that a later server added: such are left out."""
    try:
        return msgspec.json.decode(line, type=_Tag).type not in (*KNOWN_FRAMES, "")
    except msgspec.DecodeError:
        return False
