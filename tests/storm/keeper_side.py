"""The product's keeper on a simulated machine: its decisions and ledger are the real ones, its file, its
processes and its loop are not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgpu_agent.keeper import messages as keeper
from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.live_tasks import LiveTask
from mgpu_agent.keeper.machine import KeeperMachine
from mgpu_agent.keeper.recovery import end_lost_tasks
from mgpu_agent.protocol.errors import EngineError
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.run_as.spawn import SpawnFailure
from tests.storm.jobs import Job
from tests.storm.world import Process

Node = Any
Disk = Any
WARDEN_S = 1.1
SOCKET_S = (0.0001, 0.003)  # what agent and keeper need to hear each other


class LedgerInMemory:
    """The ledger's file."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.size = len(disk.ledger)

    def read(self) -> bytes:
        return self._disk.ledger

    def append(self, data: bytes | bytearray) -> bool:
        if self._disk.is_full:
            return False
        self._disk.ledger += bytes(data)
        self.size = len(self._disk.ledger)
        return True

    def replace(self, data: bytes) -> None:
        if self._disk.is_full:
            raise OSError("The disk is full.")
        reach("keeper.compact.before")
        self._disk.ledger = data
        self.size = len(data)
        reach("keeper.compact.after")

    def keep(self, size: int) -> None:
        self._disk.ledger = self._disk.ledger[:size]
        self.size = size

    def key(self) -> bytes:
        return b"k" * 32

    def close(self) -> None:
        """Nothing is open."""


class Host:
    """The machine under a keeper."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def pid(self) -> int:
        return 7

    def enter(self, cwd: str, *account: Any) -> str:
        return ""

    def leave(self) -> None:
        """There are no directories here."""

    def spawn(
        self, argv: tuple[bytes, ...], env: dict[bytes, bytes], stem: str, *more: Any
    ) -> int | SpawnFailure:
        if self._node.spawn_fails:
            return SpawnFailure(
                "spawn-failed", "The node could not start a process: it is simulated.", "node"
            )
        return self._node.spawn(argv, env, stem)

    def release(self, attempt: str) -> None:
        """Nothing binds jobs here."""

    def complain(self, sentence: str) -> None:
        """Nobody reads this keeper's log."""

    def new_group(self) -> int:
        return 0

    def spawn_as(self, account: Any, request: Any, stem: str, then: Any, **more: Any) -> None:
        then(self.spawn(request.argv, request.env, stem))

    def has_room(self) -> bool:
        return not self._node.disk.is_full

    def sizes(self, stem: str) -> tuple[int, int]:
        spool = self._node.disk.spool
        return len(spool.get(f"{stem}.out", b"")), len(spool.get(f"{stem}.err", b""))

    def end_all(self, ledger: Ledger, lost: list[keeper.TaskRecord]) -> None:
        for job in list(self._node.processes.values()):
            self._node.lose(job)
            job.kill()


class Processes:
    """The keeper's live processes, as `mgpu_agent.keeper.live_tasks.LiveTasks`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.tasks: dict[tuple[AttemptKey, int], LiveTask] = {}
        self._exits: list[Job] = []

    def note_exit(self, job: Job) -> None:
        self._exits.append(job)

    def add(self, task: LiveTask) -> None:
        self.tasks[task.key, task.rank] = task

    def stop(self, key: AttemptKey, grace_s: float, reason: str, now: float, *, lost: bool = False) -> None:
        for task in [task for (task_key, _), task in self.tasks.items() if task_key == key]:
            kill_at = now + max(0.0, grace_s)
            if task.kill_at is not None:
                task.kill_at = min(task.kill_at, kill_at)
                continue
            task.reason, task.lost, task.kill_at = reason, lost, kill_at
            job = self._node.processes.get(task.pid)
            if job is not None:
                if lost:
                    self._node.lose(job)
                job.term()

    def warn(self, message: Any) -> None:
        """No job here minds a signal."""

    def has_attempt(self, key: AttemptKey) -> bool:
        return any(task_key == key for task_key, _ in self.tasks)

    def reap(self, now: float, wall: float) -> list[LiveTask]:
        exits, self._exits = self._exits, []
        by_pid = {task.pid: task for task in self.tasks.values()}
        over = []
        for job in exits:
            if (task := by_pid.get(job.pid)) is not None:
                task.exited_at, task.exit_code, task.signal = wall, job.code, job.signal
                over.append(task)
        return over

    def sweep(self, now: float) -> list[LiveTask]:
        for task in list(self.tasks.values()):
            job = self._node.processes.get(task.pid)
            if task.kill_at is not None and now >= task.kill_at and job is not None:
                job.kill()
        return []

    def next_sweep_at(self) -> float | None:
        return min(
            (
                task.kill_at
                for task in self.tasks.values()
                if task.kill_at is not None and task.exited_at is None
            ),
            default=None,
        )

    def remove(self, task: LiveTask) -> None:
        self.tasks.pop((task.key, task.rank), None)


class KeeperProcess(Process):
    """The product's decisions, and a loop around it that the world drives."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.world, f"{node.name}.keeper", node.machine)
        self.node = node
        self.live = Processes(node)
        self.inbox: list[keeper.ToKeeper] = []
        self.outbox: list[keeper.FromKeeper] = []
        self.keeper_machine: KeeperMachine | None = None

    def start(self, lost_reason: str) -> None:
        """Come up: what an earlier keeper left is ended first."""
        self.begin()
        self.inbox, self.outbox, self.live, self.keeper_machine = [], [], Processes(self.node), None
        self.run(lambda: self._open(lost_reason))
        self.turn_at(self.world.now)

    def _open(self, lost_reason: str) -> None:
        ledger = Ledger(Path("ledger"), self.node.boot_id, lambda _: LedgerInMemory(self.node.disk))
        end_lost_tasks(ledger, Host(self.node), lost_reason)
        self.keeper_machine = KeeperMachine(ledger, self.live, Host(self.node), self.outbox.append)

    def hear(self, messages: list[keeper.ToKeeper]) -> None:
        """Take in what the agent wrote to the socket."""
        if self.is_up:
            self.inbox += messages
            self.turn_at(self.world.now)

    def turn(self) -> None:
        messages, self.inbox = self.inbox, []
        for message in messages:
            self.keeper_machine.obey(message)
        self.keeper_machine.turn()
        self.send()
        machine, moments = self.machine, []
        if self.keeper_machine.has_pending:
            moments.append(self.world.now)
        if (next_at := self.keeper_machine.next_at()) is not None:
            moments.append(self.world.now + max(0.0005, next_at - machine.monotonic()))
        if (lease_at := self.keeper_machine.lease_at()) is not None:
            moments.append(max(self.world.now + 0.0005, machine.when(lease_at) + 0.0001))
        if moments:
            self.turn_at(min(moments))

    def send(self) -> None:
        if self.outbox:
            reach("keeper.report.before")
            messages, self.outbox[:] = list(self.outbox), []
            self.node.agent.keeper.deliver(messages)
            reach("keeper.report.after")

    def on_crash(self) -> None:
        """Whatever it had to tell, it tells no more: ends that are in no ledger count as lost."""
        ledger = self.keeper_machine._ledger if self.keeper_machine is not None else None
        unwritten = ledger.tasks if ledger is not None and ledger._buffer else ()
        for key, _ in (*self.live.tasks, *unwritten):
            self.node.given_up.append((key.job_id, self.world.now))
        left = list(self.node.processes.values())
        for job in left:
            self.node.lose(job)
            # The reaper: TERM, and KILL after a while; what a new keeper finds it ends as well.
            job.term()
            self.world.later(WARDEN_S, job.kill)
        self.node.agent.keeper.lost()


class KeeperClient:
    """The agent's side of the keeper, as `mgpu_agent.process.keeper_client.KeeperClient`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._outgoing: list[keeper.ToKeeper] = []
        self._incoming: list[keeper.FromKeeper] = []
        self._link = 0
        """Rises with every connection: what was under way on an earlier one is gone."""
        self.is_attached = False

    @property
    def has_news(self) -> bool:
        return bool(self._incoming) or not self.is_attached

    @property
    def has_outgoing(self) -> bool:
        return bool(self._outgoing)

    def attach(self, lost_reason: str) -> keeper.Snapshot:
        node = self._node
        for _ in range(20):
            if not node.keeper.is_up:
                reach("agent.keeper")
                node.keeper.start(lost_reason)
            if node.keeper.is_up and (snapshot := self._snapshot()) is not None:
                return snapshot
        raise EngineError("no-keeper", "The keeper did not start.")

    def _snapshot(self) -> keeper.Snapshot | None:
        self.detach()
        told: list[keeper.Snapshot] = []
        process = self._node.keeper

        def ask() -> None:
            process.outbox.clear()
            process.keeper_machine.is_leaving = process.keeper_machine.is_attached = False
            process.keeper_machine.obey(keeper.Attach(environment={}))
            told.append(process.outbox.pop())

        process.inbox.clear()  # what an earlier agent wrote and was not read is gone with its connection
        process.run(ask)
        if not told or not process.is_up:
            return None
        self.is_attached = True
        return told[0]

    def deliver(self, messages: list[keeper.FromKeeper]) -> None:
        link = self._link

        def arrive() -> None:
            if link == self._link and self.is_attached:
                self._incoming += messages
                self._node.agent.turn_at(self._node.world.now)

        self._node.world.later(self._node.world.spread(*SOCKET_S), arrive)

    def lost(self) -> None:
        """The keeper is gone: the socket says so."""
        link = self._link

        def see() -> None:
            if link == self._link:
                self.is_attached = False
                self._node.agent.turn_at(self._node.world.now)

        self._node.world.later(self._node.world.spread(0.0001, 0.05), see)

    def put(self, message: keeper.ToKeeper) -> None:
        self._outgoing.append(message)

    def flush(self) -> bool:
        if not self.is_attached:
            self._outgoing.clear()
            return False
        reach("agent.order.before")
        messages, self._outgoing = self._outgoing, []
        link, process, life = self._link, self._node.keeper, self._node.keeper.life
        self._node.world.later(
            self._node.world.spread(*SOCKET_S),
            lambda: process.hear(messages) if (link, life) == (self._link, process.life) else None,
        )
        reach("agent.order.after")
        return True

    def receive(self) -> list[keeper.FromKeeper] | None:
        messages, self._incoming = self._incoming, []
        return messages if messages or self.is_attached else None

    def detach(self) -> None:
        self._link += 1
        self._incoming, self._outgoing = [], []
        self.is_attached = False

    def reap(self) -> None:
        """There is no exit status to collect."""
