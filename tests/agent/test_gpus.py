"""Simulated GPUs and the sampler's thread."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from itertools import pairwise

from mgpu_agent.gpu.fake import MEMORY_BYTES, FakeGpuSource, Pretender, pretender
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
        GpuInfo(
            index=index,
            uuid=GpuUuid(f"GPU-SIM-a-{index}"),
            name="Simulated GPU 24GB",
            memory_bytes=24 * 1024**3,
            simulated=True,
        )
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
        assert (idle.utilisation_percent, idle.memory_used_bytes, idle.processes) == (
            0.0,
            int(MEMORY_BYTES * 0.01),
            (),
        )
        assert busy.processes == (
            (GpuProcess(pid=77, memory_bytes=busy.memory_used_bytes),) if second < 30 else ()
        )
        assert 0.0 <= (busy.utilisation_percent or 0.0) <= 100.0
        assert 30.0 < (busy.temperature_c or 0.0) < 90.0
        assert 15.0 < (busy.power_w or 0.0) < 300.0

    assert max(abs(after - before) for before, after in pairwise(loads)) < 25.0
    assert (loads[28] > 80.0, loads[-1] < 1.0) == (True, True)


def test_simulated_gpus_are_as_busy_as_their_process_wants() -> None:
    clock = Clock()
    uuids = [GpuUuid(f"GPU-SIM-a-{index}") for index in range(4)]
    looked: list[int] = []

    def look(pid: int) -> Pretender | None:
        looked.append(pid)
        if pid == 8 and looked.count(8) == 1:
            return None  # it has not become its program yet
        return Pretender("python", {uuids[0]: 0.5, uuids[1]: 0.0} if pid == 7 else {})

    source = FakeGpuSource(NodeId("a"), 4, clock, look)
    held = {uuids[0]: 7, uuids[1]: 7, uuids[2]: 8, uuids[3]: 0}
    for second in range(1, 40):
        clock.now = float(second)
        samples = source.sample(held)
    busy = [round(sample.utilisation_percent or 0.0, -1) for sample in samples]
    clock.now += 0.5
    after = source.sample({uuids[2]: 9})

    assert busy == [50.0, 0.0, 90.0, 0.0]
    assert [sample.processes[0].name if sample.processes else "" for sample in samples] == [
        "python",
        "python",
        "python",
        "",
    ]
    assert looked[:3] == [7, 8, 8] or looked[:3] == [8, 7, 8]
    assert looked.count(7) == 1
    assert (after[2].utilisation_percent or 0.0) < 15.0  # the job before does not linger


def test_a_process_says_in_its_environment_how_busy_it_is() -> None:
    gpus = "GPU-1,GPU-2,GPU-3"

    def read(**environment: str) -> Pretender | None:
        with subprocess.Popen(["/bin/sleep", "60"], env=environment) as process:
            try:
                return (
                    wait_until(lambda: pretender(process.pid))
                    if "MGPU_GPUS" in environment
                    else pretender(process.pid)
                )
            finally:
                process.kill()

    assert read(MGPU_GPUS=gpus) == Pretender("sleep", {})
    assert read(MGPU_GPUS=gpus, MGPU_SIMULATED_BUSY="90, 5") == Pretender(
        "sleep", {"GPU-1": 0.9, "GPU-2": 0.05, "GPU-3": 0.05}
    )
    assert read(MGPU_GPUS=gpus, MGPU_SIMULATED_BUSY="x,-1,900") == Pretender(
        "sleep", {"GPU-1": 0.9, "GPU-2": 0.0, "GPU-3": 1.0}
    )
    assert (read(OTHER="1"), pretender(2**30)) == (None, None)


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
