"""The keeper's decisions: tasks are recorded, started, stopped, ended by their lease, reported and forgotten.
Opens no socket.

The machine (`Host`) and the live processes are passed in, so that the same code runs
in the simulation. Times come from the clocks of the process; it never waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from mgpu_agent.keeper.alarm import boot_clock
from mgpu_agent.keeper.attempt_hooks import AttemptHooks
from mgpu_agent.keeper.hooks import LOST, HookRunner
from mgpu_agent.keeper.leases import RAN_OUT, Leases
from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.live_tasks import LiveTask
from mgpu_agent.keeper.messages import (
    DISK_FULL,
    Attach,
    Discarded,
    ForgetTasks,
    FromKeeper,
    Leave,
    MasterAlive,
    Snapshot,
    StartRefused,
    StartTasks,
    StopTasks,
    TaskChanged,
    ToKeeper,
)
from mgpu_agent.keeper.ports import Host, Processes, TaskStdin
from mgpu_agent.keeper.spool_names import SpoolSlots
from mgpu_agent.keeper.starts import Ending, Starter, UserStarts, record_of, why_not
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import Input, Resize, Warn
from mgpu_agent.run_as.account import Confinement
from mgpu_agent.run_as.spawn import SpawnFailure

STARTS_PER_TURN = 8  # so that ends are seen while a long batch starts
UNTOLD_S = 0.01  # a task that ends sooner is reported once, with its end
SHUTDOWN_GRACE_S = 5.0


class KeeperMachine:
    """What a keeper knows and decides."""

    def __init__(
        self,
        ledger: Ledger,
        live: Processes,
        host: Host,
        send: Callable[[FromKeeper], None],
        *,
        typing: TaskStdin | None = None,
        confine: Callable[[Confinement], None] = lambda _: None,
    ) -> None:
        """`confine` is called with the limits of processes of other accounts."""
        self._confine = confine
        self._typing = typing
        self.live = live
        self.is_attached = False
        """Whether the agent has attached: only then it is sent messages, the first of them the `Snapshot`."""
        self.is_leaving = False
        """Whether the agent said that it leaves on purpose."""
        self.again: tuple[str, ...] = ()
        """The command line of another agent, for when this one is killed."""
        self._ledger = ledger
        self._host = host
        self._send = send
        self._leases = Leases()
        self._slots = SpoolSlots(f"{time.time_ns():x}")
        self._blank: set[str] = set()
        """Spool files that their task left empty, with no process left that could still write."""
        self._starter = Starter(ledger, host, typing)
        self._pending: deque[StartTasks] = deque()
        self._untold: deque[tuple[float, LiveTask]] = deque()
        self._user_starts = UserStarts(self)
        runner = HookRunner(ledger.ledger_id, live, host, lambda: self._starter.environment)
        self._hooks = AttemptHooks(ledger, self, host, runner, self._answer)

    @property
    def has_pending(self) -> bool:
        """Tell whether a launch waits for its turn."""
        return bool(self._pending)

    @property
    def is_busy(self) -> bool:
        """Tell whether anything lives or is about to start."""
        return bool(self.live.tasks or self._pending or self._user_starts)

    def has_attempt(self, key: AttemptKey) -> bool:
        """Tell whether a process of this attempt is alive or about to start."""
        return key in self._user_starts or self.live.has_attempt(key)

    def next_at(self) -> float | None:
        """Return when something is due, on the monotonic clock; for leases see `lease_at`."""
        moments = [self._untold[0][0]] if self._untold else []
        if (sweep_at := self.live.next_sweep_at()) is not None:
            moments.append(sweep_at)
        moments += self._hooks.runner.moments()
        return min(moments, default=None)

    def lease_at(self) -> float | None:
        """Return when the first lease runs out, on the boot clock."""
        return self._leases.next_at()

    def turn(self) -> None:
        """Do all that is due: a few starts, ends, then one write to the ledger."""
        self._start_some()
        self._end_leases()
        self._hooks.runner.press(time.monotonic())
        self._finish(self.live.reap(time.monotonic(), time.time()))
        self._finish(self.live.sweep(time.monotonic()))
        self._tell_started()
        self._ledger.flush()

    def shut_down(self) -> None:
        """Start nothing more, and end all that lives."""
        self._pending.clear()
        stop = Ending(SHUTDOWN_GRACE_S, "The keeper was stopped.", lost=True)
        self._user_starts.stop_all(stop)
        for key, _ in list(self.live.tasks):
            self.end_trees(key, stop)

    # --- messages ----------------------------------------------------------------------------------

    def obey(self, message: ToKeeper) -> None:
        """Do what the agent asks for."""
        match message:
            case StartTasks():
                self._pending.append(message)
            case StopTasks():
                self._stop(message)
            case ForgetTasks(keys=keys):
                self._forget(keys)
            case Input():
                for ack in self._typing.take(message) if self._typing is not None else ():
                    self._answer(ack)
            case Resize():
                if self._typing is not None:
                    self._typing.resize(message)
            case Warn():
                self.live.warn(message)
            case MasterAlive(alive_at=alive_at):
                self._leases.renew(alive_at, boot_clock())
            case Attach(environment=environment, confinement=confinement, again=again):
                self.again = again
                self._starter.environment = environment
                self._confine(confinement)
                self._hooks.take_up()  # those that end at once belong into the snapshot
                self.is_attached = True
                self._untold.clear()
                tasks = tuple(map(self._hooks.outside, self._ledger.tasks.values()))
                self._answer(
                    Snapshot(
                        boot_id=self._ledger.boot_id,
                        ledger_id=self._ledger.ledger_id,
                        pid=self._host.pid,
                        tasks=tasks,
                        spare=self._slots.spare,
                    )
                )
            case Leave():
                self.is_leaving = True

    def _answer(self, message: FromKeeper) -> None:
        if self.is_attached:
            self._send(message)

    def _forget(self, keys: tuple[AttemptKey, ...]) -> None:
        stems = [record.spool for record in self._ledger.note_forgotten(keys)]
        discarded = tuple(
            stem for stem in stems if stem not in self._blank or not self._slots.give_back(stem)
        )
        self._blank.difference_update(stems)
        if discarded:
            self._answer(Discarded(stems=discarded))

    def _stop(self, message: StopTasks) -> None:
        self._pending = deque(start for start in self._pending if start.key != message.key)
        if self._hooks.stop(message.key, message.grace_s, message.cause):
            return
        if self.has_attempt(message.key):
            self._end(message.key, Ending(message.grace_s, message.reason))
        elif known := self._ledger.known(message.key):
            for record in known:
                self._answer(TaskChanged(record=self._hooks.outside(record)))
        else:
            refusal = self._ledger.refusal(message.key)
            if refusal is None:
                refusal = StartRefused(
                    key=message.key,
                    code="stopped",
                    message="It was stopped before it started.",
                    fault="stale",
                )
                self._ledger.note_refused(refusal)
            self._answer(refusal)

    # --- leases ------------------------------------------------------------------------------------

    def _end_leases(self) -> None:
        """End the attempts whose lease ran out, without asking anybody."""
        for key, grace_s in self._leases.take_due(boot_clock()):
            self._hooks.stop(key, grace_s, LOST)
            self._end(key, Ending(grace_s, RAN_OUT, lost=True))

    def _end(self, key: AttemptKey, stop: Ending) -> None:
        """End what runs of an attempt, and start no more of it."""
        self._user_starts.stop(key, stop)
        self.end_trees(key, stop)

    def end_trees(self, key: AttemptKey, stop: Ending) -> None:
        """End what runs of an attempt."""
        self.live.stop(key, stop.grace_s, stop.reason, time.monotonic(), lost=stop.lost)

    # --- starting ----------------------------------------------------------------------------------

    def _start_some(self) -> None:
        """Record a few launches in one write, then start them."""
        turn: list[StartTasks] = []
        while self._pending and len(turn) < STARTS_PER_TURN:
            start = self._pending.popleft()
            if self._is_new(start):
                for rank in start.ranks:
                    self._ledger.note_meant(record_of(start, rank.rank, self._slots.take()))
                self._hooks.note(start)
                turn.append(start)
        if not turn:
            return
        can_start = self._ledger.flush() and self._host.has_room()
        for start in turn:
            if can_start and start.prolog:
                self._leases.renew(start.alive_at, boot_clock())
                self._leases.add(start.key, start.lease_s, start.grace_s)
                self._hooks.run_prolog(start, self._start_prepared, self.refuse)
            elif can_start:
                self._start(start)
            else:
                self.refuse(start, SpawnFailure("disk-full", DISK_FULL, "node"))
        self._host.leave()

    def _is_new(self, start: StartTasks) -> bool:
        if known := self._ledger.known(start.key):
            for record in known:
                if record.pid or record.ended_at is not None:
                    self._answer(TaskChanged(record=self._hooks.outside(record)))
            return False
        job_id = start.key.job_id
        is_alive = self._user_starts.has_job(job_id) or any(
            key.job_id == job_id for key, _ in self.live.tasks
        )
        refusal = why_not(start, self._ledger, is_alive=is_alive)
        if refusal is not None:
            self._answer(refusal)
        return refusal is None

    def _start_prepared(self, start: StartTasks) -> None:
        self._start(start)
        self._host.leave()

    def _start(self, start: StartTasks) -> None:
        self._leases.renew(start.alive_at, boot_clock())
        self._leases.add(start.key, start.lease_s, start.grace_s)
        if start.account is not None:
            self._user_starts.begin(start, self._starter.asking(start, start.account))
            return
        if why := self._host.enter(start.cwd):
            self.refuse(start, SpawnFailure("no-directory", f"{start.cwd} cannot be entered: {why}.", "job"))
            return
        for position, rank in enumerate(start.ranks):
            pid = self._starter.start(start, rank)
            if isinstance(pid, SpawnFailure):
                if position == 0:
                    self.refuse(start, pid)
                else:
                    self.fail_rest(start, position, pid)
                return
            self.begin_rank(start, rank.rank, pid)

    def begin_rank(self, start: StartTasks, rank: int, pid: int) -> None:
        """Note that a process was started."""
        reach("keeper.spawn.after")
        if self._typing is not None:
            self._typing.started(start.key, rank)
        self._ledger.note_begun(start.key, rank, pid, time.time(), boot_clock())
        task = LiveTask(
            start.key,
            rank,
            pid,
            self._starter.marker(start.key, rank),
            uid=None if start.account is None else start.account.uid,
        )
        self.live.add(task)
        self._untold.append((time.monotonic() + UNTOLD_S, task))

    def all_answered(self, key: AttemptKey) -> None:
        """Note that no more processes of an attempt will start; that may end it."""
        if (
            key in self._ledger.hooks
            and not self.live.has_attempt(key)
            and not self._hooks.runner.is_busy(key)
        ):
            self._hooks.tidy(key)

    def refuse(self, start: StartTasks, failure: SpawnFailure, state: str = "failed") -> None:
        """Report that nothing of a launch was started and nothing will be."""
        if start.key in self._ledger.hooks:
            self._hooks.run_epilog(
                start.key, state, failure.exit_code or 1, lambda: self.refuse(start, failure)
            )
            return
        refusal = StartRefused(
            key=start.key,
            code=failure.code,
            message=failure.message,
            fault=failure.fault,
            exit_code=failure.exit_code,
        )
        self._leases.drop(start.key)
        stems = tuple(record.spool for record in self._ledger.known(start.key))
        if start.account is not None:
            self._answer(Discarded(stems=stems))
        else:
            for stem in stems:
                self._slots.give_back(stem)
        self._ledger.note_refused(refusal)
        self._answer(refusal)

    def fail_rest(self, start: StartTasks, position: int, failure: SpawnFailure) -> None:
        """Stop a launch of which only some ranks started; report the others as ended."""
        for rank in start.ranks[position:]:
            record = self._ledger.note_ended(
                start.key,
                rank.rank,
                ended_at=time.time(),
                exit_code=failure.exit_code,
                signal=None,
                reason=failure.message,
                sizes=(0, 0),
            )
            self._answer(TaskChanged(record=record))
        self.live.stop(start.key, 0.0, failure.message, time.monotonic())

    # --- reports -----------------------------------------------------------------------------------

    def _tell_started(self) -> None:
        now = time.monotonic()
        while self._untold and (self._untold[0][0] <= now or self._untold[0][1].told):
            _, task = self._untold.popleft()
            if not task.told and (task.key, task.rank) in self.live.tasks:
                task.told = True
                self._answer(TaskChanged(record=self._ledger.tasks[task.key, task.rank]))

    def _finish(self, tasks: list[LiveTask]) -> None:
        for task in tasks:
            reach("keeper.end")
            self.live.remove(task)
            if self._hooks.runner.owns(task.key):
                self._hooks.runner.finished(task)
                continue
            if self._typing is not None:
                self._typing.remove(task.key, task.rank)
            if not self.has_attempt(task.key):
                self._leases.drop(task.key)
                self._host.release(str(task.key))
            task.told = True
            name = self._ledger.tasks[task.key, task.rank].spool
            sizes = self._host.sizes(name)
            # Never reuse a file that was another account's: it may have passed the descriptor on.
            if (
                sizes == (0, 0)
                and task.kill_at is None
                and task.uid is None
                and task.key not in self._ledger.hooks
            ):
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
            if task.key not in self._ledger.hooks or self.has_attempt(task.key):
                self._answer(TaskChanged(record=record))
            else:
                self._hooks.tidy(task.key)
