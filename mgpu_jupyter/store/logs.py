"""Output of jobs in plain files: one per rank, both streams in the order in which they came.

Theory of operation. `<job>.<attempt>.<rank>.log` holds the bytes. As long as all of them came from stdout there is nothing else.
Before the first byte of stderr an index `….idx` is made; each of its records says which run of bytes came from which stream.
Bytes are written before their record, so what the index does not cover does not count: after a crash it is cut off and sent again.
The writer is the master's thread; readers open the files themselves and never ask it.
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec

from mgpu_agent.protocol.model import STDERR, STDOUT
from mgpu_agent.protocol.places import make_private_dir
from mgpu_jupyter.master.ports import LogKey

_RECORD = struct.Struct("<QQII")  # offset in the log, offset in the stream, length, stream
MAX_OPEN_LOGS = 512


class Run(msgspec.Struct, frozen=True):
    """Bytes in a row that came from one stream."""

    stream: int
    offset: int
    data: bytes


class _OpenLog(msgspec.Struct):
    data_fd: int
    index_fd: int | None
    size: int
    received: dict[int, int]


class LogWriter:
    """Appends output; knows how far each stream was received. Used by one thread."""

    def __init__(self, root: Path, *, opener: Callable[[str, int, int], int] = os.open) -> None:
        self._root = make_private_dir(root)
        self._open: OrderedDict[LogKey, _OpenLog] = OrderedDict()
        self._opener = opener

    def append(self, key: LogKey, stream: int, offset: int, data: bytes) -> int:
        """Write what is new of a chunk and return how far this stream is received; a gap writes nothing."""
        log = self._get(key)
        have = log.received[stream]
        if offset > have or offset + len(data) <= have:
            return have
        fresh = memoryview(data)[have - offset :]
        if stream == STDERR and log.index_fd is None:
            log.index_fd = self._make_index(key, log)
        _write_all(log.data_fd, fresh, log.size)
        if log.index_fd is not None:
            os.write(log.index_fd, _RECORD.pack(log.size, have, len(fresh), stream))
        log.size += len(fresh)
        log.received[stream] = have + len(fresh)
        return log.received[stream]

    def received(self, key: LogKey) -> dict[int, int]:
        """Return how far each stream is known; opens nothing that does not exist."""
        if key not in self._open and not log_path(self._root, key).exists():
            return {STDOUT: 0, STDERR: 0}
        return dict(self._get(key).received)

    def detach(self, key: LogKey) -> Callable[[], None]:
        """Let go of the files; the call that is returned brings them to disk, on any thread."""
        log = self._open.pop(key, None)
        return (lambda: None) if log is None else (lambda: _sync_and_close(log))

    def close(self) -> None:
        """Close all files."""
        for log in self._open.values():
            _close(log)
        self._open.clear()

    def _get(self, key: LogKey) -> _OpenLog:
        log = self._open.get(key)
        if log is None:
            log = self._open[key] = self._load(key)
            if len(self._open) > MAX_OPEN_LOGS:
                _close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(key)
        return log

    def _load(self, key: LogKey) -> _OpenLog:
        path = log_path(self._root, key)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        data_fd = self._opener(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(data_fd).st_size
        index = path.with_suffix(".idx")
        if not index.exists():
            return _OpenLog(data_fd, None, size, {STDOUT: size, STDERR: 0})
        index_fd = self._opener(str(index), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
        whole = os.fstat(index_fd).st_size // _RECORD.size
        received = {STDOUT: 0, STDERR: 0}
        end = kept = 0
        for at, stream_at, length, stream in _RECORD.iter_unpack(os.pread(index_fd, whole * _RECORD.size, 0)):
            if at + length > size:
                break
            end, kept = at + length, kept + 1
            received[stream] = stream_at + length
        os.ftruncate(index_fd, kept * _RECORD.size)
        os.ftruncate(data_fd, end)
        return _OpenLog(data_fd, index_fd, end, received)

    def _make_index(self, key: LogKey, log: _OpenLog) -> int:
        path = log_path(self._root, key).with_suffix(".idx")
        temporary = path.with_suffix(".new")
        index_fd = self._opener(str(temporary), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if log.size:
            os.write(index_fd, _RECORD.pack(0, 0, log.size, STDOUT))
        temporary.replace(path)
        return index_fd


def log_path(root: Path, key: LogKey) -> Path:
    """Return where the output of a rank is."""
    return root / key.job_id[:2] / f"{key.job_id}.{key.attempt}.{key.rank}.log"


def log_size(root: Path, key: LogKey) -> int:
    """Return how many bytes of a rank's output can be read."""
    path = log_path(root, key)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return 0
    covered = _covered(path.with_suffix(".idx"))
    return size if covered is None else min(size, covered)


def read_runs(root: Path, key: LogKey, offset: int, limit: int) -> list[Run]:
    """Return output from `offset` on, at most `limit` bytes, cut where the stream changes."""
    # The size is taken before the index is looked for: with no index then, all bytes up to there came from stdout.
    end = min(log_size(root, key), offset + limit)
    if end <= offset:
        return []
    path = log_path(root, key)
    with path.open("rb", buffering=0) as file:
        data = os.pread(file.fileno(), end - offset, offset)
    end = offset + len(data)
    runs: list[Run] = []
    for stream, start, stop in _spans(path.with_suffix(".idx"), offset, end):
        piece = data[start - offset : stop - offset]
        if runs and runs[-1].stream == stream and runs[-1].offset + len(runs[-1].data) == start:
            runs[-1] = Run(stream, runs[-1].offset, runs[-1].data + piece)
        else:
            runs.append(Run(stream, start, piece))
    return runs


def _spans(index: Path, start: int, end: int) -> list[tuple[int, int, int]]:
    try:
        file = index.open("rb", buffering=0)
    except FileNotFoundError:
        return [(STDOUT, start, end)]
    spans = []
    with file:
        count = os.fstat(file.fileno()).st_size // _RECORD.size
        first = _first_record(file.fileno(), count, start)
        for at, _, length, stream in _RECORD.iter_unpack(_records(file.fileno(), first, count, end)):
            if at >= end:
                break
            spans.append((stream, max(at, start), min(at + length, end)))
    return spans


def _records(descriptor: int, first: int, count: int, end: int) -> bytes:
    # A record covers at least one byte, so no more than this many can matter.
    return os.pread(descriptor, min(count - first, end + 1) * _RECORD.size, first * _RECORD.size)


def _first_record(descriptor: int, count: int, offset: int) -> int:
    """Return the number of the record that covers `offset`, by bisection."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        at, _, length, _ = _RECORD.unpack(os.pread(descriptor, _RECORD.size, middle * _RECORD.size))
        if at + length <= offset:
            low = middle + 1
        else:
            high = middle
    return low


def _covered(index: Path) -> int | None:
    try:
        with index.open("rb", buffering=0) as file:
            count = os.fstat(file.fileno()).st_size // _RECORD.size
            if count == 0:
                return 0
            at, _, length, _ = _RECORD.unpack(os.pread(file.fileno(), _RECORD.size, (count - 1) * _RECORD.size))
            return int(at + length)
    except FileNotFoundError:
        return None


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)


def _sync_and_close(log: _OpenLog) -> None:
    try:
        os.fdatasync(log.data_fd)
        if log.index_fd is not None:
            os.fdatasync(log.index_fd)
    finally:
        _close(log)


def _close(log: _OpenLog) -> None:
    os.close(log.data_fd)
    if log.index_fd is not None:
        os.close(log.index_fd)
