"""What the keeper's processes read, with real processes: pipes, terminals, offsets, floods, and an agent that
comes back.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from mgpu_agent.keeper.consoles import PENDING_BYTES, WRITERS, Consoles, TaskConsole
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.messages import Input, InputAck, Resize
from mgpu_agent.run_as.spawn import SpawnFailure, Stdin

KEY = AttemptKey(JobId("AB12CD34"), 1, 1)


def typed(offset: int, data: bytes = b"", writer: str = "one", *, eof: bool = False) -> Input:
    return Input(key=KEY, rank=0, writer=writer, offset=offset, data=data, eof=eof)


def ack(offset: int, writer: str = "one", *, again: bool = False, closed: bool = False) -> InputAck:
    return InputAck(key=KEY, rank=0, writer=writer, offset=offset, again=again, closed=closed)


@pytest.fixture
def pipe() -> Iterator[tuple[TaskConsole, int]]:
    """A console, and the end that its process would read."""
    console = TaskConsole.pipe()
    reader = os.dup(console.child_end)
    console.started()
    yield console, reader
    console.close()
    os.close(reader)


def test_every_byte_is_taken_once(pipe: tuple[TaskConsole, int]) -> None:
    console, reader = pipe
    assert console.take(typed(0, b"abc")) == (ack(3),)
    assert console.take(typed(0, b"abc")) == (ack(3),)
    assert console.take(typed(2, b"cde")) == (ack(5),)
    assert console.take(typed(9, b"late")) == (ack(5, again=True),)
    assert console.take(typed(0)) == (ack(5),)
    assert console.take(typed(0, b"other", "two")) == (ack(5, "two"),)
    assert console.take(typed(5, eof=True)) == (ack(5, closed=True),)
    assert console.take(typed(5, b"more")) == (ack(5, closed=True),)
    assert os.read(reader, 100) == b"abcdeother"
    assert os.read(reader, 100) == b""


def test_what_is_not_read_waits_up_to_a_limit_and_is_asked_for_again(pipe: tuple[TaskConsole, int]) -> None:
    console, reader = pipe
    piece = bytes(64 * 1024)
    offset = 0
    while acks := console.take(typed(offset, piece)):
        assert acks[0].offset <= offset + len(piece)
        offset += len(piece)
        assert offset <= 2 * PENDING_BYTES
    read = 0
    told: tuple[InputAck, ...] = ()
    while not any(one.again for one in told):
        read += len(os.read(reader, 1 << 20))
        told = console.write(KEY, 0)
    assert told[-1].offset <= offset
    while read < offset:
        read += len(os.read(reader, 1 << 20))
        console.write(KEY, 0)
    assert console.take(typed(offset, b"end")) == (ack(offset + 3),)


def test_nobody_reads_any_more(pipe: tuple[TaskConsole, int]) -> None:
    console, reader = pipe
    os.dup2(os.open(os.devnull, os.O_RDONLY), reader)
    assert (
        console.take(typed(0, b"abc")) == (ack(0, closed=True),) or console.take(typed(0, b"abc"))[0].closed
    )
    assert not console.is_open


def test_only_so_many_writers_are_remembered(pipe: tuple[TaskConsole, int]) -> None:
    console, _ = pipe
    for number in range(WRITERS + 3):
        console.take(typed(0, b"x", f"writer-{number}"))
    assert console.take(typed(0, b"", "writer-0")) == (ack(0, "writer-0"),)
    assert console.take(typed(0, b"", f"writer-{WRITERS}")) == (ack(1, f"writer-{WRITERS}"),)


def filled(console: TaskConsole) -> int:
    """Type until the pipe takes no more; return how much was typed."""
    offset = 0
    while console.take(typed(offset, bytes(64 * 1024))) == (ack(offset + 64 * 1024),):
        offset += 64 * 1024
    return offset + 64 * 1024


def test_a_console_says_what_is_to_be_polled_for(pipe: tuple[TaskConsole, int]) -> None:
    console, reader = pipe
    quiet = console.wanted
    offset = filled(console)
    full = console.wanted
    os.read(reader, 1 << 20)
    told = console.write(KEY, 0)
    console.take(typed(offset, eof=True))
    while console.wanted:
        os.read(reader, 1 << 20)
        console.write(KEY, 0)

    assert (quiet, full, told) == (0, select.POLLOUT, (ack(offset),))
    assert (console.is_open, console.near, console.write(KEY, 0)) == (False, -1, ())


def test_an_acknowledgement_counts_what_the_process_was_handed(pipe: tuple[TaskConsole, int]) -> None:
    """What waits here is not acknowledged: after a crash of the keeper it would be gone."""
    console, reader = pipe
    offset = filled(console)
    (before,) = console.take(typed(offset))
    waiting = offset - before.offset
    other = console.take(typed(0, b"other", "two"))
    assert 0 < waiting <= 64 * 1024
    assert other == (ack(0, "two"),)
    told, read = [], b""
    while not read.endswith(b"other"):
        read = os.read(reader, 1 << 20)
        told += console.write(KEY, 0)
    assert told == [ack(offset), ack(5, "two")]


def test_who_was_turned_away_is_asked_when_half_of_the_room_is_free(pipe: tuple[TaskConsole, int]) -> None:
    console, reader = pipe
    offset = filled(console)
    assert console.take(typed(0, bytes(PENDING_BYTES), "two")) == ()
    os.read(reader, 1 << 20)
    told = console.write(KEY, 0)
    assert ack(offset) in told
    assert console.write(KEY, 0) == ()


def test_one_large_piece_is_always_taken_when_nothing_waits(pipe: tuple[TaskConsole, int]) -> None:
    console, reader = pipe
    size = PENDING_BYTES + 70_000
    (first,) = console.take(typed(0, b"x" * size))
    read = 0
    while read < size:
        read += len(os.read(reader, 1 << 20))
        console.write(KEY, 0)
    assert 0 < first.offset < size
    assert console.take(typed(size, b"y")) == (ack(size + 1),)


def test_an_end_that_was_told_of_too_early_is_none(pipe: tuple[TaskConsole, int]) -> None:
    console, reader = pipe
    assert console.take(typed(0, b"abcdef")) == (ack(6),)
    assert console.take(typed(0, b"abc", eof=True)) == (ack(6),)
    assert console.is_open
    assert console.take(typed(3, b"def", eof=True)) == (ack(6, closed=True),)
    assert os.read(reader, 100) == b"abcdef"
    assert console.take(typed(0, b"x", "two")) == (ack(0, "two", closed=True),)


def test_a_writer_with_bytes_that_wait_is_not_forgotten(pipe: tuple[TaskConsole, int]) -> None:
    console, _ = pipe
    offset = filled(console)
    for number in range(WRITERS + 3):
        console.take(typed(0, b"x", f"writer-{number}"))
    assert console.take(typed(offset)) != (ack(0),)
    assert console.take(typed(offset))[0].offset > 0


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[TaskConsole]:
    console = TaskConsole.in_terminal(str(tmp_path / "a.out"), str(tmp_path / "a.err"), 30, 100)
    yield console
    console.close()


def size_of(console: TaskConsole) -> tuple[int, int]:
    return struct.unpack("4H", fcntl.ioctl(console.child_end, termios.TIOCGWINSZ, bytes(8)))[:2]


def test_a_terminal_has_its_size_and_its_files(terminal: TaskConsole, tmp_path: Path) -> None:
    sizes = [size_of(terminal)]
    for rows, columns in ((40, 120), (40, 120), (0, 100_000)):
        terminal.resize(Resize(key=KEY, rank=0, rows=rows, columns=columns))
        sizes.append(size_of(terminal))

    assert sizes == [(30, 100), (40, 120), (40, 120), (1, 0xFFFF)]
    assert [(path.name, path.stat().st_mode & 0o777) for path in sorted(tmp_path.iterdir())] == [
        ("a.err", 0o600),
        ("a.out", 0o600),
    ]
    assert (os.ttyname(terminal.child_end), terminal.wanted, terminal.is_open) == (
        terminal.terminal,
        select.POLLIN,
        True,
    )


def test_what_a_terminal_shows_goes_to_its_file_until_it_is_closed(
    terminal: TaskConsole, tmp_path: Path
) -> None:
    terminal.started()
    os.write(terminal.child_end, b"first ")
    has_more = terminal.read()
    early = (tmp_path / "a.out").read_bytes()
    os.write(terminal.child_end, b"last")
    terminal.close()
    terminal.close()

    assert (has_more, early, (tmp_path / "a.out").read_bytes()) == (True, b"first ", b"first last")
    assert (terminal.near, terminal.child_end, terminal.wanted, terminal.is_open) == (-1, -1, 0, False)
    terminal.resize(Resize(key=KEY, rank=0, rows=1, columns=1))


def test_the_end_of_one_writer_does_not_end_a_terminal(terminal: TaskConsole) -> None:
    attributes = termios.tcgetattr(terminal.child_end)
    attributes[3] &= ~termios.ICANON & ~termios.ECHO
    termios.tcsetattr(terminal.child_end, termios.TCSANOW, attributes)
    told = [
        terminal.take(typed(0, b"a", eof=True)),
        terminal.take(typed(1, eof=True)),  # repeated
        terminal.take(typed(0, b"b", "two")),
    ]

    assert told == [(ack(1),), (ack(1),), (ack(1, "two"),)]
    read = b""
    while len(read) < 3:  # the kernel passes on what is written to a terminal in its own time
        read += os.read(terminal.child_end, 100)
    assert read == b"a\x04b"


class Start(msgspec.Struct):
    """What of a launch matters here."""

    key: AttemptKey = KEY
    pty: bool = False
    rows: int = 24
    columns: int = 80


def test_all_consoles_are_polled_while_there_is_something_to_do(tmp_path: Path) -> None:
    poll = select.poll()
    consoles = Consoles(poll, tmp_path)
    start = Start()
    stdin = consoles.open(start, 0, "a")  # type: ignore[arg-type]
    assert isinstance(stdin, Stdin)
    reader = os.dup(stdin.descriptor)
    consoles.started(KEY, 0)
    consoles.started(KEY, 7)  # which reads nothing
    offset = 0
    while consoles.take(typed(offset, bytes(64 * 1024))) == (ack(offset + 64 * 1024),):
        offset += 64 * 1024
    offset += 64 * 1024
    full = poll.poll(0)
    os.read(reader, 1 << 20)
    ready = dict(poll.poll(0))
    told = consoles.serve(ready)
    idle = poll.poll(0)
    stranger = consoles.take(replace(typed(0, b"x"), rank=7))
    consoles.resize(Resize(key=KEY, rank=0, rows=1, columns=1))
    consoles.resize(Resize(key=KEY, rank=7, rows=1, columns=1))
    consoles.remove(KEY, 0)
    consoles.remove(KEY, 0)

    assert (full, list(ready.values()), told, idle) == ([], [select.POLLOUT], (ack(offset),), [])
    assert stranger == (InputAck(key=KEY, rank=7, writer="one", offset=0, closed=True),)
    assert consoles.take(typed(offset)) == (ack(0, closed=True),)
    os.close(reader)


def test_a_pipe_whose_reader_is_gone_is_polled_no_more(tmp_path: Path) -> None:
    poll = select.poll()
    consoles = Consoles(poll, tmp_path)
    stdin = consoles.open(Start(), 0, "a")  # type: ignore[arg-type]
    assert isinstance(stdin, Stdin)
    reader = os.dup(stdin.descriptor)
    consoles.started(KEY, 0)
    offset = 0
    while consoles.take(typed(offset, bytes(64 * 1024))) == (ack(offset + 64 * 1024),):
        offset += 64 * 1024
    os.close(reader)
    ready = dict(poll.poll(0))
    consoles.serve(ready)

    assert [events & select.POLLERR for events in ready.values()] == [select.POLLERR]
    assert poll.poll(0) == []
    assert consoles.take(typed(0))[0].closed
    consoles.close()


def test_a_terminal_is_polled_until_it_is_removed(tmp_path: Path) -> None:
    poll = select.poll()
    consoles = Consoles(poll, tmp_path)
    stdin = consoles.open(Start(pty=True, rows=10, columns=20), 0, "a")  # type: ignore[arg-type]
    assert isinstance(stdin, Stdin)
    consoles.started(KEY, 0)
    consoles.resize(Resize(key=KEY, rank=0, rows=11, columns=21))
    size = struct.unpack("4H", fcntl.ioctl(stdin.descriptor, termios.TIOCGWINSZ, bytes(8)))[:2]
    os.write(stdin.descriptor, b"shown")
    ready = dict(poll.poll(1000))
    told = consoles.serve(ready)
    shown = (tmp_path / "a.out").read_bytes()
    os.write(stdin.descriptor, b" more")
    consoles.close()

    assert (stdin.terminal.startswith("/dev/pts/"), size, told, shown) == (True, (11, 21), (), b"shown")
    assert (tmp_path / "a.out").read_bytes() == b"shown more"
    assert poll.poll(0) == []


def test_a_console_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    consoles = Consoles(select.poll(), tmp_path / "gone")

    assert consoles.open(Start(pty=True), 0, "a") == SpawnFailure(  # type: ignore[arg-type]
        "no-terminal",
        "The node could not make a pipe or terminal for the job: No such file or directory.",
        "node",
    )
