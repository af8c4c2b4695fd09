"""The live processes of a keeper: the task of each leader, how they end, and that their whole trees end with
them.

Keeps no ledger and speaks to no agent; finished tasks are returned to the caller. Time is passed in.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from typing import Protocol

from mgpu_agent.keeper.trees import (
    Process,
    ProcessTable,
    Seen,
    children_of_this_process,
    handles_signal,
    read_marker,
    read_process,
    send_signals,
    uid_of,
)
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import Warn

LEFTOVER_GRACE_S = 1.0  # processes left behind by a finished leader get this long to end on TERM
RESCAN_S = 0.05
RESCAN_KILL_S = 0.02
UNSEEN = "The helper of its account was ended, so that nobody saw how it ended."


class ReapsHelpers(Protocol):
    """What is needed of the helpers that start processes of other accounts."""

    @property
    def pids(self) -> set[int]:
        """The pids of the helpers."""

    def is_reaped(self, pid: int) -> bool:
        """Note that a child of this process has ended; tell whether it was a helper."""


class LiveTask:
    """One leader and its tree, until no process of it is left."""

    def __init__(
        self, key: AttemptKey, rank: int, pid: int, marker: bytes, *, uid: int | None = None
    ) -> None:
        self.key = key
        self.rank = rank
        self.pid = pid
        self.marker = marker
        self.uid = uid
        """The account that it runs as; None for the keeper's own user."""
        self.told = False
        """Whether the agent was told that it started."""
        self.exited_at: float | None = None
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.reason = ""
        self.lost = False
        self.kill_at: float | None = None
        """When KILL follows TERM; None while it is not being stopped."""
        self.next_scan_at = 0.0
        self.warned: set[tuple[int, int]] = set()
        self.seen = Seen()
        self.warnings: set[float] = set()
        """The warnings before its time limit that were sent."""

    def members(self, table: ProcessTable, spare: set[int]) -> list[Process]:
        """Return its living processes, those seen in earlier readings included."""
        return table.members(
            self.pid, self.marker, self.seen, spare, leader_gone=self.exited_at is not None, uid=self.uid
        )

    def may_own(self, user: int) -> bool:
        """Tell whether a process of this user, somewhere below the keeper, can be one of its own."""
        return self.uid is None or user in (0, self.uid)


class LiveTasks:
    """All live tasks of this keeper."""

    def __init__(self, helpers: ReapsHelpers | None = None) -> None:
        self.tasks: dict[tuple[AttemptKey, int], LiveTask] = {}
        self._helpers = helpers
        self._told: list[tuple[int, int]] = []
        """Ends that helpers reported, each with its status."""
        self._leaders: dict[int, LiveTask] = {}
        self._ending: list[LiveTask] = []

    def add(self, task: LiveTask) -> None:
        """Take care of a process that was just started."""
        self.tasks[task.key, task.rank] = task
        self._leaders[task.pid] = task

    def stop(self, key: AttemptKey, grace_s: float, reason: str, now: float, *, lost: bool = False) -> None:
        """Ask every tree of this attempt to end, and kill it after the grace; a repeated stop can only
        shorten it.
        """
        table: ProcessTable | None = None
        for task in [task for (task_key, _), task in self.tasks.items() if task_key == key]:
            kill_at = now + max(0.0, grace_s)
            if task.kill_at is not None:
                task.kill_at = min(task.kill_at, kill_at)
                continue
            task.reason = reason
            task.lost = lost
            task.kill_at = kill_at
            self._ending.append(task)
            table = table or ProcessTable.read()
            self._press(task, table, now)

    def warn(self, message: Warn) -> None:
        """Signal an attempt, once: the processes that handle the signal, or all if none does."""
        tasks = [
            task
            for (key, _), task in self.tasks.items()
            if key == message.key and message.serial not in task.warnings
        ]
        if not tasks or message.signal not in signal.valid_signals():
            return
        table = ProcessTable.read()
        spare = {os.getpid()} | self._spared()
        members = [process for task in tasks for process in task.members(table, spare)]
        handling = [process for process in members if handles_signal(process.pid, message.signal)]
        send_signals(handling or members, signal.Signals(message.signal))
        for task in tasks:
            task.warnings.add(message.serial)

    def has_attempt(self, key: AttemptKey) -> bool:
        """Tell whether a task of this attempt is alive."""
        return any(task_key == key for task_key, _ in self.tasks)

    def reap(self, now: float, wall: float) -> list[LiveTask]:
        """Collect every child that ended and return the tasks with no process left."""
        exited: list[LiveTask] = []
        told, self._told = self._told, []
        for pid, status in (*told, *_reaped()):
            task = self._leaders.pop(pid, None)
            if task is None:
                if self._helpers is None or not self._helpers.is_reaped(pid):
                    self._scan_soon(now)  # an adopted orphan: the next scan finds its task
                continue
            task.exited_at = wall
            task.exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
            task.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            exited.append(task)
        return self._without_leftovers(exited, now) if exited else []

    @property
    def has_told(self) -> bool:
        """Tell whether `reap` has something to return at once."""
        return bool(self._told)

    def note_ends(self, ended: Iterable[tuple[int, int]]) -> None:
        """Note the ends of processes that helpers report; `reap` returns their tasks."""
        self._told += ended

    def adopt(self, uid: int, live: set[int]) -> None:
        """Take over the processes of a helper that is gone: those it reported are ours now, or ended unseen;
        others must not run.
        """
        children = children_of_this_process()
        for pid in live & self._leaders.keys() - children:
            self._leaders[pid].reason = UNSEEN
            self._told.append((pid, int(signal.SIGKILL)))
        markers = {task.marker for task in self.tasks.values() if task.may_own(uid)}
        sessions = {task.pid for task in self.tasks.values()}
        strangers = (read_process(pid) for pid in children - self._leaders.keys() - self._spared())
        # What it was just starting is not in the ledger as started: it counts as never started and must
        # not run.
        stray = [one for one in strangers if one is not None and uid_of(one.pid) == uid]
        send_signals(
            [one for one in stray if one.session not in sessions and read_marker(one.pid) not in markers],
            signal.SIGKILL,
        )

    def _spared(self) -> set[int]:
        return set() if self._helpers is None else self._helpers.pids

    def sweep(self, now: float) -> list[LiveTask]:
        """Signal the trees that are to end again and return those that are gone."""
        due = [task for task in self._ending if now >= task.next_scan_at]
        if not due:
            return []
        table = ProcessTable.read()
        return [task for task in due if not self._press(task, table, now)]

    def next_sweep_at(self) -> float | None:
        """Return when `sweep` has something to do."""
        return min((task.next_scan_at for task in self._ending), default=None)

    def remove(self, task: LiveTask) -> None:
        """Drop a task of which nothing is left."""
        self.tasks.pop((task.key, task.rank), None)
        if task in self._ending:
            self._ending.remove(task)

    def _scan_soon(self, now: float) -> None:
        for task in self._ending:
            if task.exited_at is not None:
                task.next_scan_at = min(task.next_scan_at, now)

    def _without_leftovers(self, exited: list[LiveTask], now: float) -> list[LiveTask]:
        """Return those that left nothing behind; usually this reads one small file for the whole batch."""
        strangers = children_of_this_process() - self._leaders.keys() - self._spared()
        gone = []
        for task in exited:
            if task.kill_at is not None:
                task.next_scan_at = now
            elif any(self._is_left_by(pid, task) for pid in strangers):
                task.kill_at = now + LEFTOVER_GRACE_S
                task.next_scan_at = now
                self._ending.append(task)
            else:
                gone.append(task)
        return gone

    def _is_left_by(self, pid: int, task: LiveTask) -> bool:
        process = read_process(pid)
        if process is None:
            return False
        if task.pid in (process.session, process.group):
            return True
        marker, user = read_marker(pid), uid_of(pid)
        if marker == task.marker and task.may_own(user):
            return True
        others = [other for other in self.tasks.values() if other is not task]
        if any(
            other.pid == process.session or (marker == other.marker and other.may_own(user))
            for other in others
        ):
            return False
        # It cleared its environment and left its session: this task owns it only if no other one could.
        if self._leaders and (
            not task.may_own(user) or any(leader.may_own(user) for leader in self._leaders.values())
        ):
            return False
        task.seen.add([process])
        return True

    def _press(self, task: LiveTask, table: ProcessTable, now: float) -> bool:
        """Signal the living processes of a tree that is to end; tell whether there are any."""
        spare = {os.getpid()} | self._spared() | self._leaders.keys() - {task.pid}
        members = task.members(table, spare)
        if not members:
            task.next_scan_at = now + RESCAN_KILL_S
            return task.exited_at is None
        assert task.kill_at is not None
        if now >= task.kill_at:
            forbidden = send_signals(members, signal.SIGKILL)
            task.next_scan_at = now + RESCAN_KILL_S
            # What changed its user cannot be signalled: waiting for it would hold the GPU for ever.
            return len(forbidden) < len(members) or task.exited_at is None
        fresh = [process for process in members if (process.pid, process.start_ticks) not in task.warned]
        task.warned.update((process.pid, process.start_ticks) for process in fresh)
        send_signals(fresh, signal.SIGTERM, signal.SIGCONT)
        task.next_scan_at = task.kill_at if task.exited_at is None else min(task.kill_at, now + RESCAN_S)
        return True


def _reaped() -> Iterator[tuple[int, int]]:
    """Yield every child of this process that ended, with its status."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status
