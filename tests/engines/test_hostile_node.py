"""An enrolled node that is hostile: it is refused in one sentence, fills neither memory nor log, and gets at
nothing that is not its.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import tracemalloc

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.bounds import FRAMES_PER_MESSAGE
from mgpu_agent.protocol.codec import encode
from mgpu_agent.protocol.file_messages import FetchPieces, FoundResults
from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, JobId, NodeId
from mgpu_agent.protocol.model import GpuInfo, LaunchSpec, ResultFile, TaskSpec, TaskStatus
from mgpu_jupyter.engines.agents.files import MAX_WAITING, FolderServer
from mgpu_jupyter.master.node_link import Incoming
from mgpu_jupyter.scheduler.commands import LaunchTask
from mgpu_jupyter.scheduler.events import NodeJoined
from tests.builders import facts
from tests.engines.world import World, wait_until

pytestmark = pytest.mark.slow

GROWTH_BYTES = 500_000
FLOOD = 1_000


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.link.close()


def gpus(count):
    return tuple(
        GpuInfo(index=number, uuid=GpuUuid(f"GPU-{number}"), name="H100", memory_bytes=1)
        for number in range(count)
    )


def test_a_node_that_tells_of_too_many_gpus_is_refused_in_one_sentence(world, caplog):
    """Issue 16, finding 15."""
    for _ in range(5):
        assert world.say(wire.Hello(node_id="n1", facts=replace(facts("n1"), gpus=gpus(100_000)))) == []
    sentence = (
        "This tells more than is taken (Expected `array` of length <= 1024 - at `$.facts.gpus`): "
        "tell less of it, or install the same mgpu-jupyter on both."
    )
    assert world.sent() == [(b"\0r1", wire.Refuse(code="over-bounds", message=sentence))] * 5
    assert [record.levelname for record in caplog.records] == ["WARNING"]

    ((joined,)) = world.say(wire.Hello(node_id="n1", facts=replace(facts("n1"), gpus=gpus(1_024))))
    assert isinstance(joined, NodeJoined)


def test_a_message_of_very_many_frames_is_refused(world):
    world.hello()
    world.sent()
    beat = memoryview(encode(wire.Heartbeat(at=1.0), 0))
    world.carrier.incoming.append(Incoming("n1", b"\0r1", [beat] * (FRAMES_PER_MESSAGE + 1)))
    assert world.poll() == []
    assert [type(message) for _, message in world.sent()] == [wire.Refuse]


def key(number):
    return AttemptKey(JobId(f"{number:08}"), 1, number)


def ended(number, **fields):
    known = {
        "key": key(number),
        "rank": 0,
        "node_id": NodeId("n1"),
        "host": "h",
        "address": "a",
        "pid": 1,
        "started_at": 1.0,
    }
    return TaskStatus(**known, ended_at=2.0, exit_code=0, **fields)


def greet_again(number):
    return wire.Hello(node_id="n1", facts=replace(facts("n1"), host=f"host {number}"), beat=float(number + 2))


FLOODS = {
    "hellos": greet_again,
    "hellos of other boots": lambda number: replace(
        greet_again(number), facts=replace(facts("n1"), boot_id=f"boot {number}")
    ),
    "hellos of another node": lambda number: replace(greet_again(number), node_id=NodeId(f"n{number}")),
    "output of others": lambda number: wire.Output(
        key=key(number), rank=0, stream=1, offset=0, data=b"x" * 1_000
    ),
    "ends of what it never had": lambda number: wire.TaskReport(
        status=ended(number, stdout_bytes=1 << 40, collects=True)
    ),
    "ends under another name": lambda number: wire.TaskReport(
        status=replace(ended(number), node_id=NodeId(f"n{number}"))
    ),
    "results of others": lambda number: FoundResults(
        key=key(number), files=(ResultFile("a", 1 << 40, "0" * 64),) * 10
    ),
    "pieces of others": lambda number: FetchPieces(key=key(number), digests=(f"{number:064}",) * 32),
    "marks of others": lambda number: wire.Prepared(key=key(number)),
    "answers to nobody": lambda number: wire.InputAck(
        key=key(number), rank=0, writer="w" * 200, offset=number
    ),
    "parcels to others": lambda number: wire.Post(key=key(number), to=NodeId("n2"), data=b"x" * 1_000),
    "complaints": lambda number: (
        wire.Checked(ailments=()) if number % 2 else wire.Probed(number=number, ok=False, message="x" * 1_000)
    ),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_fills_neither_memory_nor_log(world, caplog, kind):
    """Thousands of messages of each kind, as turns of a master: what was taken in is committed and sent
    before the next.
    """
    caplog.set_level(logging.INFO)
    world.hello()
    world.sent()

    def flood(first, count):
        for number in range(first, first + count):
            route = b"\0r%d" % number if kind == "hellos of other boots" else b"\0r1"
            world.say(FLOODS[kind](number), route=route)
            world.link.committed()
            for beside in ("marks", "grown", "typed", "readings", "answers"):
                world.take(beside)
            world.sent()

    flood(0, 200)
    caplog.clear()
    gc.collect()
    tracemalloc.start()
    try:
        flood(200, FLOOD)
        caplog_records = len(caplog.records)
        caplog.clear()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert grown < GROWTH_BYTES
    assert caplog_records <= 1


def test_pieces_that_nobody_takes_are_not_read_for_ever(tmp_path):
    """A node asks for the same pieces again and again; what waits for it stays within a bound."""
    read = []
    server = FolderServer(lambda user, digest: read.append((user, digest)) or b"x" * 1_000, lambda: None)
    try:
        spec = replace(a_spec_of_launch(), folder="f")
        server.launch(spec)
        for _ in range(200):
            server.take(spec.node_id, FetchPieces(key=spec.key, digests=("d",) * 32))
        wait_until(lambda: len(read) == MAX_WAITING)
        assert len(server.take_ready()) == MAX_WAITING
        server.take(spec.node_id, FetchPieces(key=spec.key, digests=("e",)))
        wait_until(lambda: len(read) == MAX_WAITING + 1)
        assert read[-1] == (spec.user, "e")
    finally:
        server.close()


def a_spec_of_launch():
    return LaunchSpec(
        key=key(1), node_id=NodeId("n1"), incarnation="i", user="ann", tasks=(TaskSpec(rank=0),)
    )


def test_a_node_gets_only_pieces_of_users_whose_jobs_it_has_and_touches_only_its_attempts(tmp_path):
    """Kept: what another node was given is nothing to this one, whatever it names."""
    secret = hashlib.sha256(b"secret").hexdigest()
    world = World(tmp_path)
    world.link._files._folders._read = lambda user, digest: (
        b"secret" if (user, digest) == ("me", secret) else None
    )
    try:
        world.hello()
        world.hello(node="n2", route=b"\0r2")
        world.sent()
        theirs = world.job.attempt_key
        world.link.send([LaunchTask(replace(a_spec_of_launch(), key=theirs, user="me", folder=secret))])
        world.sent()
        for message in (
            FetchPieces(key=theirs, digests=(secret,)),
            FoundResults(key=theirs),
            wire.InputAck(key=theirs, rank=0, writer="w", offset=1),
            wire.Output(key=theirs, rank=0, stream=1, offset=0, data=b"forged"),
            wire.Post(key=theirs, to=NodeId("n1"), data=b"forged"),
        ):
            assert world.say(message, node="n2", route=b"\0r2") == []
        assert world.sent() == []
        assert world.take("typed") == []

        world.say(FetchPieces(key=theirs, digests=(secret,)))
        ((route, piece),) = wait_until(world.sent)
        assert (route, piece.digest, bytes(piece.data)) == (b"\0r1", secret, b"secret")
    finally:
        world.link.close()
