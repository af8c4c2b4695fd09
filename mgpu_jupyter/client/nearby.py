"""Files of a server on this machine, used in place: only those that it names, and that belong to this user.

A process elsewhere, or of another user, does not find them and uses HTTP. The server decides whom it tells,
the file system who may open them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import weakref

from mgpu_jupyter.api.files import Nearby


def mapped(near: Nearby | None, size: int) -> memoryview | None:
    """Return a file of the server as memory, which may be changed without changing it; None out of reach."""
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
    """Free the memory of a file when nothing is mapped any more, like that of any other array."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def tray_of(near: Nearby | None) -> str | None:
    """Return the directory of the server into which pieces may be put; None where it is not within reach."""
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
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
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
    """Tell whether this is the file that the server named, and belongs to this process's user."""
    return (info.st_dev, info.st_ino, info.st_uid) == (near.device, near.inode, os.geteuid())
