"""Which files of one directory were written to, by inotify. Tells names only; reads no file."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_IN_MODIFY = 0x2
_IN_Q_OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")
_READ_BYTES = 256 * 1024


class ModifiedFiles:
    """A watch on the files of one directory. Owns its descriptor."""

    def __init__(self, directory: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.is_working = (
            self._descriptor >= 0
            and libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _IN_MODIFY) >= 0
        )
        """False when the user has no watch left: then nothing is reported, and the caller must look itself.
        """
        if not self.is_working:
            self.close()
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return int(self._descriptor)

    def take(self) -> set[str] | None:
        """Return the names written to since the last call, or None when there were too many."""
        names: set[str] = set()
        while True:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return names
            position = 0
            while position < len(data):
                _, mask, _, length = _EVENT.unpack_from(data, position)
                if mask & _IN_Q_OVERFLOW:
                    return None
                start = position + _EVENT.size
                names.add(os.fsdecode(data[start : start + length].rstrip(b"\0")))
                position = start + length

    def close(self) -> None:
        """End the watch."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
