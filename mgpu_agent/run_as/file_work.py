"""Work on files for a user, with the rights of the caller: the helper of an account, or the agent where jobs
run as its own user.

Knows no job and keeps nothing between two calls. Whatever a user puts in the way (links, pipes, endless
trees) can reach only what that user can.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections import deque
from typing import assert_never

from mgpu_agent.protocol.errors import reason_of
from mgpu_agent.run_as import found_files, pythons
from mgpu_agent.run_as.found_files import Tell
from mgpu_agent.run_as.requests import (
    BeginValues,
    ClearFolder,
    Compare,
    Content,
    Done,
    Failed,
    FileAnswer,
    FileTask,
    FindResults,
    FolderPart,
    FoundAround,
    LayOut,
    LookAround,
    ReadResult,
    WriteValues,
)

SETTLE = "settle"
"""The kind of a part that sets mode and time of a directory, once all its content is there."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def carry_out(task: FileTask, tell: Tell) -> FileAnswer:
    """Carry out a task and return its result; `tell` is called now and then while it takes long."""
    try:
        return _carry_out(task, tell)
    except (OSError, ValueError) as error:
        return Failed(why=_why(error))


def _carry_out(task: FileTask, tell: Tell) -> FileAnswer:
    match task:
        case LookAround():
            return _look_around(task)
        case Compare():
            return pythons.compare(task)
        case ClearFolder(place=place):
            _clear(place, tell)
        case LayOut(place=place, parts=parts):
            for part in parts:
                _lay_out(f"{place}/{part.path}", part)
                tell()
        case BeginValues(path=path, size=size):
            descriptor = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            with contextlib.closing(os.fdopen(descriptor, "wb")):
                os.truncate(descriptor, size)
        case WriteValues(path=path, offsets=offsets, data=data):
            descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with contextlib.closing(os.fdopen(descriptor, "wb", buffering=0)):
                for offset in offsets:
                    _write(descriptor, memoryview(data), offset)
                    tell()
        case FindResults():
            return found_files.find(task, tell)
        case ReadResult(root=root, path=path, uid=uid, offset=offset, size=size):
            return Content(data=found_files.read(root, path, uid, offset, size))
        case _:
            assert_never(task)
    return Done()


def _look_around(task: LookAround) -> FoundAround:
    is_open = (
        task.directory is not None and os.path.isdir(task.directory) and os.access(task.directory, os.X_OK)
    )
    python, version, problem = pythons.choose(task) if task.needs_python else ("", "", "")
    if task.script and not problem:
        descriptor = os.open(task.script, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(task.source)
    return FoundAround(is_open=is_open, python=python, version=version, problem=problem)


def _lay_out(path: str, part: FolderPart) -> None:
    match part.kind:
        case "directory":
            os.mkdir(path, 0o700)
        case "link":
            os.symlink(part.target, path)
        case "settle":
            os.chmod(path, part.mode | 0o700)
            os.utime(path, ns=(part.modified_ns, part.modified_ns))
        case _:
            descriptor = os.open(
                path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC if part.offset else _NEW, 0o600
            )
            with contextlib.closing(os.fdopen(descriptor, "wb", buffering=0)):
                _write(descriptor, memoryview(part.data), part.offset)
                if part.is_last:
                    os.fchmod(descriptor, part.mode)
                    os.utime(descriptor, ns=(part.modified_ns, part.modified_ns))


def _clear(place: str, tell: Tell) -> None:
    """Empty a directory. Inner directories are moved up first, so that any depth is possible."""
    top = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        device = os.fstat(top).st_dev
        waiting = deque(os.listdir(top))
        while waiting:
            tell()
            name = waiting.popleft()
            with contextlib.suppress(OSError):
                if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                    os.unlink(name, dir_fd=top)
                    continue
                waiting += _flatten(name, top, device, tell)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def _flatten(name: str, top: int, device: int, tell: Tell) -> list[str]:
    """Delete the files of a directory and move its directories up; return their new names."""
    moved: list[str] = []
    with contextlib.suppress(OSError):
        os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        if os.fstat(inner).st_dev != device:  # a mounted file system is not this job's
            return []
        for entry in os.listdir(inner):
            tell()
            with contextlib.suppress(OSError):
                if not stat.S_ISDIR(os.lstat(entry, dir_fd=inner).st_mode):
                    os.unlink(entry, dir_fd=inner)
                    continue
                os.chmod(entry, 0o700, dir_fd=inner)  # otherwise it could not be moved
                fresh = f".{secrets.token_hex(8)}"
                os.rename(entry, fresh, src_dir_fd=inner, dst_dir_fd=top)
                moved.append(fresh)
    finally:
        os.close(inner)
    return moved


def _write(descriptor: int, view: memoryview, offset: int) -> None:
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _why(error: OSError | ValueError) -> str:
    where = (
        f" ({os.fsdecode(error.filename)})"
        if isinstance(error, OSError) and isinstance(error.filename, str | bytes)
        else ""
    )
    return f"{reason_of(error)}{where}".encode(errors="replace").decode()
