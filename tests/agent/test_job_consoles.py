"""What is typed into processes of a real keeper, and what their terminals show."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mgpu_agent.keeper import consoles
from mgpu_agent.keeper.consoles import TaskConsole
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.messages import Input, InputAck, Resize, Warn
from tests.agent.keepers import Conversation, Keepers

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


def test_a_process_reads_what_is_typed_and_outlives_its_agent(talk: Conversation, tmp_path: Path) -> None:
    talk.say(
        replace(
            talk.a_start(KEY, "sh", "-c", 'read a; echo "got $a"; read b; echo "got $b"; cat; exit 5'),
            stdin=True,
        )
    )
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


TERMINAL = """
import os, signal
SIGNALS = (signal.SIGWINCH, signal.SIGINT)
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
def size():
    columns, rows = os.get_terminal_size(0)
    return f"{rows} {columns}"
print("is" if all(map(os.isatty, (0, 1, 2))) else "is not", size(), "ready", flush=True)
while signal.sigwait(SIGNALS) == signal.SIGWINCH:
    print(size(), flush=True)
print("interrupted", flush=True)
raise SystemExit(6)
"""
"""A trap of bash would not do: it forgets a signal that comes while it is carried out."""


def test_a_terminal(talk: Conversation) -> None:
    start = talk.a_start(KEY, sys.executable, "-ISc", TERMINAL)
    talk.say(replace(start, pty=True, rows=11, columns=33))
    assert talk.wait_spool(KEY, 4) == ["is", "11", "33", "ready"]
    talk.say(Resize(key=KEY, rank=0, rows=22, columns=44))
    assert talk.wait_spool(KEY, 6)[-2:] == ["22", "44"]
    talk.say(Resize(key=KEY, rank=0, rows=22, columns=44))  # a new one of the same size: drawn anew
    assert talk.wait_spool(KEY, 8)[-2:] == ["22", "44"]
    talk.say(typed(0, b"\x03"))
    record = talk.wait_end(KEY)
    assert record.exit_code == 6
    assert talk.spool(KEY).endswith("interrupted\n")


def test_what_a_terminal_shows_last_is_kept_however_busy_the_machine_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consoles, "DRAIN_S", 0.0)  # the keeper came to it too late
    console = TaskConsole.in_terminal(str(tmp_path / "out"), str(tmp_path / "err"), 24, 80)
    os.write(console.child_end, b"last words")
    console.close()
    assert (tmp_path / "out").read_text() == "last words"


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
