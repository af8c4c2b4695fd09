"""The stdin of a keeper's processes: pipes for typed input, and terminals whose output goes to the spool.

The keeper holds the near end of each, so that a session goes on without an agent. Offsets count what each
writer sent, and a byte that was accepted once is never accepted again. What a process does not read yet waits
here up to a limit; beyond it the writer is asked again later. Nothing here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import termios
import time
from collections import deque
from pathlib import Path

from mgpu_agent.keeper.messages import StartTasks
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import Input, InputAck, Resize
from mgpu_agent.run_as.spawn import SpawnFailure, Stdin

PENDING_BYTES = 256 * 1024  # twice what one writer sends ahead
WRITERS = 64
READ_BYTES = 64 * 1024
DRAIN_S = 0.5
HELD_READS = 64  # the kernel holds some 64 KiB of a terminal's output, and gives 4 KiB at a time
MAX_SIZE = 0xFFFF  # of rows and columns
_END_OF_FILE = b"\x04"  # a terminal takes it for the end of the file
_NOBODY = ""
_OUTPUT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
TaskKey = tuple[AttemptKey, int]


class TaskConsole:
    """The stdin of one process. Owns its descriptors."""

    def __init__(self, near: int, child_end: int, terminal: str = "", spool: int = -1) -> None:
        os.set_blocking(near, False)
        self.near = near
        """The end that the keeper writes to, and, of a terminal, reads from."""
        self.child_end = child_end
        self.terminal = terminal
        """The terminal's path; empty for a pipe."""
        self._spool = spool
        self._pending: deque[tuple[str, bytes, bool]] = deque()
        self._pending_bytes = 0
        self._taken: dict[str, int] = {}
        self._turned_away: set[str] = set()
        self._done: set[str] = set()
        self._ended = False

    @classmethod
    def pipe(cls) -> TaskConsole:
        """Return a console that is a plain pipe."""
        far, near = os.pipe()
        return cls(near, far)

    @classmethod
    def in_terminal(cls, stdout: str, stderr: str, rows: int, columns: int) -> TaskConsole:
        """Return a console that is a terminal; its output goes to the file `stdout`."""
        os.close(os.open(stderr, _OUTPUT_FLAGS, 0o600))
        spool = os.open(stdout, _OUTPUT_FLAGS, 0o600)
        try:
            near, far = os.openpty()
        except OSError:
            os.close(spool)
            raise
        _set_size(near, rows, columns)
        return cls(near, far, os.ttyname(far), spool)

    @property
    def is_open(self) -> bool:
        """Tell whether input is still accepted."""
        return self.near >= 0 and not self._ended

    @property
    def wanted(self) -> int:
        """Return the events that the keeper should poll for."""
        if self.near < 0:
            return 0
        return (select.POLLOUT if self._pending else 0) | (select.POLLIN if self.terminal else 0)

    def started(self) -> None:
        """Close the far end of a pipe, so that a reader's end is noticed; a terminal stays open."""
        if not self.terminal:
            os.close(self.child_end)
            self.child_end = -1

    # --- input ---------------------------------------------------------------------------------------

    def take(self, message: Input) -> tuple[InputAck, ...]:
        """Accept the part of this that is new, and return how far its writer is."""
        if not self.is_open:
            return (
                _ack(
                    message.key, message.rank, message.writer, self._taken.get(message.writer, 0), closed=True
                ),
            )
        taken = self._taken.pop(message.writer, 0)
        self._taken[message.writer] = taken  # the newest last
        new = message.data[taken - message.offset :] if message.offset <= taken else b""
        if message.offset > taken:
            return (self._answer(message, again=True),)
        if new and self._pending_bytes and self._pending_bytes + len(new) > PENDING_BYTES:
            self._turned_away.add(message.writer)
            return ()
        is_end = message.eof and message.offset + len(message.data) >= taken
        if new or is_end:
            self._put(message.writer, new, is_end=is_end and not self.terminal)
            self._taken[message.writer] = taken + len(new)
        if is_end and self.terminal and message.writer not in self._done:
            # A terminal stays open after an end of file: others may still type.
            self._done.add(message.writer)
            self._put(_NOBODY, _END_OF_FILE, is_end=False)
        self._forget_writers()
        acks = {ack.writer: ack for ack in self.write(message.key, message.rank)}
        acks.setdefault(message.writer, self._answer(message))
        return tuple(acks.values())

    def write(self, key: AttemptKey, rank: int) -> tuple[InputAck, ...]:
        """Write what the process can read now; return the progress of each writer."""
        moved: dict[str, None] = {}
        while self._pending and self.near >= 0:
            writer, data, is_end = self._pending[0]
            try:
                written = os.write(self.near, data) if data else 0
            except BlockingIOError:
                break
            except OSError:  # nobody reads any more
                self._end()
                break
            moved[writer] = None
            if written < len(data):
                self._pending_bytes -= written
                self._pending[0] = (writer, data[written:], is_end)
                break
            self._pending.popleft()
            self._pending_bytes -= written
            if is_end:
                self._end()
        if self._pending_bytes < PENDING_BYTES // 2:
            moved.update(dict.fromkeys(self._turned_away))
        acks = [
            _ack(
                key,
                rank,
                writer,
                self._position(writer),
                again=writer in self._turned_away,
                closed=not self.is_open,
            )
            for writer in moved
            if writer != _NOBODY
        ]
        self._turned_away.difference_update(moved)
        return tuple(acks)

    def _put(self, writer: str, data: bytes, *, is_end: bool) -> None:
        self._pending.append((writer, data, is_end))
        self._pending_bytes += len(data)

    def _answer(self, message: Input, *, again: bool = False) -> InputAck:
        return _ack(
            message.key,
            message.rank,
            message.writer,
            self._position(message.writer),
            again=again,
            closed=not self.is_open,
        )

    def _position(self, writer: str) -> int:
        waiting = sum(len(data) for one, data, _ in self._pending if one == writer)
        return max(0, self._taken.get(writer, 0) - waiting)

    def _forget_writers(self) -> None:
        waiting = {writer for writer, _, _ in self._pending}
        for writer in list(self._taken)[: max(0, len(self._taken) - WRITERS)]:
            if writer not in waiting:
                del self._taken[writer]
                self._done.discard(writer)

    def _end(self) -> None:
        self._ended = True
        self._pending.clear()
        self._pending_bytes = 0
        if not self.terminal:
            os.close(self.near)
            self.near = -1

    # --- the terminal --------------------------------------------------------------------------------

    def resize(self, message: Resize) -> None:
        """Resize the terminal, and make its programs redraw even if the size is the same."""
        if not self.terminal or self.near < 0:
            return
        with contextlib.suppress(OSError):
            if _set_size(self.near, message.rows, message.columns):
                return
            group = struct.unpack("i", fcntl.ioctl(self.near, termios.TIOCGPGRP, struct.pack("i", 0)))[0]
            if group > 0:
                os.killpg(group, signal.SIGWINCH)

    def read(self) -> bool:
        """Copy one chunk of the terminal's output to the spool; tell whether there may be more."""
        try:
            data = os.read(self.near, READ_BYTES)
        except OSError as error:
            return error.errno == errno.EINTR
        rest = memoryview(data)
        with contextlib.suppress(OSError):  # a full disk: as for a process that writes there itself
            while rest:
                rest = rest[os.write(self._spool, rest) :]
        return bool(data)

    def close(self) -> None:
        """Copy the rest to the spool, and close all descriptors."""
        if self.child_end >= 0:
            os.close(self.child_end)
            self.child_end = -1
        if self.terminal and self.near >= 0:
            # With the last far end closed, the kernel tells when all was read. Who still writes there is not
            # waited for: beyond the time only what the kernel holds is read, however late this comes to it.
            give_up_at = time.monotonic() + DRAIN_S
            poll = select.poll()
            poll.register(self.near, select.POLLIN)
            late = 0
            while late < HELD_READS:
                left_s = give_up_at - time.monotonic()
                late += left_s <= 0
                if not poll.poll(max(0, int(left_s * 1000))) or not self.read():
                    break
        for descriptor in (self.near, self._spool):
            if descriptor >= 0:
                os.close(descriptor)
        self.near = self._spool = -1


class Consoles:
    """All consoles of a keeper, and their descriptors to poll."""

    def __init__(self, poll: select.poll, spool: Path) -> None:
        self._poll = poll
        self._spool = spool
        self._all: dict[TaskKey, TaskConsole] = {}
        self._polled: dict[int, tuple[TaskKey, int]] = {}

    def open(self, start: StartTasks, rank: int, stem: str) -> Stdin | SpawnFailure:
        """Open the stdin of a process that is not started yet; a terminal's output goes to the spool file of
        this name.
        """
        stdout, stderr = f"{self._spool}/{stem}.out", f"{self._spool}/{stem}.err"
        try:
            console = (
                TaskConsole.in_terminal(stdout, stderr, start.rows, start.columns)
                if start.pty
                else TaskConsole.pipe()
            )
        except OSError as error:
            return SpawnFailure(
                "no-terminal",
                f"The node could not make a pipe or terminal for the job: {error.strerror}.",
                "node",
            )
        self._all[start.key, rank] = console
        return Stdin(console.terminal, console.child_end)

    def started(self, key: AttemptKey, rank: int) -> None:
        """Note that the process has its end."""
        console = self._all.get((key, rank))
        if console is not None:
            console.started()
            self._register((key, rank), console)

    def take(self, message: Input) -> tuple[InputAck, ...]:
        """Accept input; a process without a console accepts none."""
        task = (message.key, message.rank)
        console = self._all.get(task)
        if console is None:
            return (_ack(message.key, message.rank, message.writer, 0, closed=True),)
        acks = console.take(message)
        self._register(task, console)
        return acks

    def resize(self, message: Resize) -> None:
        """Give a terminal another size."""
        console = self._all.get((message.key, message.rank))
        if console is not None:
            console.resize(message)

    def serve(self, ready: dict[int, int]) -> tuple[InputAck, ...]:
        """Read and write where the poll says it is possible; return the progress of writers."""
        acks: list[InputAck] = []
        for descriptor in ready.keys() & self._polled.keys():
            task, _ = self._polled[descriptor]
            console = self._all[task]
            if ready[descriptor] & (select.POLLIN | select.POLLHUP) and console.terminal:
                console.read()
            if ready[descriptor] & (select.POLLOUT | select.POLLERR):
                acks += console.write(*task)
            self._register(task, console, descriptor)
        return tuple(acks)

    def remove(self, key: AttemptKey, rank: int) -> None:
        """Close the console of a process that is gone, after copying the rest of its output to the spool."""
        console = self._all.pop((key, rank), None)
        if console is not None:
            if console.near in self._polled:
                self._drop(console.near)
            console.close()

    def close(self) -> None:
        """Close all consoles."""
        for key, rank in list(self._all):
            self.remove(key, rank)

    def _register(self, task: TaskKey, console: TaskConsole, before: int | None = None) -> None:
        if console.near < 0:
            if before is not None or (before := self._descriptor_of(task)) is not None:
                self._drop(before)
            return
        wanted = console.wanted
        known = self._polled.get(console.near)
        if not wanted:
            if known is not None:
                self._drop(console.near)
        elif known is None:
            self._poll.register(console.near, wanted)
        elif known[1] != wanted:
            self._poll.modify(console.near, wanted)
        if wanted:
            self._polled[console.near] = (task, wanted)

    def _descriptor_of(self, task: TaskKey) -> int | None:
        return next((descriptor for descriptor, (one, _) in self._polled.items() if one == task), None)

    def _drop(self, descriptor: int) -> None:
        if self._polled.pop(descriptor, None) is not None:
            with contextlib.suppress(KeyError, OSError):
                self._poll.unregister(descriptor)


def _ack(
    key: AttemptKey, rank: int, writer: str, offset: int, *, again: bool = False, closed: bool = False
) -> InputAck:
    return InputAck(key=key, rank=rank, writer=writer, offset=offset, again=again, closed=closed)


def _set_size(descriptor: int, rows: int, columns: int) -> bool:
    """Set the size of a terminal; tell whether it changed, of which the kernel informs its programs."""
    size = struct.pack("4H", *(min(max(1, number), MAX_SIZE) for number in (rows, columns)), 0, 0)
    before = fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, size)
    return before != size
