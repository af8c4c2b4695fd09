"""Who may become a node, over a link in memory: keys that work once, names, and a node that is revoked."""

from __future__ import annotations

import pytest

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.bounds import FRAMES_PER_MESSAGE
from mgpu_agent.protocol.codec import encode
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.engines.agents.enrolment import ENROL_USER, join_user
from mgpu_jupyter.master.node_link import Incoming
from mgpu_jupyter.master.ports import JoinKey
from mgpu_jupyter.scheduler.commands import StopTask
from mgpu_jupyter.scheduler.events import TaskReported
from tests.builders import status
from tests.engines.world import AT, EPOCH, World

ASK_AGAIN = "run `mgpu join-token` on the master's machine for a new join line."


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "logs")
    yield world
    world.link.close()


def a_join_key(letter="j", **changes):
    return JoinKey(
        **{
            "public_key": letter * 40,
            "created_by": "ann",
            "created_at": AT,
            "expires_at": AT + 60.0,
            **changes,
        }
    )


def enrol(world, key, node="n7", public="k" * 40):
    world.say(wire.Enrol(node_id=NodeId(node), public_key=public), node=join_user(key))
    return [message for _, message in world.sent()]


def test_a_join_key_binds_one_node_durably_before_it_works_and_then_no_other(world):
    key = a_join_key()
    world.enrolment.admit(key)
    world.diary.clear()

    assert enrol(world, key) == [wire.Enrolled(node_id=NodeId("n7"))]

    assert world.diary == [("bind", "n7", key.public_key), ("allow", "n7"), ("forbid", join_user(key))]
    assert world.carrier.forbidden == {join_user(key): "this join line was used already"}
    assert world.enrolment.knows(NodeId("n7"))


def test_a_join_key_is_taken_off_the_list_when_its_time_is_over(world):
    early, late = a_join_key("e"), a_join_key("l", expires_at=AT + 61.0)
    world.enrolment.admit(early)
    world.enrolment.admit(late)
    world.now = AT + 60.0

    world.poll()

    assert world.carrier.forbidden == {join_user(early): "this join line has expired"}
    assert enrol(world, late) == [wire.Enrolled(node_id=NodeId("n7"))]


@pytest.mark.parametrize(
    ("named", "node", "public", "code"),
    [
        ("n8", "n7", "k" * 40, "wrong-node-id"),
        (None, "n1", "k" * 40, "node-id-taken"),
        (None, "away", "k" * 40, "node-id-taken"),
        (None, "n7", "o" * 40, "key-taken"),
        (None, "n7", "j" * 40, "key-taken"),
        (None, "n7", "short", "bad-key"),
        (None, "n 7", "k" * 40, "bad-node-id"),
    ],
)
def test_what_a_join_key_does_not_allow(world, named, node, public, code):
    """A refusal does not use it up."""
    world.hello("n1", b"\0r9")
    world.carrier.allowed["away"] = "o" * 40
    key = a_join_key(node_id=named)
    world.enrolment.admit(key)
    world.sent()

    assert [message.code for message in enrol(world, key, node, public)] == [code]
    assert world.bound == {}
    assert enrol(world, key, named or "n7") == [wire.Enrolled(node_id=NodeId(named or "n7"))]


def test_a_join_key_for_a_name_gives_it_a_new_key_and_the_same_key_may_come_again(world):
    world.carrier.allowed["away"] = "o" * 40
    named, plain = a_join_key(node_id=NodeId("away")), a_join_key("p")
    world.enrolment.admit(named)
    world.enrolment.admit(plain)

    assert enrol(world, named, "away") == [wire.Enrolled(node_id=NodeId("away"))]
    assert enrol(world, plain, "away") == [wire.Enrolled(node_id=NodeId("away"))]
    assert world.bound == {"away": "k" * 40}


def test_a_revoked_node_is_refused_at_its_next_frame_with_the_reason(world, caplog):
    world.carrier.allowed["n1"] = "k" * 40
    world.hello()
    world.sent()

    world.enrolment.revoke(NodeId("n1"), "Revoked by root: stolen.")
    why = world.carrier.forbidden["n1"]
    for _ in range(2):
        world.carrier.incoming.append(Incoming("n1", b"\0r1", [memoryview(b"rubbish")], why))
        assert world.poll() == []

    text = f"Node n1 is not part of this cluster any more (Revoked by root: stolen): {ASK_AGAIN}"
    assert world.sent() == [(b"\0r1", wire.Refuse(code="revoked", message=text))] * 2
    assert len([record for record in caplog.records if "revoked" in record.message]) == 1
    assert not world.enrolment.knows(NodeId("n1"))
    world.link.send([StopTask(NodeId("n1"), world.job.attempt_key, 5.0, "because")])
    assert world.sent() == []


@pytest.mark.parametrize("bad", ["revoked", "too many frames", "no message", "of a newer master"])
def test_what_one_node_says_wrong_drops_nothing_that_others_say_in_the_same_batch(world, bad):
    """What is refused costs its sender the rest of its message; frames of others that came with it count."""
    world.hello("n1", b"\0r1")
    world.hello("n2", b"\0r2")
    report = memoryview(encode(wire.TaskReport(status=status(world.job)), 0))
    beat = memoryview(encode(wire.Heartbeat(at=1.0, cpu_percent=50.0), 0))
    frames, refusal = {
        "revoked": ([beat], "node n2 is not part of this cluster any more"),
        "too many frames": ([beat] * (FRAMES_PER_MESSAGE + 1), ""),
        "no message": ([memoryview(b"rubbish"), beat], ""),
        "of a newer master": ([memoryview(encode(wire.Heartbeat(at=1.0), EPOCH + 1)), beat], ""),
    }[bad]
    world.carrier.incoming += [Incoming("n2", b"\0r2", frames, refusal), Incoming("n1", b"\0r1", [report])]

    assert world.poll() == [TaskReported(at=AT, status=status(world.job))]


def test_a_revoked_name_comes_back_by_a_join_line_only(world):
    key = a_join_key()
    world.enrolment.admit(key)
    world.enrolment.revoke(NodeId("n7"), "Revoked by root.")

    world.say(wire.Enrol(node_id=NodeId("n7"), public_key="k" * 40), node=ENROL_USER)
    text = f"Node n7 is not part of this cluster any more (Revoked by root): {ASK_AGAIN}"
    assert world.sent() == [(b"\0r1", wire.Refuse(code="revoked", message=text))]
    assert enrol(world, key) == [wire.Enrolled(node_id=NodeId("n7"))]
    world.say(wire.Enrol(node_id=NodeId("n7"), public_key="k" * 40), node=ENROL_USER)
    assert world.sent() == [(b"\0r1", wire.Enrolled(node_id=NodeId("n7")))]


def test_a_connection_that_enrolled_and_goes_on_is_refused(world):
    world.carrier.incoming.append(
        Incoming(join_user(a_join_key()), b"\0r1", [memoryview(b"")], "this join line was used already")
    )
    world.poll()

    text = f"This join line was used already: {ASK_AGAIN}"
    assert world.sent() == [(b"\0r1", wire.Refuse(code="join-refused", message=text))]


def test_the_link_listens_on_another_address_once(world):
    assert [world.enrolment.listen(host) for host in ("127.0.0.1", "192.0.2.1", "192.0.2.1")] == [
        False,
        True,
        False,
    ]
    assert world.carrier.bound == [("192.0.2.1", 8790)]
