"""Output of jobs in plain files: one per rank, both streams in the order of arrival.

Theory of operation. `<job>.<attempt>.<rank>.log` holds the bytes. As long as all of them are from stdout
there is nothing else. Before the first byte of stderr an index `….idx` is made; each of its records says
which run of bytes is from which stream. Bytes are written before their record, so what the index does not
cover does not count: after a crash it is cut off and sent again. A log that reached its cap ends with a
marker line whose record is of a kind of its own (`_CUT`): from then on nothing is kept. The writer is the
master's thread; readers open the files themselves and never ask it.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import JobId
from mgpu_agent.protocol.model import NOTHING_MORE, STDERR, STDOUT, STREAMS
from mgpu_agent.protocol.places import make_private_dir
from mgpu_jupyter.master.keeping import DiskShares
from mgpu_jupyter.master.ports import LogKey

_RECORD = struct.Struct("<QQII")  # offset in the log, offset in the stream, length, stream
_CUT = 3  # the stream of the marker's record; readers get the marker as stderr
_BLOCK_RECORDS = 4_096
MAX_OPEN_LOGS = 512
IDLE_S = 30.0
"""A log without new output for this long is closed when another one is opened."""
MAX_AWAY = 4_096
"""For how many closed logs the sizes are remembered, so that a long index is not read again."""
DEFAULT_CAP_BYTES = 1 << 30


class ByteRun(msgspec.Struct, frozen=True):
    """Bytes in a row that came from one stream."""

    stream: int
    offset: int
    data: bytes


class _OpenLog(msgspec.Struct):
    data_fd: int
    index_fd: int | None
    size: int
    received: dict[int, int]
    is_cut: bool = False
    user: str = ""
    used_at: float = 0.0


class LogWriter:
    """Appends output; knows how far each stream was received. Used by one thread."""

    def __init__(
        self,
        root: Path,
        *,
        cap_bytes: int = DEFAULT_CAP_BYTES,
        shares: DiskShares | None = None,
        owner: Callable[[JobId], str] = lambda _: "",
        opener: Callable[[str, int, int], int] = os.open,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = make_private_dir(root)
        self._cap_bytes = cap_bytes
        """The most bytes kept of one rank, over both streams; 0 keeps all."""
        self._shares, self._owner = shares or DiskShares(), owner
        """What users have of all logs together, and the owner of a job."""
        self._open: OrderedDict[LogKey, _OpenLog] = OrderedDict()
        """The last used one is last."""
        self._away: OrderedDict[LogKey, _OpenLog] = OrderedDict()
        """Closed for now, with their state."""
        self._opener, self._clock = opener, clock

    def append(self, key: LogKey, stream: int, offset: int, data: bytes) -> int:
        """Write the new part of a chunk and return how far this stream is; a gap or a full log writes
        nothing.
        """
        log = self._get(key)
        if log.is_cut:
            return NOTHING_MORE
        have = log.received[stream]
        if offset > have or offset + len(data) <= have:
            return have
        fresh = memoryview(data)[have - offset :]
        of_rank, of_user = (
            self._cap_bytes - log.size if self._cap_bytes else len(fresh),
            self._shares.room(log.user),
        )
        room = min(of_rank, of_user)
        if room > 0:
            self._write(key, log, stream, fresh[:room], have)
        if room < len(fresh):
            marker = (
                share_marker(self._shares.limit_bytes) if of_user < of_rank else cut_marker(self._cap_bytes)
            )
            self._write(key, log, _CUT, memoryview(marker), 0)
            log.received, log.is_cut = dict.fromkeys(STREAMS, NOTHING_MORE), True
        return log.received[stream]

    def _write(self, key: LogKey, log: _OpenLog, stream: int, data: memoryview, stream_at: int) -> None:
        if stream != STDOUT and log.index_fd is None:
            log.index_fd = self._make_index(key, log)
        reach("logs.write.before")
        _write_all(log.data_fd, data, log.size)
        reach("logs.write.after")
        if log.index_fd is not None:
            _write_record(log.index_fd, _RECORD.pack(log.size, stream_at, len(data), stream))
        self._shares.add(log.user, len(data) + (0 if log.index_fd is None else _RECORD.size))
        log.size += len(data)
        log.received[stream] = stream_at + len(data)

    def received(self, key: LogKey) -> dict[int, int]:
        """Return how far each stream is received; opens nothing that does not exist."""
        if key not in self._open and not log_path(self._root, key).exists():
            return {STDOUT: 0, STDERR: 0}
        return dict(self._get(key).received)

    def detach(self, key: LogKey) -> Callable[[], None]:
        """Close the files; the returned function syncs them to disk, on any thread."""
        log = self._open.pop(key, None)
        self._away.pop(key, None)
        return (lambda: None) if log is None else (lambda: _sync_and_close(log))

    def close(self) -> None:
        """Close all files."""
        for log in self._open.values():
            _close(log)
        self._open.clear()

    def _get(self, key: LogKey) -> _OpenLog:
        log, now = self._open.get(key), self._clock()
        if log is None:
            while self._open and next(iter(self._open.values())).used_at < now - IDLE_S:
                self._put_away()  # the output of a node that is gone for good is never complete
            log = self._open[key] = self._load(key)
            if len(self._open) > MAX_OPEN_LOGS:
                self._put_away()
        else:
            self._open.move_to_end(key)
        log.used_at = now
        return log

    def _put_away(self) -> None:
        """Close the least recently used one."""
        key, log = self._open.popitem(last=False)
        _close(log)
        self._away[key] = log
        if len(self._away) > MAX_AWAY:
            self._away.popitem(last=False)

    def _load(self, key: LogKey) -> _OpenLog:
        path = log_path(self._root, key)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        data_fd = self._opener(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            return self._take_up(key, data_fd) or self._read_index(
                data_fd, path.with_suffix(".idx"), self._owner(key.job_id)
            )
        except OSError:
            os.close(data_fd)
            raise

    def _take_up(self, key: LogKey, data_fd: int) -> _OpenLog | None:
        """Continue a log that was closed, unless its file has changed."""
        log = self._away.pop(key, None)
        if log is None or os.fstat(data_fd).st_size != log.size:
            return None
        log.data_fd = data_fd
        if log.index_fd is not None:
            log.index_fd = self._open_index(log_path(self._root, key).with_suffix(".idx"))
        return log

    def _open_index(self, index: Path) -> int:
        return self._opener(str(index), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _read_index(self, data_fd: int, index: Path, user: str) -> _OpenLog:
        """Find out how far each stream is kept, and cut off what no record covers."""
        size = os.fstat(data_fd).st_size
        if not index.exists():
            return _OpenLog(data_fd, None, size, {STDOUT: size, STDERR: 0}, user=user)
        index_fd = self._open_index(index)
        whole = os.fstat(index_fd).st_size // _RECORD.size
        received = {STDOUT: 0, STDERR: 0}
        end = kept = 0
        for at, stream_at, length, stream in _records(index_fd, 0, whole):
            if at + length > size:
                break
            end, kept = at + length, kept + 1
            received[stream] = stream_at + length
        os.ftruncate(index_fd, kept * _RECORD.size)
        os.ftruncate(data_fd, end)
        if _CUT in received:
            return _OpenLog(
                data_fd, index_fd, end, dict.fromkeys(STREAMS, NOTHING_MORE), is_cut=True, user=user
            )
        return _OpenLog(data_fd, index_fd, end, received, user=user)

    def _make_index(self, key: LogKey, log: _OpenLog) -> int:
        path = log_path(self._root, key).with_suffix(".idx")
        temporary = path.with_suffix(".new")
        index_fd = self._opener(
            str(temporary), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        if log.size:
            os.write(index_fd, _RECORD.pack(0, 0, log.size, STDOUT))
            self._shares.add(log.user, _RECORD.size)
        temporary.replace(path)
        return index_fd


def cut_marker(cap_bytes: int) -> bytes:
    """Return the line that ends a log which reached its cap."""
    return (
        f"\n[mgpu: output was cut at {cap_bytes} bytes (MgpuApp.output_cap); the rest was dropped]\n".encode()
    )


def share_marker(share_bytes: int) -> bytes:
    """Return the line that ends a log whose owner has as much output as one user may have."""
    text = (
        f"output was cut here: all of yours together reached your share of {share_bytes} bytes "
        f"(limits.user_output_bytes)"
    )
    return (
        f"\n[mgpu: {text}; the rest was dropped: delete old jobs with mgpu purge, or ask an administrator]\n"
    ).encode()


def log_path(root: Path, key: LogKey) -> Path:
    """Return where the output of a rank is."""
    return root / key.job_id[:2] / f"{key.job_id}.{key.attempt}.{key.rank}.log"


def log_files(root: Path, job_id: str) -> list[Path]:
    """Return all files with output of a job, of every attempt and rank."""
    return sorted((root / job_id[:2]).glob(f"{job_id}.*"))


def log_size(root: Path, key: LogKey) -> int:
    """Return how many bytes of a rank's output can be read."""
    path = log_path(root, key)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return 0
    covered = _covered(path.with_suffix(".idx"))
    return size if covered is None else min(size, covered)


def is_cut(root: Path, key: LogKey) -> bool:
    """Tell whether a log reached its cap, so that nothing can follow."""
    last = _last_record(log_path(root, key).with_suffix(".idx"))
    return last is not None and last[3] == _CUT


def read_runs(root: Path, key: LogKey, offset: int, limit: int) -> list[ByteRun]:
    """Return output from `offset` on, at most `limit` bytes, cut where the stream changes."""
    # The size is read before the index is looked for: if there is no index then, all bytes up to there are
    # from stdout.
    end = min(log_size(root, key), offset + limit)
    if end <= offset:
        return []
    path = log_path(root, key)
    with path.open("rb", buffering=0) as file:
        data = os.pread(file.fileno(), end - offset, offset)
    end = offset + len(data)
    runs: list[ByteRun] = []
    for stream, start, stop in _spans(path.with_suffix(".idx"), offset, end):
        piece = data[start - offset : stop - offset]
        if runs and runs[-1].stream == stream and runs[-1].offset + len(runs[-1].data) == start:
            runs[-1] = ByteRun(stream, runs[-1].offset, runs[-1].data + piece)
        else:
            runs.append(ByteRun(stream, start, piece))
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
        for at, _, length, stream in _records(file.fileno(), first, count):
            if at >= end:
                break
            spans.append((STDERR if stream == _CUT else stream, max(at, start), min(at + length, end)))
    return spans


def _records(descriptor: int, first: int, count: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield records block by block: the index of a job with much output is large."""
    while first < count:
        block = os.pread(descriptor, min(count - first, _BLOCK_RECORDS) * _RECORD.size, first * _RECORD.size)
        if not block:  # cut shorter by a new writer while it is read
            return
        yield from _RECORD.iter_unpack(block)
        first += len(block) // _RECORD.size


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
    last = _last_record(index)
    return None if last is None else last[0] + last[2]


def _last_record(index: Path) -> tuple[int, int, int, int] | None:
    """Return the newest record, an empty one if there are none yet, or None without an index."""
    try:
        with index.open("rb", buffering=0) as file:
            count = os.fstat(file.fileno()).st_size // _RECORD.size
            if count == 0:
                return 0, 0, 0, STDOUT
            at, stream_at, length, stream = _RECORD.unpack(
                os.pread(file.fileno(), _RECORD.size, (count - 1) * _RECORD.size)
            )
            return at, stream_at, length, stream
    except FileNotFoundError:
        return None


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)


def _write_record(descriptor: int, record: bytes) -> None:
    """Append a record, whole or not at all: half of one would shift all that follow."""
    written = os.write(descriptor, record)
    if written != len(record):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _sync_and_close(log: _OpenLog) -> None:
    try:
        reach("logs.sync")
        os.fdatasync(log.data_fd)
        if log.index_fd is not None:
            os.fdatasync(log.index_fd)
    finally:
        _close(log)


def _close(log: _OpenLog) -> None:
    os.close(log.data_fd)
    if log.index_fd is not None:
        os.close(log.index_fd)
