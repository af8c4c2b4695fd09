"""One job's stream of frames, which survives lost connections; with a pace for viewers that do other things.

The position is one offset for each rank of one attempt, kept here and moved with every frame that is
returned, so that after a break, a restart of the server or an interrupt the stream continues with the next
byte. A new attempt starts again at 0. Prints nothing.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from typing import Generic, Self

import msgspec

from mgpu_jupyter.api.frames import EndFrame, JobStreamFrame, OutputFrame
from mgpu_jupyter.api.route import NDJSON
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.frame_stream import FrameStream, FrameType
from mgpu_jupyter.client.transport import Request

KNOWN_FRAMES = frozenset(("output", "job", "gap", "end", "ping"))
_frames: msgspec.json.Decoder[JobStreamFrame] = msgspec.json.Decoder(JobStreamFrame)


class Follow(FrameStream[JobStreamFrame]):
    """Iterates over the frames of a job until its end."""

    def __init__(
        self, caller: Caller, job_id: str, offsets: Mapping[int, int] | None = None, rank: int | None = None
    ) -> None:
        super().__init__(caller, _frames, KNOWN_FRAMES)
        self.offsets: dict[int, int] = dict(offsets or {})
        """Where each rank continues; keep it to follow again later."""
        self.attempt: int | None = None
        """The attempt that the offsets belong to, once it is known."""
        self._job_id = job_id
        self._rank = rank

    def _note(self, frame: JobStreamFrame) -> bool:
        if isinstance(frame, OutputFrame):
            if self.attempt is not None and frame.attempt != self.attempt:
                self.offsets.clear()
            self.attempt = frame.attempt
            self.offsets[frame.rank] = frame.offset + len(frame.data)
        return isinstance(frame, EndFrame)

    def _request(self) -> Request:
        query = {"follow": "1"}
        if self._rank is not None:
            query["rank"] = str(self._rank)
        if self.offsets:
            query["offsets"] = ",".join(f"{rank}:{offset}" for rank, offset in sorted(self.offsets.items()))
            if self.attempt is not None:
                query["attempt"] = str(self.attempt)
        return Request(path=f"jobs/{self._job_id}/output", query=query, headers={"Accept": NDJSON})


AHEAD = 64
"""How many frames are read ahead of the viewer."""


class Pump(Generic[FrameType]):
    """Iterates over the frames of a stream, and over None whenever `pace_s` passed without one."""

    def __init__(self, frames: FrameStream[FrameType], pace_s: float) -> None:
        self._frames = frames
        self._pace_s = pace_s
        self._queue: queue.Queue[FrameType | BaseException] = queue.Queue(AHEAD)
        self._thread: threading.Thread | None = None
        self._over = False
        self.deadline: float | None = None
        """`time.monotonic()` at which waiting ends with `TimeoutError`."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FrameType | None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="mgpu-follow", daemon=True)
            self._thread.start()
        try:
            item = self._queue.get(timeout=self._wait_s())
        except queue.Empty:
            if self.deadline is not None and time.monotonic() >= self.deadline:
                raise TimeoutError("the time is over") from None
            return None
        if isinstance(item, BaseException):
            self._thread = None  # the next call continues with a new one
            raise item
        return item

    def close(self) -> None:
        """Stop; the thread closes the connection with the next frame, at the latest a ping."""
        self._over = True

    def _wait_s(self) -> float:
        if self.deadline is None:
            return self._pace_s
        return max(min(self._pace_s, self.deadline - time.monotonic()), 0.0)

    def _read(self) -> None:
        try:
            for frame in self._frames:
                self._put(frame)
                if self._over:
                    self._frames.close()
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised where the frames are wanted
            self._put(error)
        else:
            self._put(StopIteration())

    def _put(self, item: FrameType | BaseException) -> None:
        while True:
            try:
                self._queue.put(item, timeout=1.0)
            except queue.Full:
                if self._over:
                    return
            else:
                return
