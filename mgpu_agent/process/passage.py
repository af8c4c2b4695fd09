"""Directories of the agent that other accounts pass through on the way to their files. Made and opened part
by part, following no link.

The owner of a directory can replace what is in it: so every part of the path belongs to root or to the agent,
and nobody else can change it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.run_as.account import Account

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHER = "name another --scratch-dir"


def open_passage(path: Path) -> int:
    """Open a directory that all can pass through and only this user can list or change; make missing
    parts.
    """
    here = os.open("/", _DIRECTORY)
    try:
        _check(here, Path("/"))
        for part in [*reversed(path.parents), path][1:]:
            is_new = _make(part.name, here)
            try:
                inner = os.open(part.name, _DIRECTORY, dir_fd=here)
            except OSError as error:
                text = f"{part} must be a directory, and no link to one ({error.strerror}): {_OTHER}."
                raise InvalidRequest("unsafe-directory", text) from error
            os.close(here)
            here = inner
            if is_new:
                os.fchmod(here, 0o755)  # whatever the umask is
            if part != path:
                _check(here, part)
        _check_own(here, path)
        os.fchmod(here, 0o711)
    except BaseException:
        os.close(here)
        raise
    return here


def make_passage(path: Path) -> Path:
    """Make such a directory, and return its path."""
    os.close(open_passage(path))
    return path


def own_directory(parent: int, name: str, account: Account) -> None:
    """Make an account's directory in one of ours; an existing one must belong to the account."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        info = os.fstat(descriptor)
        if info.st_uid not in (account.uid, os.getuid()):
            raise PermissionError(0, f"{name} belongs to another user")
        os.fchown(descriptor, account.uid, account.gid)
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def own_file(parent: int, name: str, account: Account) -> None:
    """Make an empty file in a directory of ours, which only its account can read and write."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)
    descriptor = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent
    )
    try:
        os.fchown(descriptor, account.uid, account.gid)
    finally:
        os.close(descriptor)


def _make(name: str, parent: int) -> bool:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def _check(descriptor: int, path: Path) -> None:
    info = os.fstat(descriptor)
    if info.st_uid not in (0, os.getuid()):
        text = (
            f"{path} belongs to another user, who could put other files in the place of those of jobs: "
            f"{_OTHER}."
        )
        raise InvalidRequest("unsafe-directory", text)
    if info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX:
        raise InvalidRequest(
            "unsafe-directory", f"Others can change {path}: run  chmod go-w {path}  or {_OTHER}."
        )
    if not info.st_mode & 0o001:
        raise InvalidRequest(
            "closed-directory", f"Users cannot enter {path}: run  chmod o+x {path}  or {_OTHER}."
        )


def _check_own(descriptor: int, path: Path) -> None:
    if os.fstat(descriptor).st_uid != os.getuid():
        raise InvalidRequest(
            "unsafe-directory", f"{path} must be a directory of the agent's own user: {_OTHER}."
        )
