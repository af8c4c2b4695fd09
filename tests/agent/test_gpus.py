"""Simulated GPUs, the sampler's thread, and NVML where there is no driver."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import pairwise

import pynvml
import pytest

from mgpu_agent.gpu.fake import MEMORY_BYTES, FakeGpuSource
from mgpu_agent.gpu.nvml import NvmlGpuSource
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
    before = sampler.take()
    source.go.set()
    after = wait_until(sampler.take)
    sampler.close()

    assert (before, after, source.is_closed) == ((), (GpuSample(uuid=GpuUuid("a")),), True)


def _has_driver() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    pynvml.nvmlShutdown()
    return True


@pytest.mark.skipif(_has_driver(), reason="this machine has an NVIDIA driver")
def test_without_a_driver_there_are_no_gpus_and_it_says_so() -> None:
    source = NvmlGpuSource()
    source.close()

    assert (source.gpus, source.sample({}), source.note) == (
        (),
        (),
        "No NVIDIA driver is installed: this node has no GPUs (mgpu_node --fake-gpus N simulates some).",
    )


def test_what_a_gpu_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted at the library's own functions: only names and UUIDs are told, one GPU is lost."""

    def not_supported(*_: object) -> object:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def handle(index: int) -> str:
        if index == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return f"handle {index}"

    for name in ("MemoryInfo", "UtilizationRates", "Temperature", "PowerUsage", "MigMode"):
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", not_supported)
    for name in ("ComputeRunningProcesses", "GraphicsRunningProcesses"):
        monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", not_supported)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 3)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", handle)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda device: f"GPU-{device[-1]}")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda _: b"Old GPU")
    source = NvmlGpuSource()

    assert source.gpus == tuple(GpuInfo(index=index, uuid=GpuUuid(f"GPU-{index}"), name="Old GPU", memory_bytes=0) for index in (0, 2))
    assert source.sample({}) == (GpuSample(uuid=GpuUuid("GPU-0")), GpuSample(uuid=GpuUuid("GPU-2")))
    source.close()
