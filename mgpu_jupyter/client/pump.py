"""The frames of a job read on a thread of their own, so that whoever shows them gets a turn now and then although nothing comes.

Frames keep their order and none is lost: an interrupt hits the one who waits here, never a half-read line. Prints nothing.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Self

from mgpu_jupyter.api.models import JobStreamFrame
from mgpu_jupyter.client.follow import Follow

AHEAD = 64
"""So many frames are read ahead of the one who shows them."""


class Pump:
    """Iterates over the frames of a `Follow`, and over None whenever `pace_s` passed without one."""

    def __init__(self, frames: Follow, pace_s: float) -> None:
        self._frames = frames
        self._pace_s = pace_s
        self._queue: queue.Queue[JobStreamFrame | BaseException] = queue.Queue(AHEAD)
        self._thread: threading.Thread | None = None
        self._over = False
        self.deadline: float | None = None
        """`time.monotonic()` at which waiting ends with `TimeoutError`."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> JobStreamFrame | None:
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
            self._thread = None  # the next call reads on with a new one
            raise item
        return item

    def close(self) -> None:
        """Want no more; the thread lets go of the connection with the next frame, which is a ping if nothing else."""
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

    def _put(self, item: JobStreamFrame | BaseException) -> None:
        while True:
            try:
                self._queue.put(item, timeout=1.0)
            except queue.Full:
                if self._over:
                    return
            else:
                return
