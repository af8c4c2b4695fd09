"""Gives the blocks of a part of a file back to the file system; the file keeps its size. Knows nothing of what the file holds."""

from __future__ import annotations

import ctypes
import os
import queue
import tempfile
import threading
from collections.abc import Callable

_KEEP_SIZE = 0x01
_PUNCH_HOLE = 0x02
_libc = ctypes.CDLL(None, use_errno=True)


def punch_hole(path: str, start: int, end: int) -> bool:
    """Free `start` to `end` of a file; False where the file system cannot do that."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return True  # gone already, which is as good
    try:
        offset, length = ctypes.c_longlong(start), ctypes.c_longlong(end - start)
        return bool(_libc.fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, offset, length) == 0)
    finally:
        os.close(descriptor)


class Puncher:
    """Does so on a thread of its own: a hole of gigabytes takes a file system seconds. The thread is there once something is to do."""

    def __init__(self, directory: str, punch: Callable[[str, int, int], bool] = punch_hole) -> None:
        self._punch = punch
        self._is_able = self._try(directory)
        self._wanted: queue.SimpleQueue[tuple[str, int, int]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, path: str, start: int, end: int) -> bool:
        """Have a part of a file freed soon; False where that cannot be done."""
        if not self._is_able:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mgpu-holes", daemon=True)
            self._thread.start()
        self._wanted.put((path, start, end))
        return True

    def _try(self, directory: str) -> bool:
        try:
            with tempfile.NamedTemporaryFile(dir=directory) as file:
                return self._punch(file.name, 0, 1)
        except OSError:
            return True  # a full disk, say: it will show

    def _run(self) -> None:
        while True:
            if not self._punch(*self._wanted.get()):
                self._is_able = False
