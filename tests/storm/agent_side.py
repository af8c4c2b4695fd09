"""The product's agent on a simulated machine: its loop, its machine and its output are the real ones, all
that it owns is not.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from mgpu_agent.agent import Agent
from mgpu_agent.config import AgentConfig
from mgpu_agent.core.events import EndAsked, Measured
from mgpu_agent.gpu.sampler import GpuReadings
from mgpu_agent.identity import SavedEnrolment
from mgpu_agent.link import KeyPair, Target
from mgpu_agent.parts import Parts
from mgpu_agent.process.output import OutputShipper
from mgpu_agent.process.preparation import Preparation
from mgpu_agent.protocol.errors import EngineError
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.meeting import MeetingPoint, Reached, Unreached, Way
from mgpu_agent.protocol.messages import Meet, Met
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_agent.whereabouts import Whereabouts
from tests.builders import facts
from tests.storm.keeper_side import KeeperClient
from tests.storm.network import AgentSide
from tests.storm.world import Process

Node = Any
Disk = Any
WHERE = Whereabouts(Target("tcp://master", "master-key"), enrol_keys=KeyPair("enrol-key", "enrol-secret"))


class Shipper(OutputShipper):
    """The product's, with spool files in memory."""

    def __init__(self, disk: Disk) -> None:
        super().__init__("spool", lambda *_: False)
        self._disk = disk

    def _read(self, stream: Any, size: int) -> bytes:
        return bytes(self._disk.spool.get(stream.name, b"")[stream.sent : stream.sent + size])

    def _size(self, stream: Any) -> int:
        return len(self._disk.spool.get(stream.name, b""))


class Spool:
    """Spool files in memory."""

    path = Path("spool")

    def __init__(self, node: Node) -> None:
        self._node = node

    def try_output(self, key: AttemptKey) -> None:
        pass

    def scratch_of(self, name: str, *account: Any) -> Path:
        return Path("/")

    def write_script(self, key: AttemptKey, source: str, *account: Any) -> str:
        reach("agent.script")
        return f"/spool/{key}.cell"

    def note_busy(self) -> None:
        """Nothing is deleted late here."""

    def delete_attempts(self, keys: Any) -> None:
        """There are no files of cells."""

    def delete_files(self, stems: Any) -> None:
        for stem in stems:
            for end in (".out", ".err"):
                self._node.disk.spool.pop(f"{stem}{end}", None)

    def delete_unknown(self, known: Any, stems: Any) -> None:
        keep = set(stems)
        self.delete_files({name.rpartition(".")[0] for name in self._node.disk.spool} - keep)

    def close(self) -> None:
        """Nothing is open."""


class Nothing:
    """A part that does nothing: no thread reads simulated GPUs, nobody gauges, output is told by the
    world.
    """

    is_working = True

    def __init__(self, node: Node) -> None:
        self._node = node

    def take(self) -> Any:
        return GpuReadings()

    def read(self, now: float) -> Measured:
        return Measured()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _nothing


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


class Grown(Nothing):
    """Which spool files were written to."""

    def take(self) -> list[str]:
        grown, self._node.agent.grown = list(self._node.agent.grown), {}
        return grown


class NoChecks(Nothing):
    """Nobody looks after the node."""

    def take(self) -> None:
        return None


class Meetings:
    """Meetings with other nodes, as `mgpu_agent.network.meetings.Meetings`: whom one reaches is as the other
    is then.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.waiting: set[AttemptKey] = set()
        self._done: list[Met] = []

    def open(self, spec: LaunchSpec) -> MeetingPoint:
        self.waiting.add(spec.key)
        return MeetingPoint(
            ways=(Way(self._node.name, "eth0"),),
            port=1000,
            master_port=29500 if any(task.rank == 0 for task in spec.tasks) else 0,
        )

    def meet(self, message: Meet) -> None:
        agent = self._node.agent
        if message.key in self.waiting:
            life = agent.life
            self._node.world.later(
                self._node.world.spread(0.005, 0.5),
                lambda: self._tell(message) if agent.life == life else None,
            )

    def _tell(self, message: Meet) -> None:
        reached, unreached = [], []
        for peer in message.peers:
            other = self._node.network.agents[peer.node_id]
            if other.is_up and other.machine.frozen_at is None and message.key in other.meetings.waiting:
                reached.append(Reached(peer.node_id, peer.node_id))
            else:
                unreached.append(Unreached(peer.node_id, peer.node_id, "no answer"))
        if message.key in self.waiting:
            self._done.append(Met(key=message.key, reached=tuple(reached), unreached=tuple(unreached)))
            self._node.agent.turn_at(self._node.world.now)

    def take(self) -> list[Met]:
        done, self._done = self._done, []
        return done

    def leave(self, key: AttemptKey) -> None:
        self.waiting.discard(key)

    forget = leave


class Identity:
    """What a node keeps between runs."""

    join = None

    def __init__(self, node: Node) -> None:
        self._disk = node.disk
        self.keys = KeyPair(f"{node.name}-key", f"{node.name}-secret")
        self.enrolment = node.disk.enrolment

    def save(self, enrolment: SavedEnrolment) -> None:
        if enrolment != self.enrolment:
            reach("agent.enrolment.before")
            self._disk.enrolment = enrolment
            reach("agent.enrolment.after")
            self.enrolment = enrolment

    def forget_join(self) -> None:
        """There is no line."""


class AgentProcess(Process):
    """The product's agent, driven by the world."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.world, f"{node.name}.agent", node.machine)
        self.node = node
        self.grown: dict[str, None] = {}
        self.keeper = KeeperClient(node)
        self.link = AgentSide(node.network, node.name)
        node.network.agents[node.name] = self

    def start(self) -> None:
        """Come up and find the keeper."""
        if self.is_up or not self.node.is_on:
            return
        self.begin()
        self.keeper.detach()
        self.link = AgentSide(self.node.network, self.node.name)
        self.run(self._open)
        self.turn_at(self.world.now)

    def _open(self) -> None:
        node = self.node
        config = AgentConfig(node_id=NodeId(node.name), state=Path("state"))
        spool: Any = Spool(node)
        nothing: Any = Nothing(node)
        link: Any = self.link
        keeper_client: Any = self.keeper
        grown: Any = Grown(node)
        checks: Any = NoChecks(node)
        meetings: Any = Meetings(node)
        self.meetings = meetings
        parts = Parts(
            spool=spool,
            watch=grown,
            keeper=keeper_client,
            preparation=Preparation(config.node_id, spool, node.gpus, {}),
            shipper=Shipper(node.disk),
            link=link,
            sampler=nothing,
            gauge=nothing,
            checks=checks,
            meetings=meetings,
            wake=(nothing, nothing),
            host=f"host-{node.name}",
            address="127.0.0.1",
            look=lambda *_: WHERE,
            describe=lambda boot_id, incarnation: facts(
                node.name, node.gpus, incarnation=incarnation, boot_id=boot_id
            ),
        )
        identity: Any = Identity(node)
        self.agent = Agent(config, identity, WHERE, parts)
        self.agent.begin()

    def turn(self) -> None:
        try:
            self.agent.serve(link=self.link.has_news, keeper=self.keeper.has_news, output=bool(self.grown))
        except EngineError:
            self.crash("without a keeper")
            return
        if self.agent.end_reason is not None:
            self.crash(self.agent.end_reason)
            return
        self.turn_at(self.world.now + self.agent.timeout_ms() / 1000)

    def ask_to_end(self) -> None:
        """Send it SIGTERM: it says goodbye and goes, and what it runs goes on under the keeper."""
        if self.is_up:
            self.agent._events.append(
                EndAsked(at=self.machine.monotonic(), reason=f"Stopped by {signal.Signals.SIGTERM.name}.")
            )
            self.turn_at(self.world.now)

    def on_crash(self) -> None:
        self.keeper.detach()
        self.node.network.agent_ended(self.node.name)
