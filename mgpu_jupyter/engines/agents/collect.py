"""Collects the output of tasks: writes it, acknowledges it, and knows when a node may forget a task.

A task may be forgotten when its end is committed and all its output is on disk. Until then its node reports
and sends it again.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import NamedTuple

from mgpu_agent.protocol.ids import JOB_ID_PATTERN, AttemptKey, NodeId
from mgpu_agent.protocol.messages import Output
from mgpu_agent.protocol.model import STDERR, STDOUT, STREAMS, OutputMark, TaskStatus
from mgpu_jupyter.master.ports import LogKey, MarkedStep, OutputLog

log = logging.getLogger("mgpu.output")
_JOB_ID = re.compile(JOB_ID_PATTERN)
MAX_RANKS = 1_000_000
ASK_AGAIN_S = 2.0
REMEMBERED = 100_000


class _Task(NamedTuple):
    node_id: NodeId
    key: AttemptKey
    rank: int

    @property
    def log_key(self) -> LogKey:
        return LogKey(self.key.job_id, self.key.attempt, self.rank)


class Collector:
    """Receives output and ends of tasks on the master's thread, and syncs files on one of its own."""

    def __init__(
        self,
        logs: OutputLog,
        syncer: Executor | None = None,
        note: Callable[[MarkedStep, NodeId, AttemptKey, int], None] = lambda *_: None,
        is_assigned: Callable[[NodeId, AttemptKey], bool] = lambda *_: True,
    ) -> None:
        self._logs = logs
        self._note = note
        self._is_assigned = is_assigned
        self._acks: dict[NodeId, dict[tuple[AttemptKey, int, int], int]] = {}
        self._new_ends: dict[_Task, TaskStatus] = {}
        self._ends: dict[_Task, TaskStatus] = {}
        """Ends that are committed, until they are forgotten."""
        self._to_check: set[_Task] = set()
        self._collected: set[tuple[NodeId, AttemptKey]] = set()
        """Attempts whose results are on disk, while their nodes may still report them."""
        self._syncing: set[_Task] = set()
        self._synced: SimpleQueue[tuple[_Task, bool]] = SimpleQueue()
        self._syncer = syncer or ThreadPoolExecutor(1, thread_name_prefix="mgpu-log-sync")
        self._stuck: set[tuple[_Task, int]] = set()
        """Streams with a chunk that could not be written."""
        self._ask_again_at = 0.0

    def take_output(self, node_id: NodeId, message: Output) -> bool:
        """Write a chunk; tell whether the log grew."""
        if (
            message.stream not in STREAMS
            or not 0 <= message.rank < MAX_RANKS
            or not _JOB_ID.match(message.key.job_id)
        ):
            return False
        task = _Task(node_id, message.key, message.rank)
        try:
            known = self._logs.received(task.log_key)
            before, is_first = known[message.stream], not any(known.values())
            after = self._logs.append(task.log_key, message.stream, message.offset, message.data)
        except OSError as error:
            self._hold_up(error, task, message.stream)
            return False
        if after > before:
            self._stuck.discard((task, message.stream))
            if is_first:
                self._note(MarkedStep.OUTPUT, task.node_id, task.key, task.rank)
        self._acks.setdefault(node_id, {})[message.key, message.rank, message.stream] = after
        if task in self._ends:
            self._to_check.add(task)
        return after > before

    def marks(self, tasks: tuple[TaskStatus, ...]) -> tuple[OutputMark, ...]:
        """Return how far the output of these tasks was received."""
        marks = []
        for task in tasks:
            received = self._logs.received(LogKey(task.key.job_id, task.key.attempt, task.rank))
            marks += [OutputMark(task.key, task.rank, stream, received[stream]) for stream in STREAMS]
        return tuple(marks)

    def take_ends(self, node_id: NodeId, told: Iterable[TaskStatus]) -> None:
        """Note the tasks that ended; each is collected once its end is committed and its output complete."""
        for status in told:
            if status.ended_at is not None:
                self._new_ends[_Task(node_id, status.key, status.rank)] = status

    def committed(self) -> None:
        """Note that all ends so far are durable."""
        self._ends.update(self._new_ends)
        self._to_check.update(self._new_ends)
        self._new_ends.clear()

    def rolled_back(self) -> None:
        """Drop the ends noted since the last commit, which failed; they will be reported again."""
        self._new_ends.clear()

    def note_collected(self, done: list[tuple[NodeId, AttemptKey]]) -> None:
        """Note that the results of these attempts are on disk."""
        if len(self._collected) > REMEMBERED:
            self._collected.clear()  # what is reported again is found on disk again
        for held in done:
            self._collected.add(held)
            self._to_check.update(task for task in self._ends if (task.node_id, task.key) == held)

    def take_acks(self) -> dict[NodeId, list[OutputMark]]:
        """Return the acknowledgements due to each node; a stream that could not be written is requested
        again.
        """
        if self._stuck and time.monotonic() >= self._ask_again_at:
            self._ask_again_at = time.monotonic() + ASK_AGAIN_S
            for task, stream in self._stuck:
                with contextlib.suppress(OSError):
                    have = self._logs.received(task.log_key)[stream]
                    self._acks.setdefault(task.node_id, {})[task.key, task.rank, stream] = have
        due, self._acks = self._acks, {}
        return {
            node_id: [OutputMark(key, rank, stream, offset) for (key, rank, stream), offset in acks.items()]
            for node_id, acks in due.items()
        }

    def take_forgettable(self) -> dict[NodeId, list[tuple[AttemptKey, int]]]:
        """Return the ranks of attempts that each node may forget now."""
        forgettable: dict[NodeId, list[tuple[AttemptKey, int]]] = {}
        checked, self._to_check = self._to_check, set()
        for task in sorted(checked - self._syncing):
            if not self._is_assigned(task.node_id, task.key):
                # None of its output is kept here, so nothing is waited for: a node could name any number of
                # such tasks.
                del self._ends[task]
                self._let_go(task, forgettable)
                continue
            if self._ends[task].collects and (task.node_id, task.key) not in self._collected:
                continue
            if self._is_empty(task):
                del self._ends[task]
                self._let_go(task, forgettable)
            elif self._is_complete(task):
                self._syncing.add(task)
                self._syncer.submit(self._sync, self._logs.detach(task.log_key), task)
        while True:
            try:
                task, is_safe = self._synced.get_nowait()
            except Empty:
                return forgettable
            self._syncing.discard(task)
            if is_safe:
                self._ends.pop(task, None)
                self._let_go(task, forgettable)

    def _let_go(self, task: _Task, forgettable: dict[NodeId, list[tuple[AttemptKey, int]]]) -> None:
        forgettable.setdefault(task.node_id, []).append((task.key, task.rank))
        self._note(MarkedStep.COLLECTED, task.node_id, task.key, task.rank)

    def close(self) -> None:
        """Finish the syncs that are under way; what may be forgotten after them can still be taken."""
        self._syncer.shutdown(wait=True)
        self._logs.close()

    def _hold_up(self, error: OSError, task: _Task, stream: int) -> None:
        """Leave output with its node for a while: a full disk for output delays nothing else."""
        if not self._stuck:
            log.error(
                "output of jobs cannot be written (%s): nodes keep it until it can; free some space.", error
            )
            self._ask_again_at = time.monotonic() + ASK_AGAIN_S
        self._stuck.add((task, stream))

    def _is_empty(self, task: _Task) -> bool:
        end = self._ends[task]
        return not end.stdout_bytes and not end.stderr_bytes

    def _is_complete(self, task: _Task) -> bool:
        end, received = self._ends[task], self._logs.received(task.log_key)
        return received[STDOUT] >= end.stdout_bytes and received[STDERR] >= end.stderr_bytes

    def _sync(self, bring_to_disk: Callable[[], None], task: _Task) -> None:
        try:
            bring_to_disk()
        except OSError as error:
            # The node keeps the task and reports it again, which leads here again.
            log.warning(
                "output of job=%s rank=%s could not be brought to disk: %s", task.key.job_id, task.rank, error
            )
            self._synced.put((task, False))
        else:
            self._synced.put((task, True))
