"""Files of a server on this machine, used where they are: only the very ones that it tells of, and only its user's own.

Whoever is elsewhere, or somebody else, does not find them, and goes on over HTTP. The server decides who is told, the file system
who may open.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import weakref

from mgpu_jupyter.api.folders import Nearby


def mapped(near: Nearby | None, size: int) -> memoryview | None:
    """Return a file of the server as memory, which may be changed without changing the file; None where it is not within reach."""
    if near is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(near.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            info = os.fstat(descriptor)
            if stat.S_ISREG(info.st_mode) and is_ours(info, near) and info.st_size == size:
                memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY)
                weakref.finalize(memory, _let_go, near.path).atexit = False
                return memoryview(memory)
        finally:
            os.close(descriptor)
    return None


def _let_go(path: str) -> None:
    """Give the memory of a file back when nothing is mapped any more, as that of any other array is."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def tray_of(near: Nearby | None) -> str | None:
    """Return the directory of the server into which pieces may be laid; None where it is not within reach."""
    if near is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        info = os.stat(near.path, follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode) and is_ours(info, near):
            return near.path
    return None


def lay(tray: str, name: str, data: memoryview) -> bool:
    """Write a file into the tray, whole or not at all; tell whether it is there."""
    path = os.path.join(tray, name)
    temporary = f"{path}.{os.urandom(8).hex()}"
    with contextlib.suppress(OSError):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            left = data
            while left:
                left = left[os.write(descriptor, left) :]
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)
        return True
    return False


def take_back(tray: str, name: str) -> None:
    """Remove a file that the server did not take."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(tray, name))


def is_ours(info: os.stat_result, near: Nearby) -> bool:
    """Tell whether this is what the server told of, and this process's user's own."""
    return (info.st_dev, info.st_ino, info.st_uid) == (near.device, near.inode, os.geteuid())
