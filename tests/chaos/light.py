"""Many agents in one thread: each has a key, a connection, heartbeats and simulated GPUs, and says of every
launch that it ran.

They speak the real protocol over the real link, and start no process: what is tested is the master with so
many of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import zmq
from msgspec.structs import replace

from mgpu_agent.protocol.codec import decode_to_agent, encode
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import (
    Enrol,
    Enrolled,
    Forget,
    Heartbeat,
    Hello,
    Launch,
    Stop,
    TaskReport,
    ToMaster,
    Welcome,
)
from mgpu_agent.protocol.model import LaunchSpec, TaskStatus
from mgpu_agent.protocol.places import RuntimeFile
from tests.builders import facts

RUNS_S = 1.0
POLL_MS = 20
AT_ONCE = 100  # handshakes under way


Read = Callable[["LightAgent", Heartbeat], Heartbeat]
"""Adds readings to a heartbeat."""


class LightAgent:
    """One of them."""

    def __init__(self, name: str, gpus: int, runs_s: float = RUNS_S) -> None:
        self.id = NodeId(name)
        self.runs_s = runs_s
        self.facts = facts(name, gpus, incarnation=f"boot-{name}/ledger")
        self.keys = zmq.curve_keypair()
        self.is_enrolled = False
        self.is_welcome = False
        self.beat_s = 2.0
        self.beat_at = 0.0
        self.running: list[tuple[float, TaskStatus]] = []
        self.untold: dict[object, TaskStatus] = {}
        self.launched: list[object] = []

    def launch(self, spec: LaunchSpec, now: float) -> list[ToMaster]:
        """Say that it runs; it will have run in a moment."""
        self.launched.append(spec.key)
        said: list[ToMaster] = []
        for task in spec.tasks:
            status = TaskStatus(
                key=spec.key,
                rank=task.rank,
                node_id=self.id,
                host=self.facts.host,
                address=self.facts.address,
                pid=1000 + task.rank,
                started_at=time.time(),
                gpus=spec.gpus,
            )
            self.running.append((now + self.runs_s, status))
            said.append(TaskReport(status=status))
        return said


class LightAgents:
    """Leaving the `with` block closes every connection."""

    def __init__(
        self, runtime: RuntimeFile, count: int, gpus: int, *, runs_s: float = RUNS_S, read: Read | None = None
    ) -> None:
        self._runtime = runtime
        self._read = read
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 4 * count + 100)
        self.agents = [LightAgent(f"light-{number:04d}", gpus, runs_s) for number in range(count)]
        self._sockets: dict[zmq.Socket[bytes], LightAgent] = {}
        self._poller = zmq.Poller()
        self._waiting = list(reversed(self.agents))
        self._epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._sockets:
            connection.close(0)
        self._context.term()

    @property
    def welcome(self) -> int:
        """How many the master has welcomed."""
        return sum(agent.is_welcome for agent in self.agents)

    def turn(self) -> None:
        """Connect a few more, hear what is new, say what is due."""
        under_way = sum(not agent.is_welcome for agent in self._sockets.values())
        while self._waiting and under_way < AT_ONCE:
            agent = self._waiting.pop()
            keys = (self._runtime.enrol_public_key.encode(), self._runtime.enrol_secret_key.encode())
            self._connect(agent, keys, Enrol(node_id=agent.id, public_key=agent.keys[0].decode()))
            under_way += 1
        for connection, _ in self._poller.poll(POLL_MS):
            agent = self._sockets[connection]
            for frame in connection.recv_multipart():
                self._hear(connection, agent, frame)
        now = time.monotonic()
        for connection, agent in self._sockets.items():
            self._say_due(connection, agent, now)

    def _connect(self, agent: LightAgent, keys: tuple[bytes, bytes], first: ToMaster) -> None:
        connection: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        connection.curve_publickey, connection.curve_secretkey = keys
        connection.curve_serverkey = self._runtime.link_public_key.encode()
        connection.connect(self._runtime.link_address)
        self._sockets[connection] = agent
        self._poller.register(connection, zmq.POLLIN)
        connection.send(encode(first, self._epoch))

    def _hear(self, connection: zmq.Socket[bytes], agent: LightAgent, frame: bytes) -> None:
        self._epoch, message = decode_to_agent(frame)
        now = time.monotonic()
        match message:
            case Enrolled():
                self._poller.unregister(connection)
                del self._sockets[connection]
                connection.close(0)
                agent.is_enrolled = True
                self._connect(agent, agent.keys, Hello(node_id=agent.id, facts=agent.facts))
            case Welcome(heartbeat_s=beat_s):
                agent.is_welcome, agent.beat_s = True, beat_s
            case Launch(spec=spec):
                for said in agent.launch(spec, now):
                    connection.send(encode(said, self._epoch))
            case Stop(key=stopped):
                agent.running = [
                    (0.0 if status.key == stopped else at, status) for at, status in agent.running
                ]
            case Forget(keys=keys):
                for key in keys:
                    agent.untold.pop(key, None)
            case _:
                pass

    def _say_due(self, connection: zmq.Socket[bytes], agent: LightAgent, now: float) -> None:
        if not agent.is_welcome:
            return
        if now >= agent.beat_at:
            agent.beat_at = now + agent.beat_s
            beat = Heartbeat(at=time.time(), beat=time.clock_gettime(time.CLOCK_BOOTTIME))
            connection.send(encode(beat if self._read is None else self._read(agent, beat), self._epoch))
        due = [status for at, status in agent.running if now >= at]
        agent.running = [(at, status) for at, status in agent.running if now < at]
        for status in due:
            agent.untold[status.key] = over = replace(status, ended_at=time.time(), exit_code=0)
            connection.send(encode(TaskReport(status=over), self._epoch))
