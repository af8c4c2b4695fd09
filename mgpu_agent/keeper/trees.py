"""Which processes belong to a job, read from /proc, and signals to them. Decides nothing about when.

A job's processes are found by session, process group, descent and the marker in their environment; any one is enough.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterable

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
        """When it started, on the clock that counts from boot."""
        return self.start_ticks / _TICKS_PER_S


def marker_value(ledger_id: str, key: AttemptKey, rank: int) -> bytes:
    """Return what marks every process of one task in its environment."""
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
    """Return the marker in the environment a process was started with; empty if it has none that we may read."""
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


def children_of_this_process() -> set[int]:
    """Return the pids whose parent this (single-threaded) process is, adopted orphans and zombies included."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return set(map(int, file.read().split()))
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return {process.pid for process in ProcessTable.read().processes.values() if process.parent == pid}


class ProcessTable:
    """A reading of the whole process table; markers are read when they are first asked for."""

    def __init__(self, processes: dict[int, Process]) -> None:
        self.processes = processes
        self._markers: dict[int, bytes] = {}
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

    def marked(self, prefix: bytes) -> list[Process]:
        """Return every process whose marker starts with `prefix`."""
        return [process for pid, process in self.processes.items() if self.marker(pid).startswith(prefix)]

    def members(
        self, leader: int, marker: bytes, known: Collection[tuple[int, int]], spare: Collection[int], *, leader_gone: bool
    ) -> list[Process]:
        """Return the processes of one task; `known` are those seen earlier as (pid, start), `spare` those that never are."""
        if leader_gone and leader in self.processes:
            leader = -1  # the number was given to a stranger, which the kernel does only when session and group are empty
        found: dict[int, Process] = {}
        for pid, process in self.processes.items():
            ours = leader in (pid, process.group, process.session) or (pid, process.start_ticks) in known
            if pid not in spare and (ours or self.marker(pid) == marker):
                found[pid] = process
        pending = list(found)
        while pending:
            for pid in self._children.get(pending.pop(), ()):
                if pid not in found and pid not in spare:
                    found[pid] = self.processes[pid]
                    pending.append(pid)
        return list(found.values())


def send_signals(processes: Iterable[Process], *signals: signal.Signals) -> list[Process]:
    """Signal each of these very processes, never one that got the same pid later; return those that may not be signalled."""
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
