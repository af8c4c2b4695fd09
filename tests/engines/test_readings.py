"""What the engine hears of nodes beside their jobs: load and trials; and what is left of a node that is
forgotten.
"""

from __future__ import annotations

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import GpuSample
from mgpu_jupyter.master.node_link import NewestReading
from mgpu_jupyter.scheduler.commands import ProbeNode
from mgpu_jupyter.scheduler.events import NodeMeasured, NodeProbed
from mgpu_jupyter.scheduler.model import Load
from tests.engines.world import AT


def test_load_is_told_when_it_changed_enough(world):
    world.hello()
    gib = 1 << 30

    def beat(cpu, memory=32 * gib, *busy):
        samples = tuple(
            GpuSample(uuid=f"GPU-n1-{index}", utilisation_percent=percent)
            for index, percent in enumerate(busy)
        )
        return world.say(
            wire.Heartbeat(at=1.0, samples=samples, cpu_percent=cpu, memory_available_bytes=memory)
        )

    def told(**load):
        return [NodeMeasured(at=AT, node_id=NodeId("n1"), load=Load(**load))]

    assert beat(10.0) == told(cpu_percent=10.0, memory_available_bytes=32 * gib)
    assert beat(11.0, 32 * gib + 5) == []
    assert world.take("readings") == {
        "n1": NewestReading(load=Load(cpu_percent=11.0, memory_available_bytes=32 * gib + 5))
    }
    assert beat(14.0, 16 * gib) == told(cpu_percent=14.0, memory_available_bytes=16 * gib)
    assert beat(14.0, 16 * gib, 90.0, None, 30.0) == told(
        gpu_percent=60.0, cpu_percent=14.0, memory_available_bytes=16 * gib
    )
    assert world.say(wire.Heartbeat(at=1.0)) == []
    world.hello()
    assert beat(14.0, 16 * gib) == told(gpu_percent=60.0, cpu_percent=14.0, memory_available_bytes=16 * gib)


def test_load_that_is_no_number_is_not_believed(world):
    world.hello()
    values = map(float, ("inf", "nan", "1e308", "-1", "50"))
    strange = tuple(
        GpuSample(uuid=f"GPU-n1-{index}", utilisation_percent=value) for index, value in enumerate(values)
    )

    assert world.say(wire.Heartbeat(at=1.0, samples=strange[:4], cpu_percent=float("inf"))) == []
    (event,) = world.say(wire.Heartbeat(at=1.0, samples=strange, cpu_percent=float("nan")))
    assert event == NodeMeasured(at=AT, node_id=NodeId("n1"), load=Load(gpu_percent=50.0))


def test_a_trial_is_asked_for_and_its_answer_is_an_event(world):
    world.hello()
    world.sent()
    world.link.send([ProbeNode(NodeId("n1"), 7)])
    world.link.flush()

    assert [message for _, message in world.sent()] == [wire.Probe(number=7)]
    assert world.say(wire.Probed(number=7, ok=False, message="Full.")) == [
        NodeProbed(at=AT, node_id=NodeId("n1"), number=7, ok=False, message="Full.")
    ]


def test_a_node_that_is_forgotten_leaves_nothing_behind(world):
    world.carrier.allow("k" * 40, "n1")
    world.hello()
    world.say(wire.Heartbeat(at=1.0, samples=(GpuSample(uuid="GPU-n1-0", utilisation_percent=50.0),)))
    world.enrolment.forget(NodeId("n1"))

    assert not world.enrolment.knows(NodeId("n1"))
    world.take("readings")
    world.hello()
    world.say(wire.Heartbeat(at=1.0, cpu_percent=1.0))
    assert world.take("readings") == {"n1": NewestReading(load=Load(cpu_percent=1.0))}
    world.enrolment.forget(NodeId("n1"))
    world.enrolment.revoke(NodeId("n1"), "Revoked by root.")
    world.enrolment.forget(NodeId("n1"))
    assert world.carrier.forbidden["n1"]
