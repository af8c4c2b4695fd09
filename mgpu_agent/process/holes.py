"""Gives the blocks of a part of a file back to the file system; the file keeps its size. Knows nothing of what the file holds."""

from __future__ import annotations

import ctypes
import os

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
