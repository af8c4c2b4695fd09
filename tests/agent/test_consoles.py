"""What the keeper's processes read, with real processes: pipes, terminals, offsets, floods, and an agent that comes back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mgpu_agent.keeper.consoles import PENDING_BYTES, WRITERS, Console
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.messages import Input, InputAck, Resize, Warn
from tests.agent.test_keeper import Conversation, Keepers

KEY = AttemptKey(JobId("AB12CD34"), 1, 1)


def typed(offset: int, data: bytes = b"", writer: str = "one", *, eof: bool = False) -> Input:
    return Input(key=KEY, rank=0, writer=writer, offset=offset, data=data, eof=eof)


def ack(offset: int, writer: str = "one", *, again: bool = False, closed: bool = False) -> InputAck:
    return InputAck(key=KEY, rank=0, writer=writer, offset=offset, again=again, closed=closed)


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Conversation]:
    keepers = Keepers(tmp_path / "node")
    keepers.start()
    yield keepers.talk()
    keepers.close()


@pytest.fixture
def pipe() -> Iterator[tuple[Console, int]]:
    """A console, and the end that its process would read."""
    console = Console.pipe()
    reader = os.dup(console.child_end)
    console.started()
    yield console, reader
    console.close()
    os.close(reader)


def test_every_byte_is_taken_once(pipe: tuple[Console, int]) -> None:
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


def test_what_is_not_read_waits_up_to_a_limit_and_is_asked_for_again(pipe: tuple[Console, int]) -> None:
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


def test_nobody_reads_any_more(pipe: tuple[Console, int]) -> None:
    console, reader = pipe
    os.dup2(os.open(os.devnull, os.O_RDONLY), reader)
    assert console.take(typed(0, b"abc")) == (ack(0, closed=True),) or console.take(typed(0, b"abc"))[0].closed
    assert not console.is_open


def test_only_so_many_writers_are_remembered(pipe: tuple[Console, int]) -> None:
    console, _ = pipe
    for number in range(WRITERS + 3):
        console.take(typed(0, b"x", f"writer-{number}"))
    assert console.take(typed(0, b"", "writer-0")) == (ack(0, "writer-0"),)
    assert console.take(typed(0, b"", f"writer-{WRITERS}")) == (ack(1, f"writer-{WRITERS}"),)


def test_a_process_reads_what_is_typed_and_outlives_its_agent(talk: Conversation, tmp_path: Path) -> None:
    talk.say(replace(talk.a_start(KEY, "sh", "-c", 'read a; echo "got $a"; read b; echo "got $b"; cat; exit 5'), stdin=True))
    talk.wait_started(KEY)
    talk.say(typed(0, b"first\n"))
    assert talk.wait_spool(KEY, 2) == ["got", "first"]
    talk.close()
    again = Conversation(tmp_path / "node")
    again.say(typed(3, b"st\nsecond\n"), typed(13, b"rest", eof=True))
    record = again.wait_end(KEY)
    assert (record.exit_code, again.spool(KEY)) == (5, "got first\ngot second\nrest")
    again.say(typed(17, b"late"))
    again.wait(lambda: ack(0, closed=True) in again.news)
    again.close()


def test_a_terminal(talk: Conversation) -> None:
    script = 'test -t 0 && test -t 1 && test -t 2 && echo "is $(stty size)"; '
    script += 'trap "stty size" WINCH; trap "echo interrupted; exit 6" INT; echo ready; '
    script += "while :; do sleep 0.05; done"
    talk.say(replace(talk.a_start(KEY, "bash", "-c", script), pty=True, rows=11, columns=33))
    assert talk.wait_spool(KEY, 4) == ["is", "11", "33", "ready"]
    talk.say(Resize(key=KEY, rank=0, rows=22, columns=44))
    assert talk.wait_spool(KEY, 6)[-2:] == ["22", "44"]
    talk.say(Resize(key=KEY, rank=0, rows=22, columns=44))  # a new one of the same size: drawn anew
    assert talk.wait_spool(KEY, 8)[-2:] == ["22", "44"]
    talk.say(typed(0, b"\x03"))
    record = talk.wait_end(KEY)
    assert record.exit_code == 6
    assert talk.spool(KEY).endswith("interrupted\n")


def test_the_end_of_what_is_piped_into_a_terminal(talk: Conversation) -> None:
    talk.say(replace(talk.a_start(KEY, "cat"), pty=True))
    talk.wait_started(KEY)
    talk.say(typed(0, b"line\n", eof=True), typed(0, b"line\n", eof=True))
    assert talk.wait_end(KEY).exit_code == 0
    assert talk.spool(KEY).split() == ["line", "line"]


def test_a_flood_in_a_terminal_is_all_there_at_its_end(talk: Conversation) -> None:
    talk.say(replace(talk.a_start(KEY, "seq", "200000"), pty=True))
    record = talk.wait_end(KEY)
    lines = [f"{number}\r\n" for number in range(1, 200_001)]
    assert talk.spool(KEY) == "".join(lines).replace("\r", "")
    assert record.stdout_bytes == sum(map(len, lines))


def test_a_warning_goes_once_to_those_who_handle_it_else_to_all(talk: Conversation) -> None:
    inner = "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: print('warned', flush=True))\n"
    inner += "print('up', flush=True)\nwhile True: time.sleep(0.05)"
    talk.start(KEY, "sh", "-c", f'python3 -c "{inner}"; true')
    assert talk.wait_spool(KEY, 1) == ["up"]
    talk.say(Warn(key=KEY, signal=10, serial=1.0), Warn(key=KEY, signal=10, serial=1.0))
    assert talk.wait_spool(KEY, 2) == ["up", "warned"]
    talk.say(Warn(key=KEY, signal=10, serial=2.0), Warn(key=KEY, signal=10_000, serial=3.0))
    assert talk.wait_spool(KEY, 3) == ["up", "warned", "warned"]
    talk.say(Warn(key=KEY, signal=12, serial=4.0))  # nobody handles this one
    assert talk.wait_end(KEY).signal == 12
