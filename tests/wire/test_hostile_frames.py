"""Issue 3, row 6: 20,000 truncated, oversized, unknown and random frames against master, agent and keeper.

Hypothesis makes programs; each program makes a hundred frames out of true ones. No crash, no hang, memory
flat.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mgpu_agent.channel import Channel
from mgpu_agent.core import events as happened
from mgpu_agent.core.machine import Machine
from mgpu_agent.keeper import messages as keeper
from mgpu_agent.protocol import codec
from mgpu_agent.protocol.errors import RemoteProtocolError
from mgpu_agent.protocol.ids import NODE_ID_PATTERN, AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import Hello, Refuse, Resync, Welcome
from mgpu_jupyter.engines.agents.engine import wire_agents
from mgpu_jupyter.engines.agents.enrolment import ENROL_USER
from mgpu_jupyter.engines.agents.files import Records
from mgpu_jupyter.master.master import Master
from mgpu_jupyter.model.settings import LinkSettings
from mgpu_jupyter.scheduler.events import JobSubmitted
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.store.logs import LogWriter
from mgpu_jupyter.store.memory import MemoryStore
from mgpu_jupyter.transport.router import Router
from tests.agent.conftest import Node
from tests.agent.keepers import Conversation, Keepers
from tests.agent.master import SmallMaster
from tests.builders import a_spec, facts, job_id
from tests.processes import wait_until
from tests.protocol.samples import FACTS, TO_AGENT, TO_MASTER
from tests.wire.mutants import FRAMES_PER_PROGRAM, mutants

pytestmark = pytest.mark.slow

GROWTH_BYTES = 32_000_000
EPOCH = 3
PROGRAMS = st.binary(min_size=1, max_size=16)


def programs(frames: int):
    """Return the settings for so many frames; deterministic, so that a finding is found again."""
    quiet = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(
        max_examples=frames // FRAMES_PER_PROGRAM,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=quiet,
    )


def rss(pid: int | None = None) -> int:
    return int(psutil.Process(pid).memory_info().rss)


@pytest.fixture
def flat_memory() -> Iterator[None]:
    before = rss()
    yield
    assert rss() - before < GROWTH_BYTES


# --- the master: a real ROUTER, the engine, the scheduler -------------------------------------------------


class Hall:
    """A master with a real link in this process, an enrolled node, and a stranger with the key that
    enrols.
    """

    def __init__(self, root: Path) -> None:
        public, secret = (key.decode() for key in zmq.curve_keypair())
        self._router = Router(public_key=public, secret_key=secret)
        port = self._router.bind("127.0.0.1", 0)
        self._address = f"tcp://127.0.0.1:{port}"
        self._public = public
        self._context = zmq.Context()
        store = MemoryStore()
        self.bound: dict[str, str] = {}
        records = Records(
            lambda node_id, public_key, _: self.bound.__setitem__(node_id, public_key), store.assigned_nodes
        )
        link = LinkSettings(cluster="test")
        agents = wire_agents(
            self._router, LogWriter(root), records, link, master_epoch=EPOCH, clock=time.time, port=port
        )
        self.master = Master(
            store, agents.link, agents.enrolment, self, time.time, policy=Policy(), epoch=EPOCH
        )
        self._keys: dict[str, str] = {}
        self.node = self._connect("n1")
        self.enroller = self._connect(ENROL_USER)
        self.sent = 0

    def publish(self, replies: object, jobs: object, grown: object) -> None:
        """Nobody listens."""

    def _connect(self, name: str) -> zmq.Socket[bytes]:
        keys = zmq.curve_keypair()
        self._keys[name] = keys[0].decode()
        self._router.allow(self._keys[name], name)
        connection = self._context.socket(zmq.DEALER)
        connection.linger = 0
        connection.curve_publickey, connection.curve_secretkey = keys
        connection.curve_serverkey = self._public.encode()
        connection.connect(self._address)
        return connection

    def throw(self, frames: list[bytes]) -> None:
        for number, frame in enumerate(frames):
            (self.enroller if number % 10 == 0 else self.node).send(frame)
        self.sent += len(frames)

    def is_well(self) -> None:
        """The node greets, is welcomed, and the scheduler works."""
        hello = Hello(node_id=NodeId("n1"), facts=facts("n1"))
        self.node.send(codec.encode(hello, 0))
        give_up_at = time.monotonic() + 60
        while True:
            self.master.turn(0.01)
            assert (self.master.problem, time.monotonic() < give_up_at) == ("", True)
            while self.node.poll(0):
                answers = [codec.decode_to_agent(frame)[1] for frame in self.node.recv_multipart()]
                if any(isinstance(answer, Welcome) for answer in answers):
                    return
                if any(isinstance(answer, Refuse) for answer in answers):
                    # A whole Enrol for n1 that came while n1 was away has rightly taken its name: give it
                    # back.
                    self._router.allow(self._keys["n1"], "n1")
                    self.node.send(codec.encode(hello, 0))
                for answer in answers:
                    if isinstance(answer, Resync):  # after a mutant that spoke of another boot
                        self.node.send(codec.encode(replace(hello, answers=answer.number), 0))
            while self.enroller.poll(0):
                self.enroller.recv_multipart()

    def close(self) -> None:
        self.node.close()
        self.enroller.close()
        self._context.term()
        self._router.close()


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Hall]:
    hall = Hall(tmp_path / "logs")
    yield hall
    hall.close()


TO_MASTER_FRAMES = [codec.encode(message, 0) for message in TO_MASTER.values()]


def test_the_master(hall: Hall, flat_memory: None, caplog: pytest.LogCaptureFixture) -> None:
    hall.is_well()

    def submit(master: Master, turn: object) -> None:
        for number in range(4):  # attempts that mutants may hit: the sample's own among them
            master.apply(
                turn,
                JobSubmitted(
                    at=1.0,
                    job_id=JobId("AB12CD34") if not number else job_id(number),
                    user="ann",
                    spec=a_spec(),
                ),
            )

    hall.master.post(submit, print)
    hall.is_well()

    @programs(8_000)
    @given(program=PROGRAMS)
    def throw(program: bytes) -> None:
        hall.throw(mutants(program, TO_MASTER_FRAMES))
        hall.is_well()

    throw()
    assert hall.sent >= 8_000
    assert len(caplog.records) < 200, "a node that talks nonsense must not fill the log"
    assert sorted(hall.master.state.nodes) == ["n1"]
    assert [name for name in hall.bound if not re.fullmatch(NODE_ID_PATTERN, name)] == []


def test_a_frame_over_the_limit_costs_its_sender_the_connection(hall: Hall, flat_memory: None) -> None:
    hall.is_well()
    hall.node.send(b"\0" * (codec.MAX_FRAME_BYTES + 1))
    hall.is_well()


# --- the agent -------------------------------------------------------------------------------------------

TO_AGENT_FRAMES = [codec.encode(message, 0) for message in TO_AGENT.values()]


def test_the_agents_machine(flat_memory: None) -> None:
    seen = [0, 0]

    @programs(8_000)
    @given(program=PROGRAMS)
    def throw(program: bytes) -> None:
        machine = Machine(node_id=NodeId("n1"), public_key="k" * 40, is_enrolled=True)
        machine.handle(happened.KeeperAttached(at=0.0, facts=FACTS, tasks=()))
        machine.handle(happened.LinkRose(at=0.0))
        for frame in mutants(program, TO_AGENT_FRAMES):
            seen[0] += 1
            try:
                epoch, message = codec.decode_to_agent(frame)
            except RemoteProtocolError:
                continue
            seen[1] += 1
            machine.handle(happened.FrameArrived(at=1.0, master_epoch=epoch, message=message))

    throw()
    assert seen[0] >= 8_000
    assert seen[1] > 500, "enough of them get past the codec"


# Those that make an agent connect anew are left to the machine's own test: this one would only wait.
HARMLESS = [
    codec.encode(message, 0)
    for name, message in TO_AGENT.items()
    if name not in ("refuse", "enrolled", "bye", "welcome")
]


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[tuple[SmallMaster, Node]]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    master, node = SmallMaster(state), Node(state)
    try:
        node.start()
        master.wait(lambda: master.hellos)
        yield master, node
    finally:
        node.close()
        master.close()


def test_a_real_agent(joined: tuple[SmallMaster, Node]) -> None:
    master, node = joined
    first = master.launch("true")
    master.wait_end(first)
    before = rss(node.process.pid)
    sent = [0]

    @programs(2_000)
    @given(program=PROGRAMS)
    def throw(program: bytes) -> None:
        frames = [frame for frame in mutants(program, HARMLESS) if frame]
        assert master._router is not None
        master._router.send_multipart([master._peer, *frames])
        sent[0] += FRAMES_PER_PROGRAM
        heard = len(master.hellos)
        master.epoch = 2**64 - 1
        master.say(Resync())
        master.wait(lambda: len(master.hellos) > heard)

    throw()
    assert sent[0] >= 2_000
    assert node.process.poll() is None
    key = master.launch("echo", "still here")
    master.wait_end(key)
    assert master.text(key) == "still here\n"
    assert rss(node.process.pid) - before < GROWTH_BYTES
    assert os.stat(node.log).st_size < 1_000_000


# --- the keeper ------------------------------------------------------------------------------------------

KEY = AttemptKey(JobId("AB12CD34"), 2, 99)
TO_KEEPER: tuple[keeper.ToKeeper, ...] = (
    keeper.Attach(environment={b"PATH": b"/usr/bin:/bin"}),
    keeper.StartTasks(
        key=KEY, incarnation="other/one", argv=(b"true",), ranks=(keeper.RankStart(0, {b"A": b"b"}),), cwd="/"
    ),
    keeper.StopTasks(key=KEY, grace_s=0.1, reason="stop"),
    keeper.ForgetTasks(keys=(KEY,)),
)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def bodies() -> list[bytes]:
    return [msgspec.msgpack.encode(message) for message in TO_KEEPER]


def test_the_keepers_channel(flat_memory: None) -> None:
    """Whole messages, cut ones and lengths that lie: each is understood, or ends the conversation."""
    originals = bodies()
    counts = [0, 0]

    @programs(4_000)
    @given(program=PROGRAMS)
    def throw(program: bytes) -> None:
        for number, body in enumerate(mutants(program, originals)):
            ours, theirs = socket.socketpair()
            channel: Channel[keeper.ToKeeper] = Channel(theirs, keeper.to_keeper_decoder)
            wire = body if number % 4 == 0 else framed(body)
            ours.sendall(wire or b"\0")
            ours.close()
            messages = channel.receive()
            counts[0] += 1
            counts[1] += bool(messages)
            channel.close()

    throw()
    assert counts[0] >= 4_000
    assert counts[1] > 100


def test_a_real_keeper(tmp_path: Path) -> None:
    directory = tmp_path / "node"
    keepers = Keepers(directory)
    try:
        keepers.start("--idle", "60")
        first = Conversation(directory)
        first.close()
        pid = first.snapshot.pid
        before = rss(pid)
        originals = bodies()
        sent = [0]

        @programs(2_000)
        @given(program=PROGRAMS)
        def throw(program: bytes) -> None:
            for body in mutants(program, originals):
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(str(directory / "keeper.sock"))
                    connection.sendall(framed(body))
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 20):  # until the keeper hung up: it has read it
                        pass
                sent[0] += 1

        throw()
        again = wait_until(lambda: Conversation(directory), "the keeper answers")
        again.start(AttemptKey(JobId("STILLHRE"), 1, 2**63), "true")
        ended = again.wait_end(AttemptKey(JobId("STILLHRE"), 1, 2**63))
        again.close()

        assert sent[0] >= 2_000
        assert (again.snapshot.pid, ended.exit_code) == (pid, 0)
        assert rss(pid) - before < GROWTH_BYTES
    finally:
        keepers.close()
