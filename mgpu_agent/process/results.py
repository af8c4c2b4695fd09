"""Files that a job leaves for its user: found by pattern when all of it on this node has ended, hashed, and read out on demand.

A link is never followed, and where jobs run as their users nothing is given out that is another's: the agent could read it all.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Annotated

import msgspec

from mgpu_agent.keeper.messages import Collect, TaskRecord
from mgpu_agent.protocol.failpoints import damage
from mgpu_agent.protocol.folders import DIGEST_PATTERN
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import CollectResult, FoundResults, ResultChunk
from mgpu_agent.protocol.model import ResultFile

CHUNK_BYTES = 1024 * 1024
MAX_FILES = 10_000
MAX_PROBLEMS = 20
ABOUT = ".json"


class _About(msgspec.Struct, frozen=True):
    """What a rank says of the variables that it left."""

    size: int
    sha256: Annotated[str, msgspec.Meta(pattern=DIGEST_PATTERN)]


class Results:
    """The results of all attempts on this node that are not forgotten. `send` takes what is said to the master."""

    def __init__(self, send: Callable[[FoundResults | ResultChunk], None], wake: Callable[[], None]) -> None:
        self._send = send
        self._wake = wake
        self._ended: dict[AttemptKey, set[int]] = {}
        self._places: dict[AttemptKey, TaskRecord] = {}
        self._found: dict[AttemptKey, FoundResults] = {}
        self._ready: SimpleQueue[FoundResults] = SimpleQueue()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="mgpu-results")

    def note(self, record: TaskRecord) -> None:
        """Take in what became of a process; after the last of an attempt its results are looked for."""
        if record.collect is None or record.ended_at is None:
            return
        ended = self._ended.setdefault(record.key, set())
        ended.add(record.rank)
        if len(ended) == record.collect.ranks and record.key not in self._places:
            self._places[record.key] = record
            self._worker.submit(self._look, record, record.collect)

    def turn(self, *, may_tell: bool) -> None:
        """Tell what was found since the last time."""
        while True:
            try:
                found = self._ready.get_nowait()
            except Empty:
                return
            if found.key in self._places:
                self._found[found.key] = found
                if may_tell:
                    self._send(found)

    def tell_again(self) -> None:
        """Tell all that was found: there is a new connection."""
        for found in self._found.values():
            self._send(found)

    def answer(self, wanted: CollectResult) -> None:
        """Send a part of a file."""
        found, record = self._found.get(wanted.key), self._places.get(wanted.key)
        if found is None or record is None or record.collect is None or not 0 <= wanted.number < len(found.files):
            return
        file = found.files[wanted.number]
        data, problem = b"", ""
        try:
            with opened(record.cwd if file.rank < 0 else record.collect.values, file.path, record.collect.uid) as descriptor:
                data = os.pread(descriptor, min(wanted.size, CHUNK_BYTES), wanted.offset)
        except OSError as error:
            problem = f"{error.strerror or error}"
        data = damage("agent.result", data)
        self._send(ResultChunk(key=wanted.key, number=wanted.number, offset=wanted.offset, data=memoryview(data), problem=problem))

    def forget(self, keys: Iterable[AttemptKey]) -> None:
        """Know these attempts no more."""
        for key in keys:
            for known in (self._ended, self._places, self._found):
                known.pop(key, None)

    def close(self) -> None:
        """End the thread."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _look(self, record: TaskRecord, collect: Collect) -> None:
        files: list[ResultFile] = []
        problems: list[str] = []
        try:
            for path in _matches(record.cwd, collect.patterns):
                if len(files) == MAX_FILES:
                    problems.append(f"more than {MAX_FILES} files: the rest was left")
                    break
                try:
                    if (file := _read(record.cwd, path, collect.uid)) is not None:
                        files.append(file)
                except OSError as error:
                    problems.append(f"{path}: {error.strerror or error}")
        except (OSError, ValueError) as error:
            problems.append(f"{record.cwd}: {error}")
        if collect.values:
            files += _values(collect)
        self._ready.put(FoundResults(key=record.key, files=tuple(files), problems=tuple(problems[:MAX_PROBLEMS])))
        self._wake()


def _values(collect: Collect) -> Iterator[ResultFile]:
    """Yield what ranks left of variables and said to be whole; what they say of it is compared where it arrives."""
    for name in sorted(os.listdir(collect.values)):
        stem, rank = name.removesuffix(ABOUT), name.removesuffix(ABOUT).removeprefix("out.")
        if stem == name or not rank.isdecimal():
            continue
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            with opened(collect.values, name, collect.uid) as descriptor:
                about = msgspec.json.decode(os.pread(descriptor, CHUNK_BYTES, 0), type=_About)
            with opened(collect.values, stem, collect.uid) as descriptor:
                if os.fstat(descriptor).st_size == about.size:
                    yield ResultFile(stem, about.size, about.sha256, 0o600, int(rank))


@contextlib.contextmanager
def opened(root: str, path: str, uid: int) -> Iterator[int]:
    """Open a file below a directory without passing through a link; with a uid of 0 or more, only a file that is this user's."""
    opened_here: list[int] = []
    try:
        opened_here.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        *parents, name = path.split("/")
        for part in parents:
            opened_here.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened_here[-1]))
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened_here[-1])
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


def _matches(root: str, patterns: Iterable[str]) -> list[str]:
    """Return the files that patterns mean, each once; a directory means all that is in it."""
    found: dict[str, None] = {}
    for pattern in patterns:
        for path in sorted(glob.glob(pattern, root_dir=root, recursive=True, include_hidden=True)):
            plain = os.path.normpath(path)
            if plain.startswith(("/", "..")):
                continue
            if os.path.isdir(f"{root}/{plain}") and not os.path.islink(f"{root}/{plain}"):
                inside = sorted(glob.glob("**", root_dir=f"{root}/{plain}", recursive=True, include_hidden=True))
                found.update(dict.fromkeys(os.path.normpath(f"{plain}/{name}") for name in inside if name))
            else:
                found[plain] = None
    return [path for path in found if not os.path.isdir(f"{root}/{path}") or os.path.islink(f"{root}/{path}")]


def _read(root: str, path: str, uid: int) -> ResultFile | None:
    digest = hashlib.sha256()
    size = 0
    path.encode()
    with opened(root, path, uid) as descriptor:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o777
        while data := os.pread(descriptor, CHUNK_BYTES, size):
            digest.update(data)
            size += len(data)
    return ResultFile(path, size, digest.hexdigest(), mode)
