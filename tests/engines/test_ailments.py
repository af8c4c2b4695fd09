"""What ails nodes, as events: their own checks, their clocks beside the master's, and GPUs that a site's
program names.
"""

from __future__ import annotations

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.model import Ailment, GpuSample, GpuTrouble, Trouble
from mgpu_jupyter.scheduler.events import GpusChanged, NodeChecked
from tests.engines.world import AT, WALL, World

N1 = NodeId("n1")
GPU = GpuUuid("GPU-n1-0")
DISK = Ailment(check="disk", text="Its disk is full.")
HOT = Ailment(check="program", text="It is too hot.", gpu=GPU)


def test_what_checks_find_becomes_an_event_once(world: World) -> None:
    world.hello()

    assert world.say(wire.Checked(ailments=(DISK,))) == [
        NodeChecked(at=AT, node_id=N1, ailments=(DISK.text,))
    ]
    assert world.say(wire.Checked(ailments=(DISK,))) == []
    assert world.say(wire.Checked()) == [NodeChecked(at=AT, node_id=N1)]


def test_what_is_said_of_a_gpu_goes_with_its_readings(world: World) -> None:
    world.hello()
    hot, outside = GpuTrouble(Trouble.HEALTH, HOT.text), GpuTrouble(Trouble.OUTSIDE, "pid 7")

    assert world.say(wire.Checked(ailments=(HOT,))) == [GpusChanged(at=AT, node_id=N1, troubles={GPU: hot})]
    assert world.say(wire.Heartbeat(at=WALL, samples=(GpuSample(uuid=GPU),))) == []
    sample = GpuSample(uuid=GPU, trouble=outside)
    assert world.say(wire.Heartbeat(at=WALL, samples=(sample,))) == [
        GpusChanged(at=AT, node_id=N1, troubles={GPU: outside})
    ]
    assert world.say(wire.Checked()) == []
    assert world.say(wire.Heartbeat(at=WALL, samples=(GpuSample(uuid=GPU),))) == [
        GpusChanged(at=AT, node_id=N1, troubles={})
    ]


def test_a_clock_that_is_wrong_three_times_in_a_row_is_told_until_it_is_right(world: World) -> None:
    world.hello()
    late, right = wire.Heartbeat(at=WALL - 3600.0), wire.Heartbeat(at=WALL + 59.0)

    assert [world.say(beat) for beat in (late, late, right, late, late)] == [[], [], [], [], []]
    text = "Its clock is 3600 s behind the master's: set it right, best by NTP on both machines."
    assert world.say(late) == [NodeChecked(at=AT, node_id=N1, ailments=(text,))]
    assert world.say(late) == []
    assert world.say(wire.Checked(ailments=(DISK,))) == [
        NodeChecked(at=AT, node_id=N1, ailments=(DISK.text, text))
    ]
    assert world.say(right) == [NodeChecked(at=AT, node_id=N1, ailments=(DISK.text,))]
    assert world.say(right) == []


def test_a_node_that_connects_anew_is_well_until_it_says_otherwise(world: World) -> None:
    world.hello()
    world.say(wire.Checked(ailments=(DISK, HOT)))
    (joined,) = world.hello(route=b"\0r2")

    assert joined.troubles == {}
    world.carrier.incoming.clear()
    assert world.say(wire.Checked(ailments=(DISK,)), route=b"\0r2") == [
        NodeChecked(at=AT, node_id=N1, ailments=(DISK.text,))
    ]
