"""The keeper's loop: starts what the agent asks for, records it first, tells how it ended. No network, no threads.

Everything between two waits is done in this order: messages, a few starts, ends, then one ledger write and one socket write.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from pathlib import Path

from mgpu_agent.keeper.alarm import Alarm, boot_clock
from mgpu_agent.keeper.family import Family, LiveTask
from mgpu_agent.keeper.leases import RAN_OUT, Leases
from mgpu_agent.keeper.ledger import Ledger, stale
from mgpu_agent.keeper.messages import (
    LEDGER_NAME,
    MARKER,
    SPOOL_NAME,
    Attach,
    Channel,
    Discarded,
    ForgetTasks,
    FromKeeper,
    Leave,
    MasterAlive,
    RankStart,
    Snapshot,
    StartRefused,
    StartTasks,
    StopTasks,
    TaskChanged,
    TaskRecord,
    ToKeeper,
    incarnation,
    to_keeper_decoder,
)
from mgpu_agent.keeper.place import has_room, listen, take_lock
from mgpu_agent.keeper.recovery import end_lost_tasks
from mgpu_agent.keeper.slots import SpoolSlots
from mgpu_agent.keeper.spawn import SpawnFailure, ignored_signals, spawn
from mgpu_agent.keeper.trees import marker_value
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey

STARTS_PER_TURN = 8  # so that ends are seen while a long batch starts
UNTOLD_S = 0.01  # a task that ends sooner is told once, with its end
SHUTDOWN_GRACE_S = 5.0
_PR_SET_CHILD_SUBREAPER = 36


class Keeper:
    """Parent of all job processes of one node directory."""

    def __init__(self, directory: Path, ledger: Ledger, idle_s: float) -> None:
        self._spool = directory / SPOOL_NAME
        self._ledger = ledger
        self._idle_s = idle_s
        self._family = Family()
        self._leases = Leases()
        self._alarm = Alarm()
        self._slots = SpoolSlots(f"{time.time_ns():x}")
        self._blank: set[str] = set()
        """Spool files that their task left empty, with no process behind that could still write."""
        self._environment: dict[bytes, bytes] = {}
        self._pending: deque[StartTasks] = deque()
        self._untold: deque[tuple[float, LiveTask]] = deque()
        self._channel: Channel[ToKeeper] | None = None
        self._attached = False
        """Whether the agent said who it is: the first thing that it hears is all that there is."""
        self._leaving = False
        self._terminated = False
        self._idle_since = time.monotonic()
        self._reset_signals = ignored_signals()
        self._wake, self._wake_writer = socket.socketpair()
        self._listener = listen(directory)
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(self._alarm, select.POLLIN)

    def run(self) -> None:
        """Keep until there is nothing to keep."""
        self._watch_signals()
        while not self._may_end():
            ready = dict(self._poll.poll(self._timeout_ms()))
            if self._wake.fileno() in ready:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
            if self._listener.fileno() in ready:
                self._accept()
            elif self._channel is not None and self._channel.fileno() in ready:
                self._read_agent(self._channel)
            if self._alarm.fileno() in ready:
                self._alarm.clear()
            self._start_some()
            self._end_leases()
            self._finish(self._family.reap(time.monotonic(), time.time()))
            self._finish(self._family.sweep(time.monotonic()))
            self._tell_started()
            self._ledger.flush()
            self._send()

    def close(self) -> None:
        """Close every handle."""
        signal.set_wakeup_fd(-1)
        if self._channel is not None:
            self._channel.close()
        for handle in (self._listener, self._wake, self._wake_writer, self._alarm):
            handle.close()
        self._ledger.close()

    # --- the loop's parts --------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        self._wake.setblocking(False)
        self._wake_writer.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._terminate())

    def _terminate(self) -> None:
        self._terminated = True

    def _may_end(self) -> bool:
        if self._terminated:
            self._pending.clear()
        busy = bool(self._family.tasks or self._pending)
        if self._terminated:
            for key, _ in list(self._family.tasks):
                self._family.stop(key, SHUTDOWN_GRACE_S, "The keeper was stopped.", time.monotonic(), lost=True)
            return not busy
        if busy or (self._channel is not None and not self._leaving):
            self._idle_since = time.monotonic()
            return False
        return self._leaving or time.monotonic() - self._idle_since >= self._idle_s

    def _timeout_ms(self) -> float | None:
        if self._pending:
            return 0
        moments = [self._untold[0][0]] if self._untold else []
        if (sweep_at := self._family.next_sweep_at()) is not None:
            moments.append(sweep_at)
        if self._channel is None:
            moments.append(self._idle_since + self._idle_s)
        if not moments:
            return None
        return max(0.0, (min(moments) - time.monotonic()) * 1000 + 0.5)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", credentials)
        if user != os.getuid():
            connection.close()
            return
        if self._channel is not None:
            self._drop_agent()
        self._leaving = self._attached = False
        self._channel = Channel(connection, to_keeper_decoder)
        self._poll.register(self._channel, select.POLLIN)

    def _drop_agent(self) -> None:
        if self._channel is not None:
            self._poll.unregister(self._channel)
            self._channel.close()
            self._channel = None
            self._idle_since = time.monotonic()

    def _read_agent(self, channel: Channel[ToKeeper]) -> None:
        messages = channel.receive()
        if messages is None:
            self._drop_agent()
            return
        for message in messages:
            self._obey(message)

    def _send(self) -> None:
        if self._channel is None:
            return
        if has_news := self._channel.has_outgoing:
            reach("keeper.report.before")
        if not self._channel.flush():
            self._drop_agent()
            return
        if has_news:
            reach("keeper.report.after")
        self._poll.modify(self._channel, select.POLLIN | select.POLLOUT if self._channel.has_outgoing else select.POLLIN)

    # --- messages ----------------------------------------------------------------------------------

    def _obey(self, message: ToKeeper) -> None:
        match message:
            case StartTasks():
                self._pending.append(message)
            case StopTasks():
                self._stop(message)
            case ForgetTasks(keys=keys):
                self._forget(keys)
            case MasterAlive(alive_at=alive_at):
                self._leases.renew(alive_at, boot_clock())
            case Attach(environment=environment):
                self._environment = environment
                self._attached = True
                self._untold.clear()
                for task in self._family.tasks.values():
                    task.told = True
                tasks = tuple(self._ledger.tasks.values())
                spare = self._slots.spare
                self._answer(
                    Snapshot(boot_id=self._ledger.boot_id, ledger_id=self._ledger.ledger_id, pid=os.getpid(), tasks=tasks, spare=spare)
                )
            case Leave():
                self._leaving = True

    def _answer(self, message: FromKeeper) -> None:
        if self._channel is not None and self._attached:
            self._channel.put(message)

    def _forget(self, keys: tuple[AttemptKey, ...]) -> None:
        stems = [record.spool for record in self._ledger.note_forgotten(keys)]
        discarded = tuple(stem for stem in stems if stem not in self._blank or not self._slots.give_back(stem))
        self._blank.difference_update(stems)
        if discarded:
            self._answer(Discarded(stems=discarded))

    def _stop(self, message: StopTasks) -> None:
        self._pending = deque(start for start in self._pending if start.key != message.key)
        if self._family.has_attempt(message.key):
            self._family.stop(message.key, message.grace_s, message.reason, time.monotonic())
        elif known := self._ledger.known(message.key):
            for record in known:
                self._answer(TaskChanged(record=record))
        else:
            refusal = self._ledger.refusal(message.key)
            if refusal is None:
                refusal = StartRefused(key=message.key, code="stopped", message="It was stopped before it started.", fault="stale")
                self._ledger.note_refused(refusal)
            self._answer(refusal)

    # --- leases ------------------------------------------------------------------------------------

    def _end_leases(self) -> None:
        """End what has a lease that ran out: by ourselves, whoever else is there."""
        for key, grace_s in self._leases.take_due(boot_clock()):
            self._family.stop(key, grace_s, RAN_OUT, time.monotonic(), lost=True)
        self._alarm.set(self._leases.next_at())

    # --- starting ----------------------------------------------------------------------------------

    def _start_some(self) -> None:
        """Record a few launches in one write, then start them."""
        turn: list[StartTasks] = []
        while self._pending and len(turn) < STARTS_PER_TURN:
            start = self._pending.popleft()
            if self._is_new(start):
                for rank in start.ranks:
                    self._ledger.note_meant(
                        TaskRecord(
                            key=start.key,
                            rank=rank.rank,
                            spool=self._slots.take(),
                            gpus=start.gpus,
                            cwd=start.cwd,
                            python=start.python,
                            note=start.note,
                        )
                    )
                turn.append(start)
        if not turn:
            return
        can_start = self._ledger.flush() and has_room(self._spool)
        for start in turn:
            if can_start:
                self._start(start)
            else:
                self._refuse(start, SpawnFailure("disk-full", "The node's disk is full: free some space on it.", "node"))
        os.chdir("/")  # holds no directory of a job

    def _is_new(self, start: StartTasks) -> bool:
        here = incarnation(self._ledger.boot_id, self._ledger.ledger_id)
        refusal: StartRefused | None
        if known := self._ledger.known(start.key):
            for record in known:
                if record.pid or record.ended_at is not None:
                    self._answer(TaskChanged(record=record))
            return False
        if start.incarnation != here:
            refusal = stale(start.key, "The launch was meant for the node as it was before it started anew.")
        elif start.lease_s and boot_clock() >= start.alive_at + start.lease_s:
            refusal = stale(start.key, "The launch came too late: its lease had run out.")
        else:
            refusal = self._ledger.refusal(start.key)
        if refusal is None and any(key.job_id == start.key.job_id for key, _ in self._family.tasks):
            refusal = StartRefused(
                key=start.key, code="attempt-alive", message=f"An earlier attempt of job {start.key.job_id} still runs here.", fault="node"
            )
        if refusal is not None:
            self._answer(refusal)
        return refusal is None

    def _start(self, start: StartTasks) -> None:
        try:
            os.chdir(start.cwd)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self._refuse(start, SpawnFailure("no-directory", f"{start.cwd} cannot be entered: {why}.", "node"))
            return
        self._leases.renew(start.alive_at, boot_clock())
        self._leases.add(start.key, start.lease_s, start.grace_s)
        for position, rank in enumerate(start.ranks):
            failure = self._start_rank(start, rank)
            if failure is None:
                continue
            if position == 0:
                self._refuse(start, failure)
            else:
                self._fail_rest(start, position, failure)
            return

    def _start_rank(self, start: StartTasks, rank: RankStart) -> SpawnFailure | None:
        marker = marker_value(self._ledger.ledger_id, start.key, rank.rank)
        env = {**self._environment, **rank.env, MARKER: marker}
        stem = f"{self._spool}/{self._ledger.tasks[start.key, rank.rank].spool}"
        reach("keeper.spawn.before")
        pid = spawn(start.argv, env, f"{stem}.out", f"{stem}.err", self._reset_signals)
        if isinstance(pid, SpawnFailure):
            return pid
        reach("keeper.spawn.after")
        self._ledger.note_begun(start.key, rank.rank, pid, time.time(), boot_clock())
        task = LiveTask(start.key, rank.rank, pid, marker)
        self._family.add(task)
        self._untold.append((time.monotonic() + UNTOLD_S, task))
        return None

    def _refuse(self, start: StartTasks, failure: SpawnFailure) -> None:
        refusal = StartRefused(key=start.key, code=failure.code, message=failure.message, fault=failure.fault, exit_code=failure.exit_code)
        self._leases.drop(start.key)
        for record in self._ledger.known(start.key):
            self._slots.give_back(record.spool)
        self._ledger.note_refused(refusal)
        self._answer(refusal)

    def _fail_rest(self, start: StartTasks, position: int, failure: SpawnFailure) -> None:
        """End a launch of which some ranks already run: the others are told as ended, the running ones are stopped."""
        for rank in start.ranks[position:]:
            record = self._ledger.note_ended(
                start.key, rank.rank, ended_at=time.time(), exit_code=failure.exit_code, signal=None, reason=failure.message, sizes=(0, 0)
            )
            self._answer(TaskChanged(record=record))
        self._family.stop(start.key, 0.0, failure.message, time.monotonic())

    # --- telling -----------------------------------------------------------------------------------

    def _tell_started(self) -> None:
        now = time.monotonic()
        while self._untold and (self._untold[0][0] <= now or self._untold[0][1].told):
            _, task = self._untold.popleft()
            if not task.told and (task.key, task.rank) in self._family.tasks:
                task.told = True
                self._answer(TaskChanged(record=self._ledger.tasks[task.key, task.rank]))

    def _finish(self, tasks: list[LiveTask]) -> None:
        for task in tasks:
            reach("keeper.end")
            self._family.remove(task)
            if task.key in self._leases and not self._family.has_attempt(task.key):
                self._leases.drop(task.key)
            task.told = True
            name = self._ledger.tasks[task.key, task.rank].spool
            sizes = (_size(f"{self._spool}/{name}.out"), _size(f"{self._spool}/{name}.err"))
            if sizes == (0, 0) and task.kill_at is None:
                self._blank.add(name)
            record = self._ledger.note_ended(
                task.key,
                task.rank,
                ended_at=task.exited_at or time.time(),
                exit_code=task.exit_code,
                signal=task.signal,
                reason=task.reason,
                lost=task.lost,
                sizes=sizes,
            )
            self._answer(TaskChanged(record=record))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def keep(directory: Path, boot_id: str, idle_s: float, lost_reason: str) -> int:
    """Be the keeper of `directory` until there is nothing to keep; return the exit code."""
    lock = take_lock(directory)
    if lock is None:
        print(f"Another keeper looks after {directory}.", file=sys.stderr)  # noqa: T201 - its log
        return 1
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            print("This kernel has no subreapers: orphans are found by their marker alone.", file=sys.stderr)  # noqa: T201
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        ledger = Ledger(directory / LEDGER_NAME, boot_id)
        end_lost_tasks(ledger, directory / SPOOL_NAME, lost_reason)
        keeper = Keeper(directory, ledger, idle_s)
        try:
            keeper.run()
        finally:
            keeper.close()
    finally:
        os.close(lock)
    return 0
