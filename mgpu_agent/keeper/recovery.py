"""What a new keeper does first: end what an earlier one left, so that no GPU is offered that is in use."""

from __future__ import annotations

import os
import signal
import time
from typing import Protocol

from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.messages import TaskRecord
from mgpu_agent.keeper.reaper import GIVE_UP_S, TERM_S
from mgpu_agent.keeper.trees import Process, ProcessTable, Seen, marker_value, send_signals
from mgpu_agent.protocol.failpoints import reach

_SAME_START_S = 2.0  # the ledger takes the time just after the start, and the kernel counts in ticks
_NEW_BOOT = "The node was started anew."


class RecoveryHost(Protocol):
    """What is needed of the machine here."""

    def end_all(self, ledger: Ledger, lost: list[TaskRecord]) -> None:
        """Kill what an earlier keeper left of these tasks, or of others with this ledger's marker."""

    def sizes(self, stem: str) -> tuple[int, int]:
        """Return the sizes of the two spool files of this name."""


def end_lost_tasks(ledger: Ledger, host: RecoveryHost, reason: str) -> None:
    """Kill all that an earlier keeper left, and note tasks without an end as ended for `reason`."""
    same_boot = ledger.last_boot_id == ledger.boot_id
    lost = ledger.unfinished()
    if same_boot:
        host.end_all(ledger, lost)
    reach("keeper.recover")
    for record in lost:
        ledger.note_ended(
            record.key,
            record.rank,
            ended_at=time.time(),
            exit_code=None,
            signal=int(signal.SIGKILL),
            reason=reason if same_boot else _NEW_BOOT,
            lost=True,
            # After a power cut the ledger may lack its last lines: the file may be a later job's, and is not
            # sent as this one's output.
            sizes=host.sizes(record.spool) if same_boot else (0, 0),
        )
    ledger.flush()


def kill_all(ledger: Ledger, lost: list[TaskRecord]) -> None:
    """Kill every process of these tasks or with this ledger's marker, and wait until none is left."""
    prefix = f"{ledger.ledger_id}/".encode()
    began = time.monotonic()
    seen = Seen()
    while True:
        found = _find(ledger, lost, prefix, seen)
        if not found:
            return
        elapsed = time.monotonic() - began
        forbidden = send_signals(
            found, *([signal.SIGKILL] if elapsed >= TERM_S else [signal.SIGTERM, signal.SIGCONT])
        )
        if len(forbidden) == len(found) or elapsed > GIVE_UP_S:
            return
        time.sleep(0.05)


def _find(ledger: Ledger, lost: list[TaskRecord], prefix: bytes, seen: Seen) -> list[Process]:
    table = ProcessTable.read()
    spare = {os.getpid()}
    found = {process.pid: process for process in table.marked(prefix) if process.pid not in spare}
    for record in lost:
        process = table.processes.get(record.pid)
        started = ledger.boot_times.get((record.key, record.rank), 0.0)
        # A pid is not reused while its session has members: if no process has it, those in the session are
        # the task's.
        is_leader = record.pid and (process is None or abs(process.started_boot_s - started) <= _SAME_START_S)
        leader = record.pid if is_leader else -1
        marker = marker_value(ledger.ledger_id, record.key, record.rank)
        members = table.members(leader, marker, seen, spare)
        found.update((member.pid, member) for member in members)
    table.complete(found, spare)
    seen.add(found.values())
    return list(found.values())
