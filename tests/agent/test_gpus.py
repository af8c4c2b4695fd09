"""Simulated GPUs and the sampler's thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import pairwise

from mgpu_agent.gpu.fake import MEMORY_BYTES, FakeGpuSource
from mgpu_agent.gpu.sampler import Sampler
from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuInfo, GpuProcess, GpuSample
from tests.agent.master import wait_until


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_simulated_gpus_are_the_same_every_time() -> None:
    expected = tuple(
        GpuInfo(index=index, uuid=GpuUuid(f"GPU-SIM-a-{index}"), name="Simulated GPU 24GB", memory_bytes=24 * 1024**3, simulated=True)
        for index in range(2)
    )

    assert (FakeGpuSource(NodeId("a"), 2).gpus, FakeGpuSource(NodeId("a"), 2).gpus) == (expected, expected)
    assert FakeGpuSource(NodeId("a"), 2).note == "2 simulated GPUs: jobs run, but compute on no GPU."


def test_simulated_readings_rise_and_fall_smoothly() -> None:
    clock = Clock()
    source = FakeGpuSource(NodeId("a"), 2, clock)
    held: Mapping[GpuUuid, int] = {GpuUuid("GPU-SIM-a-0"): 77}
    loads = []
    for second in range(1, 60):
        clock.now = float(second)
        busy, idle = source.sample(held if second < 30 else {})
        loads.append(busy.utilisation_percent or 0.0)
        assert (idle.utilisation_percent, idle.memory_used_bytes, idle.processes) == (0.0, int(MEMORY_BYTES * 0.01), ())
        assert busy.processes == ((GpuProcess(pid=77, memory_bytes=busy.memory_used_bytes),) if second < 30 else ())
        assert 0.0 <= (busy.utilisation_percent or 0.0) <= 100.0
        assert 30.0 < (busy.temperature_c or 0.0) < 90.0
        assert 15.0 < (busy.power_w or 0.0) < 300.0

    assert max(abs(after - before) for before, after in pairwise(loads)) < 25.0
    assert (loads[28] > 80.0, loads[-1] < 1.0) == (True, True)


class SlowSource:
    """A driver that answers only when the test lets it."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.is_closed = False
        self.gpus: tuple[GpuInfo, ...] = ()
        self.note = ""

    def sample(self, held: Mapping[GpuUuid, int]) -> tuple[GpuSample, ...]:
        self.go.wait(10)
        return tuple(GpuSample(uuid=uuid) for uuid in held)

    def close(self) -> None:
        self.is_closed = True


def test_a_slow_driver_holds_nobody_up() -> None:
    source = SlowSource()
    sampler = Sampler(source, frozenset((GpuUuid("a"),)))
    sampler.set_held({GpuUuid("a"): 1, GpuUuid("not offered"): 2})
    sampler.set_pace(0.01)
    before = sampler.take().samples
    source.go.set()
    after = wait_until(lambda: sampler.take().samples)
    sampler.close()

    assert (before, after, source.is_closed) == ((), (GpuSample(uuid=GpuUuid("a")),), True)
