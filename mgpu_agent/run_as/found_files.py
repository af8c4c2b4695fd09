"""Files that a job leaves for its user: found by pattern, checked against the limit, hashed and read in
parts, with the rights of the caller.

A link is never followed, and where jobs run as their users no file of another is returned. The cost of a
pattern is bounded, because a tree can be made endless.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from mgpu_agent.protocol.errors import reason_of
from mgpu_agent.protocol.folders import DIGEST_PATTERN
from mgpu_agent.run_as.requests import FindResults, Found, FoundFile

CHUNK_BYTES = 1024 * 1024
MAX_FILES = 10_000
MAX_PROBLEMS = 20
MAX_PROBLEM = 400
MAX_VISITS = 1_000_000
LOOK_S = 60.0
ABOUT = ".json"
_MAGIC = re.compile(r"[*?\[]")
Tell = Callable[[], None]


class _About(msgspec.Struct, frozen=True):
    """What a rank wrote about the variables that it left."""

    size: int
    sha256: Annotated[str, msgspec.Meta(pattern=DIGEST_PATTERN)]


class _TooMuch(Exception):
    """The patterns match more than may be searched."""


class _Look:
    """One search, and the rest of its budget."""

    def __init__(self, root: str, tell: Tell) -> None:
        self._root = root
        self._tell = tell
        self._visits = MAX_VISITS
        self._until = time.monotonic() + LOOK_S

    def matches(self, patterns: Iterable[str], found: dict[str, None]) -> None:
        """Add the files that match to `found`, each once; a directory stands for all its files."""
        for pattern in patterns:
            plain = os.path.normpath(pattern)
            if plain.startswith(("/", "..")):
                continue
            parts = ("**",) if plain == "." else _squeezed(tuple(plain.split("/")))
            for path in sorted(self._expand(parts)):
                if self._is_directory(path):
                    found.update(dict.fromkeys(sorted(self._expand((*path.split("/"), "**"), literal=True))))
                else:
                    found[path] = None

    def _expand(self, parts: tuple[str, ...], *, literal: bool = False) -> set[str]:
        """Return the matches of a pattern; a final `**` matches files only. `literal` takes everything else
        as written.
        """
        found: set[str] = set()
        waiting = [("", parts)]
        while waiting:
            path, left = waiting.pop()
            if not left:
                if path and os.path.lexists(f"{self._root}/{path}"):
                    found.add(path)
                continue
            part, rest = left[0], left[1:]
            if part == "**":
                if rest:
                    waiting.append((path, rest))
                for name, is_directory in self._entries(path):
                    if is_directory:
                        waiting.append((_joined(path, name), left))
                    elif not rest:
                        found.add(_joined(path, name))
            elif literal or not _MAGIC.search(part):
                waiting.append((_joined(path, part), rest))
            else:
                waiting += [
                    (_joined(path, name), rest) for name, _ in self._entries(path) if fnmatchcase(name, part)
                ]
        return found

    def _entries(self, path: str) -> Iterator[tuple[str, bool]]:
        with (
            contextlib.suppress(OSError),
            os.scandir(f"{self._root}/{path}" if path else self._root) as entries,
        ):
            for entry in entries:
                self._visits -= 1
                if self._visits < 0 or time.monotonic() > self._until:
                    raise _TooMuch
                self._tell()
                yield entry.name, entry.is_dir(follow_symlinks=False)

    def _is_directory(self, path: str) -> bool:
        with contextlib.suppress(OSError):
            return stat.S_ISDIR(os.lstat(f"{self._root}/{path}").st_mode)
        return False


def find(task: FindResults, tell: Tell) -> Found:
    """Return the results of a job."""
    files: list[FoundFile] = []
    problems: list[str] = []
    names: dict[str, None] = {}
    try:
        _Look(task.root, tell).matches(task.patterns, names)
    except _TooMuch:
        problems.append("The patterns mean too much to be looked through: name the files more exactly")
    except (OSError, ValueError, re.error) as error:
        problems.append(f"{task.root}: {error}")
    left = task.limit_bytes or None
    for path in names:
        if len(files) == MAX_FILES:
            problems.append(f"more than {MAX_FILES} files: the rest was left")
            break
        try:
            file = _hashed(task, path, left, tell)
        except (OSError, ValueError) as error:
            problems.append(f"{path}: {reason_of(error)}")
            continue
        files.append(file)
        if left is not None:
            left -= file.size
    if task.values:
        with contextlib.suppress(OSError):
            files += _values(task)
    told = (problem.encode(errors="replace").decode()[:MAX_PROBLEM] for problem in problems[:MAX_PROBLEMS])
    return Found(files=tuple(files), problems=tuple(told))


def read(root: str, path: str, uid: int, offset: int, size: int) -> bytes:
    """Return a part of a file."""
    with opened(root, path, uid) as descriptor:
        return os.pread(descriptor, min(size, CHUNK_BYTES), offset)


@contextlib.contextmanager
def opened(root: str, path: str, uid: int) -> Iterator[int]:
    """Open a file below a directory without following a link; with a uid of 0 or more, only a file that
    belongs to this user.
    """
    opened_here: list[int] = []
    try:
        opened_here.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        *parents, name = path.split("/")
        for part in parents:
            opened_here.append(
                os.open(
                    part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened_here[-1]
                )
            )
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened_here[-1]
        )
        opened_here.append(descriptor)
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise IsADirectoryError(0, "it is no plain file")
        if uid >= 0 and info.st_uid != uid:
            raise PermissionError(0, "it does not belong to the job's user")
        yield descriptor
    finally:
        for one in opened_here:
            os.close(one)


def _hashed(task: FindResults, path: str, left: int | None, tell: Tell) -> FoundFile:
    digest = hashlib.sha256()
    size = 0
    path.encode()
    with opened(task.root, path, task.uid) as descriptor:
        info = os.fstat(descriptor)
        # The size first: a sparse file takes no time to make, and minutes to read.
        while left is None or max(size, info.st_size) <= left:
            data = os.pread(descriptor, CHUNK_BYTES, size)
            if not data:
                return FoundFile(path, size, digest.hexdigest(), stat.S_IMODE(info.st_mode) & 0o777)
            digest.update(data)
            size += len(data)
            tell()
    raise ValueError(
        f"it has {max(size, info.st_size)} bytes, and results are kept up to {task.limit_bytes} bytes"
    )


def _values(task: FindResults) -> Iterator[FoundFile]:
    """Yield the variables that ranks left and declared complete; the receiver checks them."""
    for name in sorted(os.listdir(task.values))[: 2 * MAX_FILES]:
        stem, rank = name.removesuffix(ABOUT), name.removesuffix(ABOUT).removeprefix("out.")
        if stem == name or not rank.isdecimal():
            continue
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            with opened(task.values, name, task.uid) as descriptor:
                about = msgspec.json.decode(os.pread(descriptor, CHUNK_BYTES, 0), type=_About)
            with opened(task.values, stem, task.uid) as descriptor:
                if os.fstat(descriptor).st_size == about.size:
                    yield FoundFile(stem, about.size, about.sha256, 0o600, int(rank))


def _squeezed(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return a pattern without repeated `**`, which mean the same and cost more."""
    return tuple(
        part
        for position, part in enumerate(parts)
        if part != "**" or parts[position - 1 : position] != ("**",)
    )


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
