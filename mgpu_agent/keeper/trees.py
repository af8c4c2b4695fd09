"""Which processes belong to a job, read from /proc, and signals to them. Decides nothing about when.

A job's processes are found by session, process group, descent and the marker in their environment; any one is
enough. A session that a process of a job is or was in is the job's, with all processes in it of the same
user. Anybody can write a marker into an environment: it counts only where the process runs as the job's
user.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable

import msgspec

from mgpu_agent.keeper.messages import MARKER
from mgpu_agent.protocol.ids import AttemptKey

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_DEAD_STATES = frozenset(b"ZXx")


class Process(msgspec.Struct, frozen=True):
    """One line of the process table."""

    pid: int
    parent: int
    group: int
    session: int
    start_ticks: int

    @property
    def started_boot_s(self) -> float:
        """When it started, on the boot clock."""
        return self.start_ticks / _TICKS_PER_S


def marker_value(ledger_id: str, key: AttemptKey, rank: int) -> bytes:
    """Return the marker of one task's processes in their environment."""
    return f"{ledger_id}/{key}/{rank}".encode()


def read_process(pid: int) -> Process | None:
    """Return one live process, or None if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split(maxsplit=20)
    if fields[0][0] in _DEAD_STATES:
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def read_marker(pid: int) -> bytes:
    """Return the marker in the environment that a process started with; empty if none can be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = b"\0" + file.read()
    except OSError:
        return b""
    start = environment.find(b"\0" + MARKER + b"=")
    if start < 0:
        return b""
    start += len(MARKER) + 2
    end = environment.find(b"\0", start)
    return environment[start:] if end < 0 else environment[start:end]


def uid_of(pid: int) -> int:
    """Return the real user of a process; -1 if it is gone. The setuid bit does not change it."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(b"Uid:"))
    except (OSError, StopIteration):
        return -1


def handles_signal(pid: int, number: int) -> bool:
    """Tell whether a process has a handler for this signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            caught = next(line for line in file if line.startswith(b"SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def children_of_this_process() -> set[int]:
    """Return the pids of this (single-threaded) process's children, with adopted orphans and zombies."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return set(map(int, file.read().split()))
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return {process.pid for process in ProcessTable.read().processes.values() if process.parent == pid}


class Seen:
    """What earlier readings showed of a task: its processes and their sessions."""

    def __init__(self) -> None:
        self.processes: set[tuple[int, int]] = set()
        self._sessions: set[tuple[int, int]] = set()

    def add(self, processes: Iterable[Process], user_of: Callable[[int], int] = uid_of) -> None:
        """Remember these."""
        for process in processes:
            self.processes.add((process.pid, process.start_ticks))
            self._sessions.add((process.session, user_of(process.pid)))

    def sessions(self, table: ProcessTable) -> set[tuple[int, int]]:
        """Return the sessions that are still theirs, each with a user: no session id is reused before its
        session is empty.

        With a user, because a process may be in a session that somebody else made, like one that `su`
        started.
        """
        return {
            (session, user)
            for session, user in self._sessions
            if (leader := table.processes.get(session)) is None
            or (leader.pid, leader.start_ticks) in self.processes
        }


class ProcessTable:
    """A reading of the whole process table; markers are read when they are first asked for."""

    def __init__(self, processes: dict[int, Process]) -> None:
        self.processes = processes
        self._markers: dict[int, bytes] = {}
        self._users: dict[int, int] = {}
        self._children: dict[int, list[int]] = {}
        for process in processes.values():
            self._children.setdefault(process.parent, []).append(process.pid)

    @classmethod
    def read(cls) -> ProcessTable:
        """Read /proc once."""
        found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
        return cls({process.pid: process for process in found if process is not None})

    def marker(self, pid: int) -> bytes:
        """Return the marker of one process."""
        if pid not in self._markers:
            self._markers[pid] = read_marker(pid)
        return self._markers[pid]

    def user(self, pid: int) -> int:
        """Return the user of one process."""
        if pid not in self._users:
            self._users[pid] = uid_of(pid)
        return self._users[pid]

    def marked(self, prefix: bytes) -> list[Process]:
        """Return every process whose marker starts with `prefix`."""
        return [process for pid, process in self.processes.items() if self.marker(pid).startswith(prefix)]

    def members(
        self,
        leader: int,
        marker: bytes,
        seen: Seen,
        spare: Collection[int],
        *,
        leader_gone: bool = False,
        uid: int | None = None,
    ) -> list[Process]:
        """Return the processes of one task, and remember them in `seen`; those in `spare` are left out.
        `uid` is its account, if any.
        """
        if leader_gone and leader in self.processes:
            # another process has the pid, which the kernel allows only when session and group are empty
            leader = -1
        foreign = self._foreign_sessions(spare)
        found = self._in_sessions(
            {(session, user) for session, user in seen.sessions(self) if session not in foreign}, spare
        )
        for pid, process in self.processes.items():
            ours = (
                leader in (pid, process.group, process.session)
                or (pid, process.start_ticks) in seen.processes
            )
            if pid not in spare and (ours or (self.marker(pid) == marker and self._may_bear(pid, uid))):
                found[pid] = process
        self.complete(found, spare)
        seen.add(found.values(), self.user)
        return list(found.values())

    def descendants(self, ancestor: int) -> list[Process]:
        """Return every process below this one."""
        found: dict[int, Process] = {}
        self._add_children([ancestor], found, ())
        return list(found.values())

    def complete(self, found: dict[int, Process], spare: Collection[int]) -> None:
        """Add all that descend from these processes, or share session and user with one, until none is
        new.
        """
        foreign = self._foreign_sessions(spare)
        known: set[tuple[int, int]] = set()
        while True:
            self._add_children(list(found), found, spare)
            fresh = {
                (process.session, self.user(pid))
                for pid, process in found.items()
                if process.session not in foreign
            } - known
            if not fresh:
                return
            known |= fresh
            found.update(self._in_sessions(fresh, spare))

    def _in_sessions(self, wanted: set[tuple[int, int]], spare: Collection[int]) -> dict[int, Process]:
        """Return the processes in these sessions, each session with its user."""
        numbers = {session for session, _ in wanted}
        there = {
            pid: process
            for pid, process in self.processes.items()
            if process.session in numbers and pid not in spare
        }
        return {pid: process for pid, process in there.items() if (process.session, self.user(pid)) in wanted}

    def _may_bear(self, pid: int, uid: int | None) -> bool:
        """Tell whether a marker counts: on a process of the job's user or of root, or on any below a keeper
        without accounts.
        """
        if self.user(pid) in (0, os.getuid() if uid is None else uid):
            return True
        return uid is None and self._descends(pid, os.getpid())

    def _descends(self, pid: int, ancestor: int) -> bool:
        passed: set[int] = set()
        while pid not in passed and (process := self.processes.get(pid)) is not None:
            passed.add(pid)
            pid = process.parent
            if pid == ancestor:
                return True
        return False

    def _foreign_sessions(self, spare: Collection[int]) -> set[int]:
        """Return the sessions that do not tell whose a process is: this process's own, and those of spared
        processes.
        """
        processes = (self.processes.get(pid) for pid in (os.getpid(), *spare))
        return {0} | {process.session for process in processes if process is not None}

    def _add_children(self, pending: list[int], found: dict[int, Process], spare: Collection[int]) -> None:
        while pending:
            for pid in self._children.get(pending.pop(), ()):
                if pid not in found and pid not in spare:
                    found[pid] = self.processes[pid]
                    pending.append(pid)


def send_signals(processes: Iterable[Process], *signals: signal.Signals) -> list[Process]:
    """Signal exactly these processes, never a later one with the same pid; return those not permitted."""
    forbidden = []
    for process in processes:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            continue
        try:
            now = read_process(process.pid)
            if now is not None and now.start_ticks == process.start_ticks:
                for number in signals:
                    signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            forbidden.append(process)
        finally:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    return forbidden
