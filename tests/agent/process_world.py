"""A process table that a test makes up, under the keeper's live tasks, and the signals that went out."""

from __future__ import annotations

import os
import signal

import pytest

from mgpu_agent.keeper import live_tasks, trees
from mgpu_agent.keeper.live_tasks import LiveTask, LiveTasks
from mgpu_agent.keeper.trees import Process, ProcessTable
from tests.agent.keepers import a_key

KEEPER = 100
ANNE, BERT = 1001, 1002


class Machine:
    """The process table, and the signals that went out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processes: dict[int, Process] = {}
        self.markers: dict[int, bytes] = {}
        self.users: dict[int, int] = {}
        self.children: set[int] = set()
        self.ended: list[tuple[int, int]] = []
        self.handling: set[int] = set()
        self.forbidden: set[int] = set()
        self.sent: list[tuple[list[int], tuple[signal.Signals, ...]]] = []
        self.readings = 0
        self.run(KEEPER, parent=1, session=KEEPER)
        monkeypatch.setattr(live_tasks.os, "getpid", lambda: KEEPER)
        for module in (live_tasks, trees):
            monkeypatch.setattr(module, "read_process", self.processes.get)
            monkeypatch.setattr(module, "read_marker", lambda pid: self.markers.get(pid, b""))
            monkeypatch.setattr(module, "uid_of", lambda pid: self.users.get(pid, -1))
            monkeypatch.setattr(module, "send_signals", self._send)
        monkeypatch.setattr(live_tasks, "children_of_this_process", lambda: set(self.children))
        monkeypatch.setattr(live_tasks, "handles_signal", lambda pid, _: pid in self.handling)
        monkeypatch.setattr(live_tasks.ProcessTable, "read", self._read)
        monkeypatch.setattr(live_tasks.os, "waitpid", self._wait)

    def run(
        self,
        pid: int,
        parent: int = 1,
        *,
        session: int = 0,
        marker: bytes = b"",
        user: int = 0,
        start: int = 1,
    ) -> int:
        self.processes[pid] = Process(pid, parent, session or pid, session or pid, start)
        self.markers[pid], self.users[pid] = marker, user
        if parent == KEEPER:
            self.children.add(pid)
        return pid

    def end(self, pid: int, status: int = 0) -> None:
        self.vanish(pid)
        self.ended.append((pid, status))

    def vanish(self, *pids: int) -> None:
        for pid in pids:
            self.processes.pop(pid, None)
            self.children.discard(pid)

    def take_sent(self) -> list[tuple[list[int], tuple[signal.Signals, ...]]]:
        sent, self.sent = self.sent, []
        return [one for one in sent if one[0]]

    def _read(self) -> ProcessTable:
        self.readings += 1
        return ProcessTable(dict(self.processes))

    def _send(self, processes: list[Process], *signals: signal.Signals) -> list[Process]:
        self.sent.append((sorted(process.pid for process in processes), signals))
        return [process for process in processes if process.pid in self.forbidden]

    def _wait(self, pid: int, options: int) -> tuple[int, int]:
        assert (pid, options) == (-1, os.WNOHANG)
        if self.ended:
            return self.ended.pop(0)
        if self.children:
            return 0, 0
        raise ChildProcessError


class Helpers:
    """Two helpers; one of them ends."""

    pids = frozenset((90, 91))

    def is_reaped(self, pid: int) -> bool:
        return pid in self.pids


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def a_task(
    live: LiveTasks, machine: Machine, pid: int, number: int = 1, rank: int = 0, uid: int | None = None
) -> LiveTask:
    """Start a leader with a session of its own."""
    marker = f"mark-{number}-{rank}".encode()
    machine.run(pid, KEEPER, marker=marker, user=uid or os.getuid())
    task = LiveTask(a_key(number), rank, pid, marker, uid=uid)
    live.add(task)
    return task


def over(tasks: list[LiveTask]) -> list[tuple[int, int | None, int | None]]:
    return [(task.pid, task.exit_code, task.signal) for task in tasks]
