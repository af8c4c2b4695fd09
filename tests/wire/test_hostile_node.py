"""An enrolled node that lies: every message of the protocol under another's name, attempt or epoch, and far
too large.

Beside it an honest node runs Ann's job. What each lie gives its teller stands in the table of
`docs/security.md`; that nothing changes for Ann, for the honest node or for the liar's own job is the same
for all. Likewise an agent that an older master speaks to.
"""

from __future__ import annotations

import collections
import time
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from msgspec.structs import replace

from mgpu_agent.protocol import codec
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import (
    Heard,
    Heartbeat,
    Hello,
    Launch,
    Prepare,
    Refuse,
    Resync,
    Start,
    Stop,
    TaskReport,
    ToAgent,
    ToMaster,
    Welcome,
)
from mgpu_agent.protocol.model import TaskStatus
from mgpu_jupyter.engines.agents.engine import wire_agents
from mgpu_jupyter.engines.agents.files import Records
from mgpu_jupyter.master.master import Master
from mgpu_jupyter.model.settings import LinkSettings
from mgpu_jupyter.scheduler.events import JobSubmitted
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.store.logs import LogWriter
from mgpu_jupyter.store.memory import MemoryStore
from mgpu_jupyter.store.results import ResultStore
from mgpu_jupyter.transport.router import Router
from tests.agent.conftest import Node
from tests.agent.master import SmallMaster
from tests.builders import a_spec, facts
from tests.documents import SECURITY, table_of
from tests.protocol.samples import TO_AGENT, TO_MASTER

pytestmark = pytest.mark.slow

EPOCH = 3
LIMIT_S = 20.0
ANNS, HERS, HONEST, LIAR = JobId("ANNSJOB1"), JobId("LIARJOB1"), NodeId("honest"), NodeId("liar")
DIGEST = "0" * 64
FAULTS = ("wrong node", "wrong attempt", "wrong epoch", "oversize")


class Hall:
    """A master with a real link in this process, an honest node with Ann's job, and a liar with one of its
    own.
    """

    def __init__(self, root: Path) -> None:
        public, secret = (key.decode() for key in zmq.curve_keypair())
        self._router = Router(public_key=public, secret_key=secret)
        self._address, self._public = f"tcp://127.0.0.1:{self._router.bind('127.0.0.1', 0)}", public
        self._context = zmq.Context()
        self.root = root
        self.store = MemoryStore()
        self.bound: list[str] = []
        self.asked: list[tuple[str, str]] = []
        records = Records(
            lambda node_id, *_: self.bound.append(node_id),
            self.store.assigned_nodes,
            self._piece,
            ResultStore(root / "results"),
        )
        agents = wire_agents(
            self._router,
            LogWriter(root / "logs"),
            records,
            LinkSettings(cluster="test"),
            master_epoch=EPOCH,
            clock=time.time,
        )
        self.master = Master(
            self.store, agents.link, agents.enrolment, self, time.time, policy=Policy(), epoch=EPOCH
        )
        self._keys = {name: zmq.curve_keypair() for name in (HONEST, LIAR)}
        for name, (key, _) in self._keys.items():
            self._router.allow(key.decode(), name)
        self.sockets: dict[str, zmq.Socket[bytes]] = {}
        self._breaks: dict[str, zmq.Socket[bytes]] = {}
        self.heard: dict[str, list[ToAgent]] = collections.defaultdict(list)
        for name in (HONEST, LIAR):
            self.greet(name)
        self.keys = {HONEST: self.run(HONEST, ANNS, "ann"), LIAR: self.run(LIAR, HERS, "liar")}

    def publish(self, replies: object, jobs: object, grown: object) -> None:
        """Nobody listens."""

    def _piece(self, user: str, digest: str) -> bytes:
        self.asked.append((user, digest))
        return b"a piece"

    def greet(self, name: NodeId) -> None:
        """Connect anew, be welcomed, and tell of what runs there."""
        if name in self.sockets:
            self.hang_up(name)
        connection = self._context.socket(zmq.DEALER)
        connection.linger = 0
        connection.curve_publickey, connection.curve_secretkey = self._keys[name]
        connection.curve_serverkey = self._public.encode()
        connection.connect(self._address)
        self.sockets[name] = connection
        self._breaks[name] = connection.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        job = self.master.state.jobs.get(ANNS if name == HONEST else HERS)
        tasks = () if job is None else tuple(self.running(name, one) for one in [job.attempt_key])
        hello = Hello(node_id=name, facts=facts(name, 2), tasks=tasks)
        self.say(name, hello)
        while True:
            before = len(self.heard[name])
            self.turn_until(lambda before=before: len(self.heard[name]) > before)
            news = self.heard[name][before:]
            if any(isinstance(one, Welcome) for one in news):
                return
            for message in news:
                if isinstance(message, Resync):
                    self.say(name, replace(hello, answers=message.number))

    def hang_up(self, name: str) -> None:
        self.sockets[name].disable_monitor()
        self._breaks[name].close()
        self.sockets[name].close()

    def run(self, name: NodeId, job_id: JobId, user: str) -> AttemptKey:
        """Submit a job that is to run on this node, and let it run there."""
        spec = a_spec(gpus=1, nodelist=(name,), results=("out",), sync=DIGEST)
        self.master.post(
            lambda master, turn: master.apply(
                turn, JobSubmitted(at=time.time(), job_id=job_id, user=user, spec=spec)
            ),
            print,
        )
        self.turn_until(lambda: any(isinstance(one, Launch) for one in self.heard[name]))
        key = self.master.state.jobs[job_id].attempt_key
        self.say(name, TaskReport(status=self.running(name, key)))
        self.turn_until(lambda: self.master.state.jobs[job_id].state == "running")
        return key

    def running(self, name: NodeId, key: AttemptKey) -> TaskStatus:
        return TaskStatus(
            key=key, rank=0, node_id=name, host=f"host-{name}", address="127.0.0.1", pid=7, started_at=1.0
        )

    def say(self, name: str, *messages: ToMaster, epoch: int = 0) -> None:
        self.sockets[name].send_multipart([codec.encode(message, epoch) for message in messages])

    def turn_until(self, condition: Callable[[], object]) -> None:
        give_up_at = time.monotonic() + LIMIT_S
        while not condition():
            self.master.turn(0.01)
            assert (self.master.problem, time.monotonic() < give_up_at) == ("", True)
            for name, connection in self.sockets.items():
                while connection.poll(0):
                    self.heard[name] += [
                        codec.decode_to_agent(frame)[1] for frame in connection.recv_multipart()
                    ]

    def settle(self, name: NodeId) -> str:
        """Turn until all that this node said before was taken in, which an answer to its next beat shows;
        tell what it got for it.
        """
        before, beat = len(self.heard[name]), time.monotonic()
        self.say(name, Heartbeat(at=time.time(), beat=beat))
        found: list[str] = []

        def answered() -> bool:
            news = self.heard[name][before:]
            if any(isinstance(one, Refuse) for one in news):
                found.append("refused")
            elif self._breaks[name].poll(0):
                found.append("cut off")
            elif any(isinstance(one, Resync) for one in news):
                found.append("out")
            elif Heard(beat=beat) in news:
                found.append("ignored")
            return bool(found)

        self.turn_until(answered)
        return found[0]

    def of_others(self) -> object:
        """Return all that must stay as it is, whatever the liar says."""
        state = self.master.state
        files = {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }
        node = state.nodes[HONEST]
        return [
            # That a node lied about a job is noted there, with the liar's name, up to a cap.
            *(replace(state.jobs[job_id], mismatches=()) for job_id in (ANNS, HERS)),
            (sorted(state.nodes), list(self.bound), files),
            (node.state, node.facts, node.orders),
            [one for one in self.heard[HONEST] if not isinstance(one, Heard)],
        ]

    def close(self) -> None:
        for name in self.sockets:
            self.hang_up(name)
        self._context.term()
        self._router.close()


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Hall]:
    hall = Hall(tmp_path)
    yield hall
    hall.close()


def with_values(message: Any, change: Callable[[str, Any], Any]) -> Any:
    """Return a message with every field, also of those within it, replaced by what `change` makes of it."""
    if isinstance(message, tuple) and not hasattr(message, "_fields"):
        return tuple(with_values(one, change) for one in message)
    if not isinstance(message, msgspec.Struct):
        return message
    return replace(
        message,
        **{
            name: change(name, with_values(getattr(message, name), change))
            for name in message.__struct_fields__
        },
    )


def named(message: ToMaster, key: AttemptKey, node: NodeId, own: TaskStatus) -> ToMaster:
    """Return a message about this attempt, as from or to this node; a Hello also tells what is true."""

    def change(name: str, value: Any) -> Any:
        if isinstance(value, AttemptKey):
            return key
        if isinstance(value, tuple) and value and all(isinstance(one, AttemptKey) for one in value):
            return (key,)
        return node if name in ("node_id", "to") else value

    lie = with_values(message, change)
    return replace(lie, tasks=(*lie.tasks, own)) if isinstance(lie, Hello) else lie


def blown_up(message: ToMaster) -> bytes:
    """Return a frame of this message that is over the limit, with its texts, bytes and lists as large as it
    takes.
    """
    frame = bytearray(codec.encode(message, 0))
    raw = msgspec.msgpack.decode(bytes(frame))
    body = raw[-1] if isinstance(raw, list) else raw
    names = [name for name, value in body.items() if isinstance(value, (str, bytes, list)) and name != "type"]
    for name in names or ["further"]:
        body[name] = b"x" * (codec.MAX_FRAME_BYTES // max(len(names), 1) + 1024)
    return msgspec.msgpack.encode(raw)


def lies(fault: str, message: ToMaster, hall: Hall) -> list[bytes]:
    """Return what the liar sends."""
    anns, hers = hall.keys[HONEST], hall.keys[LIAR]
    if isinstance(
        message, Hello
    ):  # it may well say that its own job is gone: here it does not, so that only the lie is left
        message = replace(message, facts=facts(LIAR, 2), samples=())
    own = hall.running(LIAR, hers)
    if fault == "wrong node":
        return [codec.encode(named(message, anns, node, own), 0) for node in (HONEST, LIAR)]
    if fault == "wrong attempt":
        keys = [
            replace(hers, attempt=hers.attempt + 1),
            replace(hers, attempt=0),
            replace(hers, job_id=JobId("NOSUCH00")),
        ]
        return [codec.encode(named(message, key, LIAR, own), 0) for key in keys]
    if fault == "wrong epoch":
        keys = [replace(hers, epoch=hers.epoch + delta) for delta in (1, -1, 2**32)]
        stale = [codec.encode(named(message, key, LIAR, own), 0) for key in keys]
        return [*stale, codec.encode(named(message, hers, LIAR, own), EPOCH + 1)]
    return [blown_up(named(message, hers, LIAR, own))]


def tags(union: Any) -> list[str]:
    return [typing.cast("str", kind.__struct_config__.tag) for kind in typing.get_args(union)]


def test_the_document_has_a_line_for_each_message() -> None:
    assert (
        sorted(row[0] for row in table_of(SECURITY, "message of a node"))
        == sorted(tags(ToMaster))
        == sorted(TO_MASTER)
    )
    assert (
        sorted(row[0] for row in table_of(SECURITY, "message of a master"))
        == sorted(tags(ToAgent))
        == sorted(TO_AGENT)
    )


@pytest.mark.timeout(120)
def test_no_lie_of_an_enrolled_node_changes_anything_of_others(
    hall: Hall, caplog: pytest.LogCaptureFixture
) -> None:
    expected = {
        row[0]: dict(zip(FAULTS, row[1:], strict=True)) for row in table_of(SECURITY, "message of a node")
    }
    for name in (LIAR, HONEST):
        hall.settle(name)
    before, found, sent = hall.of_others(), {}, 0
    for tag, message in TO_MASTER.items():
        found[tag] = {}
        for fault in FAULTS:
            for frame in lies(fault, message, hall):
                hall.sockets[LIAR].send(frame)
                sent += 1
            found[tag][fault] = hall.settle(LIAR)
            assert hall.settle(HONEST) == "ignored"
            assert hall.of_others() == before, (tag, fault)
            hall.greet(LIAR)
    print(f"{len(found)} messages x {len(FAULTS)} faults, {sent} lies: nothing changed for others")

    assert found == expected
    assert hall.asked == []
    noted = hall.master.state.jobs[ANNS].mismatches
    assert [text for text in noted if " liar" not in text and "no GPU" not in text] == []
    assert len(caplog.records) < 200


# --- an older master towards an agent ---------------------------------------------------------------------


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[SmallMaster]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    master, node = SmallMaster(state, epoch=9), Node(state)
    try:
        node.start()
        master.wait(lambda: master.hellos)
        yield master
        assert node.process.poll() is None
    finally:
        node.close()
        master.close()


@pytest.mark.timeout(120)
def test_nothing_that_an_older_master_says_changes_anything_on_a_node(
    joined: SmallMaster, tmp_path: Path
) -> None:
    expected = {row[0]: row[1] for row in table_of(SECURITY, "message of a master")}
    key = joined.launch("sleep", "600")
    joined.wait_running(key)

    def told() -> tuple[Any, ...]:
        """Return what the agent tells when it is asked anew."""
        heard = len(joined.hellos)
        joined.say(Resync())
        joined.wait(lambda: len(joined.hellos) > heard)
        hello = joined.hellos[-1]
        refused, farewells = len(joined.refusals), len(joined.farewells)
        return (
            hello.tasks,
            hello.prepared,
            hello.facts.incarnation,
            len(joined.hellos) - heard,
            refused,
            farewells,
            len(joined.prepared),
        )

    before, found = told(), {}
    for tag, message in TO_AGENT.items():
        lie = with_values(message, lambda _, value: key if isinstance(value, AttemptKey) else value)
        if isinstance(lie, (Launch, Prepare, Start)) and lie.spec is not None:
            lie = replace(
                lie, spec=replace(lie.spec, node_id=joined.hellos[-1].node_id, incarnation=before[2])
            )
        joined.say(lie, epoch=joined.epoch - 1)
        found[tag] = "ignored" if told() == before else "heeded"
    print(f"{len(found)} messages of an older master: nothing changed on the node")

    assert found == expected
    joined.say(Stop(key=key, grace_s=0.1))
    assert joined.wait_end(key).signal is not None
