"""Which bytes of which spool file go to the master next: by offset, in turns, within one window. Sends
nothing itself.

A stream that has grown waits in a ring; each turn takes one chunk of the first. What is sent and not
acknowledged fills the window, so a flood costs bounded memory, and what is lost with a connection is read
again from the file. What the master has had for a while is punched out of a large file, and so is all that it
does not want (output over its cap), so that a job that writes for days does not fill the node's disk.
"""

from __future__ import annotations

import ctypes
import os
import queue
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from mgpu_agent.protocol.codec import MAX_OUTPUT_CHUNK_BYTES
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import Output
from mgpu_agent.protocol.model import NOTHING_MORE, STDERR, STDOUT, OutputMark, TaskStatus

_KEEP_SIZE = 0x01
_PUNCH_HOLE = 0x02
_libc = ctypes.CDLL(None, use_errno=True)


def punch_hole(path: str, start: int, end: int) -> bool:
    """Free `start` to `end` of a file; False where the file system cannot do that."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return True  # the file is gone, which frees them, too
    try:
        offset, length = ctypes.c_longlong(start), ctypes.c_longlong(end - start)
        return bool(_libc.fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, offset, length) == 0)
    finally:
        os.close(descriptor)


class Puncher:
    """Punches in a thread of its own, started when needed: a hole of gigabytes takes seconds."""

    def __init__(self, directory: str, punch: Callable[[str, int, int], bool] = punch_hole) -> None:
        self._punch = punch
        self._is_able = self._try(directory)
        self._wanted: queue.SimpleQueue[tuple[str, int, int]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, path: str, start: int, end: int) -> bool:
        """Have a part of a file freed soon; False where that is not possible."""
        if not self._is_able:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mgpu-holes", daemon=True)
            self._thread.start()
        self._wanted.put((path, start, end))
        return True

    def _try(self, directory: str) -> bool:
        try:
            with tempfile.NamedTemporaryFile(dir=directory) as file:
                return self._punch(file.name, 0, 1)
        except OSError:
            return True  # a full disk, for example: another step will report it

    def _run(self) -> None:
        while True:
            if not self._punch(*self._wanted.get()):
                self._is_able = False


REWIND_PAUSE_S = (
    1.0  # chunks that were under way when the master fell back are acknowledged at the old offset: ignored
)
STALLED_S = 30.0
# the master acknowledges what it wrote; after this time its system has also brought it to disk
KEPT_S = 60.0
PUNCH_BYTES = 8 * 1024 * 1024  # less is not worth a call
LOST = b"\n[mgpu: output was lost here: the master lost what it had, and the node had let go of it]\n"
_SUFFIXES = {STDOUT: ".out", STDERR: ".err"}


class _Stream:
    """One spool file on its way to the master."""

    __slots__ = (
        "acknowledged",
        "dropped",
        "end",
        "is_queued",
        "key",
        "moved_at",
        "name",
        "noted",
        "punched",
        "rank",
        "rewound_at",
        "sent",
        "stream",
        "unwanted",
    )

    def __init__(self, key: AttemptKey, rank: int, stream: int, name: str) -> None:
        self.key = key
        self.rank = rank
        self.stream = stream
        self.name = name
        self.sent = 0
        self.acknowledged = 0
        self.end: int | None = None
        """Its final size, once the process has ended."""
        self.is_queued = False
        self.moved_at = 0.0
        self.rewound_at = float("-inf")
        self.punched = 0
        """Up to here the blocks of the file are freed, or being freed."""
        self.noted = (0, 0.0)
        """The offset up to which the master had it, and when that was noted."""
        self.unwanted: int | None = None
        """From this offset on the master wants nothing."""
        self.dropped = 0
        """Up to here the blocks of the unwanted part are freed, or being freed."""

    @property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """Return which parts of the file are gone."""
        front = ((0, self.punched),) if self.punched else ()
        return (*front, (self.unwanted or 0, self.dropped)) if self.dropped else front


class OutputShipper:
    """All streams of all tasks that are not forgotten."""

    def __init__(self, spool: str, punch: Callable[[str, int, int], bool] = punch_hole) -> None:
        self._spool = spool
        self._punch = punch
        self._can_punch = True
        self._streams: dict[str, _Stream] = {}
        self._by_key: dict[AttemptKey, dict[tuple[int, int], _Stream]] = {}
        self._ring: deque[_Stream] = deque()
        self._window_bytes = 0
        self._in_flight_bytes = 0

    @property
    def in_flight_bytes(self) -> int:
        """Return how much is sent and not acknowledged."""
        return self._in_flight_bytes

    @property
    def has_more(self) -> bool:
        """Tell whether a stream waits for its turn and the window has room."""
        return bool(self._ring) and self._in_flight_bytes < self._window_bytes

    def follow(self, status: TaskStatus, stem: str) -> None:
        """Ship what this process writes to the files of this name; with its end, up to its final sizes."""
        if status.ended_at is None:
            ends: tuple[int | None, int | None] = (None, None)
        else:
            ends = (status.stdout_bytes, status.stderr_bytes)
        for number, end in zip((STDOUT, STDERR), ends, strict=True):
            name = stem + _SUFFIXES[number]
            stream = self._streams.get(name)
            if stream is None:
                if end == 0:
                    continue  # ended without output: nothing to follow
                stream = self._streams[name] = _Stream(status.key, status.rank, number, name)
                self._by_key.setdefault(status.key, {})[status.rank, number] = stream
            stream.end = end
            if end is None or stream.sent < end:
                self._queue(stream)

    def restart(self, window_bytes: int, received: Iterable[OutputMark]) -> None:
        """Start over on a new connection, each stream from where the master has it."""
        self._window_bytes = window_bytes
        marks = {(mark.key, mark.rank, mark.stream): mark.offset for mark in received}
        self._in_flight_bytes = 0
        for stream in self._streams.values():
            stream.sent = stream.acknowledged = max(0, marks.get((stream.key, stream.rank, stream.stream), 0))
            self._queue(stream)

    def grew(self, names: Iterable[str] | None) -> None:
        """Note files that were written to; None means any of them."""
        for stream in self._streams.values() if names is None else map(self._streams.get, names):
            if stream is not None:
                self._queue(stream)

    def acknowledge(self, mark: OutputMark, now: float) -> None:
        """Note how far the master has a stream; one that fell back is sent again from there."""
        stream = self._by_key.get(mark.key, {}).get((mark.rank, mark.stream))
        if stream is None:
            return
        offset = max(0, mark.offset)
        if offset >= NOTHING_MORE and stream.unwanted is None:
            stream.unwanted = stream.sent
        fell_back = offset < stream.acknowledged
        repeated = offset == stream.acknowledged < stream.sent and now - stream.rewound_at >= REWIND_PAUSE_S
        if fell_back or repeated:
            self._move(stream, sent=offset, acknowledged=offset, now=now)
            stream.rewound_at = now
            self._queue(stream)
        else:
            self._move(stream, sent=max(stream.sent, offset), acknowledged=offset, now=now)

    def check_stalled(self, now: float) -> None:
        """Send again what was not acknowledged for long."""
        for stream in self._streams.values():
            if stream.sent > stream.acknowledged and now - stream.moved_at >= STALLED_S:
                self._move(stream, sent=stream.acknowledged, acknowledged=stream.acknowledged, now=now)
                self._queue(stream)

    def release(self, now: float) -> None:
        """Free the blocks of what the master has had for a while, and of what it does not want."""
        for stream in self._streams.values():
            if not self._can_punch:
                return
            had, since = stream.noted
            if now - since >= KEPT_S or not since:
                stream.noted = (
                    min(stream.acknowledged, NOTHING_MORE if stream.unwanted is None else stream.unwanted),
                    now,
                )
                stream.punched = self._punch_out(stream, stream.punched, had)
            if stream.unwanted is not None and stream.acknowledged >= NOTHING_MORE:
                stream.dropped = self._punch_out(
                    stream, max(stream.dropped, stream.unwanted), self._size(stream)
                )

    def forget(self, key: AttemptKey) -> None:
        """Stop following the streams of an attempt."""
        for stream in self._by_key.pop(key, {}).values():
            self._in_flight_bytes -= stream.sent - stream.acknowledged
            stream.end = stream.sent
            del self._streams[stream.name]

    def chunks(self, now: float) -> Iterator[Output]:
        """Yield chunks in turns until the window is full or nothing is left."""
        while self.has_more:
            stream = self._ring.popleft()
            stream.is_queued = False
            if stream.sent >= NOTHING_MORE:
                continue
            room = min(MAX_OUTPUT_CHUNK_BYTES, self._window_bytes - self._in_flight_bytes)
            edges = [edge - stream.sent for hole in stream.holes for edge in hole if edge > stream.sent]
            wanted = min(room if stream.end is None else min(room, stream.end - stream.sent), *edges, room)
            data = self._read(stream, wanted) if wanted > 0 else b""
            if not data:
                continue
            reach("agent.output")
            offset = stream.sent
            if stream.acknowledged == offset:
                stream.moved_at = now
            stream.sent += len(data)
            self._in_flight_bytes += len(data)
            if len(data) == wanted and stream.sent != stream.end:
                self._queue(stream)
            yield Output(key=stream.key, rank=stream.rank, stream=stream.stream, offset=offset, data=data)

    def _read(self, stream: _Stream, size: int) -> bytes:
        if any(start <= stream.sent < end for start, end in stream.holes):
            return LOST.ljust(size)[:size]  # offsets stay true, and it is not mistaken for output of the job
        try:
            descriptor = os.open(f"{self._spool}/{stream.name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, size, stream.sent)
        except OSError:
            return b""
        finally:
            os.close(descriptor)

    def _punch_out(self, stream: _Stream, start: int, end: int) -> int:
        """Return where the hole that began before or at `start` ends now."""
        if end - start < PUNCH_BYTES:
            return start
        self._can_punch = self._punch(f"{self._spool}/{stream.name}", start, end)
        return end if self._can_punch else start

    def _size(self, stream: _Stream) -> int:
        try:
            return os.stat(f"{self._spool}/{stream.name}").st_size
        except OSError:
            return 0

    def _move(self, stream: _Stream, *, sent: int, acknowledged: int, now: float) -> None:
        self._in_flight_bytes += (sent - acknowledged) - (stream.sent - stream.acknowledged)
        stream.sent = sent
        stream.acknowledged = acknowledged
        stream.moved_at = now

    def _queue(self, stream: _Stream) -> None:
        if not stream.is_queued:
            stream.is_queued = True
            self._ring.append(stream)
