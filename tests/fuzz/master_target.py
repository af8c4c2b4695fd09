"""The master as a target: frames of nodes against the real link, enrolment and scheduler."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import zmq
from msgspec.structs import replace

from mgpu_agent.protocol import codec
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import Hello, Refuse, Resync, Welcome
from mgpu_jupyter.engines.agents.engine import wire_agents
from mgpu_jupyter.engines.agents.enrolment import ENROL_USER
from mgpu_jupyter.engines.agents.files import Records
from mgpu_jupyter.master.master import Master
from mgpu_jupyter.master.node_link import Incoming
from mgpu_jupyter.model.settings import LinkSettings
from mgpu_jupyter.scheduler import invariants
from mgpu_jupyter.scheduler.events import JobSubmitted
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.store.logs import LogWriter
from mgpu_jupyter.store.memory import MemoryStore
from mgpu_jupyter.transport.router import _checked
from tests.builders import a_spec, facts, job_id
from tests.fuzz.mutate import known_as
from tests.protocol.samples import TO_MASTER

EPOCH = 3
EPOCHS = (EPOCH,) * 12 + (0, EPOCH - 1, EPOCH + 1, 2**64 - 1)
TURN_S = 0.05
LIVING = 6  # jobs at a time
JOBS_IN_ALL = 2_000
OUTPUT_CAP = 100_000


def from_a_node(body: bytes, dice: random.Random) -> bytes:
    """Put a body into an envelope as agents do, which know at most this master."""
    return b"\x93\x01" + _epoch(dice) + body


def _epoch(dice: random.Random) -> bytes:
    return msgspec.msgpack.encode(EPOCHS[int(dice.random() * len(EPOCHS))])


def tree_of(message: Any) -> Any:
    """Return a message as lists, maps and values."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message))


# --- the master ------------------------------------------------------------------------------------------


class Pipe:
    """A link without sockets, as `mgpu_jupyter.transport.router.Router`."""

    def __init__(self) -> None:
        self.incoming: list[Incoming] = []
        self.answers: dict[bytes, list[bytes]] = {}
        self._names: dict[str, str] = {}

    def wait(self, timeout_s: float) -> None:
        """Return at once."""

    def wake(self) -> None:
        """Nobody waits."""

    def receive(self, limit: int) -> list[Incoming]:
        taken, self.incoming = self.incoming[:limit], self.incoming[limit:]
        return taken

    def send(self, route: bytes, frames: list[bytes]) -> bool:
        self.answers.setdefault(route, []).extend(frames)
        return True

    def take_ended(self) -> list[bytes]:
        return []

    def bind(self, host: str, port: int) -> int:
        return port

    def allow(self, public_key: str, user_id: str) -> None:
        key = _checked(public_key)
        self._names = {known: name for known, name in self._names.items() if name != user_id} | {key: user_id}

    def forbid(self, user_id: str, why: str) -> None:
        self._names = {key: name for key, name in self._names.items() if name != user_id}

    def remember(self, public_key: str, user_id: str, why: str) -> None:
        """Nobody asks why."""

    def holder(self, public_key: str) -> str | None:
        return self._names.get(_checked(public_key))

    def knows(self, user_id: str) -> bool:
        return user_id in self._names.values()

    def close(self) -> None:
        """Nothing is open."""


class MasterTarget:
    """The engine, the scheduler and a store in memory, with two nodes and somebody who only enrols."""

    envelope = staticmethod(from_a_node)

    def __init__(self, seed: int) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="mgpu-fuzz-")
        self._now = 1_000.0
        self.pipe = Pipe()
        store = MemoryStore()
        records = Records(lambda *_: None, store.assigned_nodes)
        logs = LogWriter(Path(self._place.name) / "logs", cap_bytes=OUTPUT_CAP)
        agents = wire_agents(
            self.pipe,
            logs,
            records,
            LinkSettings(cluster="fuzz"),
            master_epoch=EPOCH,
            clock=self._clock,
            wall=self._clock,
        )
        self.master = Master(
            store, agents.link, agents.enrolment, self, self._clock, policy=Policy(), epoch=EPOCH
        )
        self._users = [NodeId("n1")] * 12 + [NodeId("n2")] * 6 + [ENROL_USER] * 2
        self._dice = random.Random(seed)
        self._jobs = 0
        for name in ("n1", "n2"):
            self.pipe.allow(zmq.curve_keypair()[0].decode(), name)
        self.is_well()

    def _clock(self) -> float:
        return self._now

    def publish(self, replies: Any, jobs: Any, grown: Any) -> None:
        """Nobody listens."""

    def typed(self, acks: Any) -> None:
        """Nobody types."""

    def true_ones(self) -> list[Any]:
        """Every message that a node may send, about an attempt that it was given where there is one."""
        running = [
            job for job in self.master.state.jobs.values() if job.placements and not job.state.is_final
        ]
        if not running:
            key: AttemptKey = AttemptKey(JobId("AB12CD34"), 2, 99)
        else:
            key = running[int(self._dice.random() * len(running))].attempt_key
        return [known_as(tree_of(message), tree_of(key), {}) for message in TO_MASTER.values()]

    def feed(self, frames: list[bytes]) -> None:
        """Let these arrive, several in one message now and then, and take turns until all are read."""
        at = 0
        while at < len(frames):
            count = 1 if self._dice.random() < 0.97 else 1 + int(self._dice.random() * 8)
            user = self._users[int(self._dice.random() * len(self._users))]
            refusal = "" if self._dice.random() < 0.98 else "its key is not enrolled"
            self.pipe.incoming.append(Incoming(user, b"\0" + user.encode(), frames[at : at + count], refusal))
            at += count
        while self.pipe.incoming:
            self._turn()

    def _turn(self) -> None:
        self._now += TURN_S
        self.master.turn()
        if self.master.problem:
            raise AssertionError(f"a turn came to nothing: {self.master.problem}")
        for route in self.pipe.answers:
            del self.pipe.answers[route][:-1_000]

    def is_well(self) -> None:
        """Both nodes greet and are welcomed; there is work; the books are in order."""
        for name in ("n1", "n2"):
            self._greet(NodeId(name))
        living = sum(not job.state.is_final for job in self.master.state.jobs.values())
        if living < LIVING and self._jobs < JOBS_IN_ALL:
            self.master.post(self._submit, _raise)
            self._turn()
        assert invariants.check(self.master.state) == []

    def _submit(self, master: Master, turn: Any) -> None:
        self._jobs += 1
        spec = a_spec(gpus=1 + self._jobs % 3) if self._jobs % 4 else a_spec(nodes=2)
        master.apply(turn, JobSubmitted(at=self._now, job_id=job_id(self._jobs), user="ann", spec=spec))

    def _greet(self, name: NodeId) -> None:
        route = b"\0" + name.encode()
        hello = Hello(node_id=name, facts=facts(name))
        for _ in range(5):
            self.pipe.answers[route] = []
            self.pipe.incoming.append(Incoming(name, route, [codec.encode(hello, 0)], ""))
            self._turn()
            answers = [codec.decode_to_agent(frame)[1] for frame in self.pipe.answers[route]]
            if any(isinstance(answer, Welcome) for answer in answers):
                return
            asked = [answer.number for answer in answers if isinstance(answer, Resync)]
            hello = replace(hello, answers=asked[-1]) if asked else hello
            assert not any(isinstance(answer, Refuse) for answer in answers), answers
        raise AssertionError(f"{name} was not welcomed: {answers}")

    def close(self) -> None:
        """Leave no file."""
        self._place.cleanup()


def _raise(error: Exception) -> None:
    raise error
