"""Hellos that come late: what a connection that is gone says changes nothing, one that lives is believed when
it answers.
"""

from __future__ import annotations

import pytest

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.scheduler.events import NodeHeard, NodeJoined, NodeQuiet, NodeSilent, TaskReported
from tests.builders import facts, status
from tests.engines.world import AT, World

NEW, OLD = b"\0new", b"\0old"


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, timeout_s=5.0)


def hello(world, route, beat, boot="boot-1", answers=0):
    """Say Hello; return what follows from it, and what was asked."""
    known = facts("n1", incarnation=f"{boot}/ledger", boot_id=boot)
    events = world.say(wire.Hello(node_id=NodeId("n1"), facts=known, beat=beat, answers=answers), route=route)
    return [type(event) for event in events], [
        message.number for _, message in world.sent() if isinstance(message, wire.Resync)
    ]


def is_current(world, route):
    """Tell whether what comes by this connection counts."""
    return [type(event) for event in world.say(wire.TaskReport(status=status(world.job)), route=route)] == [
        TaskReported
    ]


JOINED: tuple[list[type], list[int]] = ([NodeJoined], [])


def doubted(number):
    return [], [number]


def test_a_hello_that_was_held_up_on_an_older_connection_changes_nothing(world):
    """It was said before a launch that the newer connection brought: what it does not tell of is not lost."""
    assert hello(world, NEW, 70.0) == JOINED
    assert hello(world, OLD, 65.0) == doubted(1)
    assert is_current(world, NEW)


def test_a_hello_of_an_earlier_boot_changes_nothing(world):
    """Two boots have no order: what was held up from before the last one tells of nothing that runs now."""
    assert hello(world, OLD, 70.0) == JOINED
    assert hello(world, NEW, 2.0, boot="boot-2") == doubted(1)
    assert hello(world, NEW, 2.0, boot="boot-2", answers=1) == JOINED

    assert hello(world, OLD, 70.0) == doubted(2)
    assert hello(world, OLD, 71.0) == doubted(2)
    assert hello(world, b"\0older", 60.0) == doubted(4)
    assert is_current(world, NEW)


def test_a_connection_that_lives_answers_and_is_believed(world):
    """Its clock counts from another moment, as in a container that was made anew."""
    assert hello(world, NEW, 70.0) == JOINED
    assert hello(world, OLD, 66.0) == doubted(1)
    assert hello(world, OLD, 66.0) == doubted(1)
    assert hello(world, OLD, 66.0, answers=1) == JOINED
    assert hello(world, OLD, 66.0, answers=1) == JOINED
    assert is_current(world, OLD)


def test_an_answer_counts_on_its_own_connection_and_for_its_own_question(world):
    assert hello(world, NEW, 70.0) == JOINED
    assert hello(world, OLD, 66.0) == doubted(1)
    assert hello(world, b"\0other", 66.0, answers=1) == doubted(2)
    assert hello(world, NEW, 71.0) == JOINED
    assert hello(world, OLD, 66.0, answers=1) == doubted(3)


def test_two_hellos_between_two_ticks_are_told_apart_by_their_connections(world):
    assert hello(world, NEW, 70.0) == JOINED
    assert hello(world, NEW, 70.0) == JOINED
    assert hello(world, OLD, 70.0) == doubted(1)
    assert is_current(world, NEW)


def test_a_node_that_is_silent_where_it_is_known_and_speaks_elsewhere_is_asked_for_its_hello(world):
    hello(world, OLD, 70.0)
    assert world.say(wire.Heartbeat(at=1.0), route=NEW) == []
    assert world.sent() == []

    world.now += 5.5
    assert [type(event) for event in world.say(wire.Heartbeat(at=1.0), route=NEW)] == [NodeSilent]
    world.sent()
    assert world.say(wire.Heartbeat(at=1.0), route=NEW) == []
    assert world.sent() == [(NEW, wire.Resync())]
    assert hello(world, NEW, 75.0) == JOINED
    world.now += 5.5
    assert [type(event) for event in world.poll()] == [NodeSilent]
    assert [type(event) for event in world.say(wire.Heartbeat(at=1.0), route=NEW)] == [NodeHeard]


def test_a_node_whose_beats_do_not_come_is_quiet_at_first_and_silent_later(tmp_path):
    world = World(tmp_path, timeout_s=60.0)
    world.hello()
    world.now += 5.0
    assert world.poll() == []
    world.now += 0.5
    quiet = NodeQuiet(at=AT + 5.5, node_id=NodeId("n1"))
    assert (world.poll(), world.poll()) == ([quiet], [])
    assert world.say(wire.Heartbeat(at=1.0)) == [NodeHeard(at=AT + 5.5, node_id=NodeId("n1"))]
    assert world.say(wire.Heartbeat(at=1.1)) == []
    world.now += 6.0
    assert world.poll() == [NodeQuiet(at=AT + 11.5, node_id=NodeId("n1"))]
    world.now += 60.0
    why = "Nothing is heard of it any more."
    silent = NodeSilent(at=AT + 71.5, node_id=NodeId("n1"), reason=why, heard_at=AT + 5.5)
    assert (world.poll(), world.poll()) == ([silent], [])
    assert world.say(wire.Heartbeat(at=2.0)) == [NodeHeard(at=AT + 71.5, node_id=NodeId("n1"))]


def test_a_time_out_that_is_shorter_than_two_beats_counts_alone(world):
    world.hello()
    world.now += 5.5
    assert [type(event) for event in world.poll()] == [NodeSilent]
    assert world.poll() == []
