"""Agents that are started again after they were killed, and what /proc says of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mgpu_agent.keeper import agent_starter, trees
from mgpu_agent.keeper.agent_starter import AgentStarter, order_agent
from mgpu_agent.keeper.trees import Process, ProcessTable, handles_signal, read_marker, read_process, uid_of
from tests.agent.master import wait_until

# --- agents that are started again -----------------------------------------------------------------------


class Starts:
    """A clock, and the agents that were started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
        self.now = 1_000.0
        self.started: list[tuple[str, ...]] = []
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        self.starter = AgentStarter(self.reader, log)
        monkeypatch.setattr(agent_starter, "time", self)
        monkeypatch.setattr(agent_starter, "start_program", self._start)

    def monotonic(self) -> float:
        return self.now

    def _start(self, words: tuple[str, ...], environment: object, *, errors: int) -> int:
        assert environment is os.environ
        os.write(errors, b"begun\n")
        self.started.append(words)
        return 900 + len(self.started)

    def order(self, *words: str) -> tuple[bool, float | None]:
        order_agent(self.writer, words)
        return self.starter.take_order(), self.starter.wait_s()


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Starts]:
    starts = Starts(monkeypatch, tmp_path / "agent.log")
    yield starts
    os.close(starts.reader)


def test_an_agent_is_started_a_moment_after_the_order(starts: Starts, tmp_path: Path) -> None:
    nothing = starts.starter.wait_s()
    order = starts.order("mgpu_node", "--x")
    starts.now += 0.1
    starts.starter.start_if_due()
    early, wait_s = list(starts.started), starts.starter.wait_s()
    starts.now += 0.1
    starts.starter.start_if_due()
    starts.starter.start_if_due()

    assert (nothing, order, early, wait_s) == (None, (True, pytest.approx(0.2)), [], pytest.approx(0.1))
    assert (starts.started, starts.starter.pid, starts.starter.wait_s()) == (
        [("mgpu_node", "--x")],
        901,
        None,
    )
    assert (tmp_path / "agent.log").read_text() == "begun\n"
    assert (tmp_path / "agent.log").stat().st_mode & 0o777 == 0o600
    os.close(starts.writer)


def test_agents_that_keep_dying_come_later_and_later(starts: Starts) -> None:
    delays = []
    for _ in range(10):
        _, wait_s = starts.order("a")
        delays.append(wait_s)
        starts.now += wait_s or 0.0
        starts.starter.start_if_due()
        starts.starter.note_end(is_killed=False)
    starts.now += 60.0
    delays.append(starts.order("a")[1])
    starts.now += 5.0
    overdue = starts.starter.wait_s()

    assert delays == [
        pytest.approx(one) for one in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 0.2)
    ]
    assert overdue == 0.0
    os.close(starts.writer)


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\0\0\0\2\xc1\xc1", b"\x01\0\0\0", b"\0\0\0\5\x91"])
def test_what_is_no_order_is_the_last(starts: Starts, data: bytes) -> None:
    os.write(starts.writer, data)
    os.close(starts.writer)

    assert (starts.starter.take_order(), starts.starter.wait_s()) == (False, None)


def test_an_order_that_nobody_reads_is_no_error(starts: Starts) -> None:
    while True:
        try:
            os.write(starts.writer, bytes(1024))
        except BlockingIOError:
            break
    order_agent(starts.writer, ("a",))
    os.close(starts.reader)
    order_agent(starts.writer, ("a",))
    os.close(starts.writer)
    starts.reader = os.open(os.devnull, os.O_RDONLY)


# --- /proc -----------------------------------------------------------------------------------------------

SLEEPER = (
    "import signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: None); print('on', flush=True); "
    "time.sleep(600)"
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    env = {"A": "1", "MGPU_TASK": "ledger/x/0", "Z": "MGPU_TASK=other"}
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", SLEEPER], env=env, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"on\n"
    yield process
    process.kill()
    process.wait(60)
    process.stdout.close()


def test_what_proc_says_of_a_process(sleeper: subprocess.Popen[bytes]) -> None:
    pid = sleeper.pid
    found = read_process(pid)
    assert found is not None
    assert (found.pid, found.parent, found.group, found.session) == (pid, os.getpid(), pid, pid)
    assert (read_marker(pid), uid_of(pid)) == (b"ledger/x/0", os.getuid())
    assert [handles_signal(pid, number) for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)] == [
        True,
        False,
        False,
    ]
    assert ProcessTable.read().processes[pid] == found
    assert pid in trees.children_of_this_process()
    assert os.getpid() not in trees.children_of_this_process()
    later = Process(pid, found.parent, found.group, found.session, found.start_ticks + 1)
    assert trees.send_signals([later], signal.SIGKILL) == []
    assert read_process(pid) == found
    assert trees.send_signals([found], signal.SIGKILL) == []
    wait_until(lambda: read_process(pid) is None)  # a zombie counts as gone
    assert pid in trees.children_of_this_process()
    sleeper.wait(60)
    gone: list[Callable[[int], object]] = [read_process, read_marker, uid_of]
    assert [ask(pid) for ask in gone] == [None, b"", -1]
    assert (handles_signal(pid, signal.SIGUSR1), trees.send_signals([found], signal.SIGKILL)) == (False, [])


def test_a_process_without_a_mark_has_none() -> None:
    process = subprocess.Popen(["sleep", "600"], env={"XMGPU_TASK": "no"})
    try:
        wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
        assert read_marker(process.pid) == b""
    finally:
        process.kill()
        process.wait(60)
