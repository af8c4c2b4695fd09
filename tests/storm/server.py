"""The simulated machine of the master: its store and logs, which outlive it, and the product's own master and
link as a process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from mgpu_agent.protocol.errors import Unavailable
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import JobId
from mgpu_agent.protocol.model import STREAMS
from mgpu_jupyter.engines.agents.engine import wire_agents
from mgpu_jupyter.engines.agents.files import Records
from mgpu_jupyter.master.master import IDLE_WAIT_S, Call, Master, SteadyClock
from mgpu_jupyter.master.node_link import Incoming
from mgpu_jupyter.master.ports import Batch, LogKey, SavedJob
from mgpu_jupyter.master.turn import Turn
from mgpu_jupyter.model.settings import LinkSettings
from mgpu_jupyter.scheduler import books, invariants
from mgpu_jupyter.scheduler.events import Event
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.store.memory import MemoryStore
from tests.storm.agent_side import WHERE
from tests.storm.network import Connection, MasterSide, Network
from tests.storm.time_machine import Machine
from tests.storm.world import Process, World


class Store(MemoryStore):
    """Durable: it stays when the master ends. Commits take time, may fail, and the master may end before or
    after one.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.master: Any = None
        self.commit_s: tuple[float, float] | None = None
        self.is_full = False
        self._by_key: dict[tuple[str, str], JobId] = {}

    def commit(self, batch: Batch) -> None:
        reach("store.batch")
        reach("store.commit.before")
        if self.commit_s is not None:
            self._world.wait(self.master, self._world.spread(*self.commit_s))
        if self.is_full:
            raise Unavailable(
                "disk-full", "The disk with the queue is full: free some space, then try again."
            )
        super().commit(batch)
        for job_id in batch.new:
            job = batch.jobs[job_id].job
            if job.key is not None:
                self._by_key[job.user, job.key] = job_id
        reach("store.commit.after")

    def find_by_key(self, user: str, key: str) -> Any:
        job_id = self._by_key.get((user, key))
        return None if job_id is None else self._jobs[job_id].job

    def next_master_epoch(self) -> int:
        reach("store.setting.before")
        epoch = super().next_master_epoch()
        reach("store.setting.after")
        return epoch

    def all_jobs(self) -> dict[JobId, SavedJob]:
        """Return everything, for the judge."""
        return self._jobs


class Logs:
    """Output as the master has it; it stays when the master ends."""

    def __init__(self) -> None:
        self.files: dict[tuple[LogKey, int], bytearray] = {}

    def append(self, key: LogKey, stream: int, offset: int, data: bytes) -> int:
        file = self.files.setdefault((key, stream), bytearray())
        if offset <= len(file):
            reach("logs.write.before")
            file += data[len(file) - offset :]
            reach("logs.write.after")
        return len(file)

    def received(self, key: LogKey) -> dict[int, int]:
        return {stream: len(self.files.get((key, stream), b"")) for stream in STREAMS}

    def detach(self, key: LogKey) -> Callable[[], None]:
        return lambda: reach("logs.sync")

    def close(self) -> None:
        """Nothing is open."""


class AtOnce(Executor):
    """Does what it is given, here and now."""

    def submit(self, call: Any, /, *values: Any, **named: Any) -> Future[Any]:
        call(*values, **named)
        return Future()


class Pause:
    """In place of the event that a failed turn waits for: the world goes on meanwhile."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def wait(self, timeout: float | None = None) -> bool:
        self._process.world.wait(self._process, timeout or 0.0)
        return False

    def is_set(self) -> bool:
        return False


class CheckedMaster(Master):
    """The product's master; after every event all invariants of the scheduler must hold."""

    broken: list[str]

    def apply(self, turn: Turn, event: Event) -> None:
        super().apply(turn, event)
        self.broken += [
            f"after {type(event).__name__}: {sentence}" for sentence in invariants.check(self.state)
        ]


class MasterProcess(Process):
    """A master that ends and comes back on the same store."""

    def __init__(self, world: World, network: Network, policy: Policy, link: LinkSettings) -> None:
        super().__init__(world, "master", Machine(world))
        self.machine.last_frozen_at = 0.0
        self.network = network
        network.master = self
        self.policy = policy
        self.link = link
        self.store = Store(world)
        self.store.master = self
        self.logs = Logs()
        self.broken: list[str] = []
        self.on_change: Callable[[SavedJob], None] = lambda _: None
        self.is_listening = False
        self.heard: dict[str, list[float]] = {}
        """When each node was heard."""
        self._newest: dict[str, float] = {}

    def start(self) -> None:
        """Come up on what is stored."""
        if not self.is_up:
            self.begin()
            self.is_listening = False
            self.run(self._open)
            self.turn_at(self.world.now)

    def _open(self) -> None:
        clock = SteadyClock()
        epoch = self.store.next_master_epoch()
        self.router = MasterSide(self.network, self)
        records = Records(self.store.bind_node_key, self.store.assigned_nodes)
        agents = wire_agents(
            self.router,
            self.logs,
            records,
            self.link,
            master_epoch=epoch,
            clock=clock,
            syncer=AtOnce(),
            wall=self.machine.wall,
        )
        recovered = self.store.recover()
        assert WHERE.enrol_keys is not None
        agents.enrolment.recover(recovered.nodes, recovered.join_keys, WHERE.enrol_keys.public)
        self.connections = agents.connections
        self.master = CheckedMaster(
            self.store, agents.link, agents.enrolment, self, clock, policy=self.policy, epoch=epoch
        )
        self.master.broken = self.broken
        self.master._stopping = Pause(self)  # type: ignore[assignment]
        self.master.recover()
        self.is_listening = True
        self.world.note("master", f"epoch {epoch}, {len(recovered.jobs)} jobs")

    def turn(self) -> None:
        self.master.turn()
        for node_id, heard in self.connections.heard.items():
            if self._newest.get(node_id) != heard:
                self._newest[node_id] = heard
                self.heard.setdefault(node_id, []).append(self.world.now)
        due_at = books.next_due_at(self.master.state)
        wait_s = (
            IDLE_WAIT_S if due_at is None else min(IDLE_WAIT_S, max(0.0005, due_at - self.master.clock()))
        )
        self.turn_at(self.world.now + wait_s)

    def hear(self, connection: Connection, frames: list[bytes]) -> None:
        """Take in a message of an agent; that of a connection to an earlier life is nobody's."""
        if not self.is_up or not self.is_listening or connection.master_life != self.life:
            return
        user = self.router.holder(connection.key)
        if user is not None:
            self.router.incoming.append(
                Incoming(user, connection.route, [memoryview(frame) for frame in frames])
            )
            self.turn_at(self.world.now + self.world.spread(0.0001, 0.002))

    def lose(self, connection: Connection) -> None:
        """Take in that a connection to this life ended."""
        if self.is_up and self.is_listening and connection.master_life == self.life:
            self.router.ended.append(connection.route)
            self.turn_at(self.world.now + self.world.spread(0.0001, 0.002))

    def post(self, call: Call, on_failure: Callable[[Any], None]) -> bool:
        """Hand a request to the master, as the server does; tell whether there is one."""
        if not self.is_up or not self.is_listening:
            return False
        self.master.post(call, on_failure)
        return True

    def publish(
        self, replies: Sequence[Callable[[], None]], jobs: Sequence[SavedJob], grown: set[JobId]
    ) -> None:
        """Pass on what was committed, as the hub does: after the master's turn, if the program still
        lives.
        """
        life = self.life

        def pass_on() -> None:
            if self.life == life and self.is_up:
                for reply in replies:
                    reply()
                for saved in jobs:
                    self.on_change(saved)

        if replies or jobs:
            self.world.later(
                0.0005, pass_on
            )  # always the same, so that nothing is told in another order than it was so

    def on_crash(self) -> None:
        self.is_listening = False
        self.network.master_ended()
