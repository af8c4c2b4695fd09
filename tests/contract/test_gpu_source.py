"""One suite for every source of GPUs: what it lists stays, what it reads belongs to what it lists, and
closing is final.
"""

from __future__ import annotations

import os

import pytest

from mgpu_agent.gpu.fake import FakeGpuSource
from mgpu_agent.gpu.nvml import NvmlGpuSource
from mgpu_agent.gpu.source import GpuSource
from mgpu_agent.protocol.ids import NodeId
from tests.nvml.loaded import Load, load
from tests.nvml.stand_in import cards

__all__ = ["load"]


@pytest.fixture(params=["fake", "nvml"])
def source(request: pytest.FixtureRequest, load: Load) -> GpuSource:
    """Two GPUs; the first is in use by this process."""
    if request.param == "fake":
        return FakeGpuSource(NodeId("n1"), 2)
    first, second = cards(2)
    first.compute = {os.getpid(): 5}
    load(first, second)
    return NvmlGpuSource()


def test_the_list_of_gpus_stays_and_is_whole(source: GpuSource) -> None:
    listed = source.gpus
    source.sample({})

    assert source.gpus == listed
    assert [gpu.index for gpu in listed] == [0, 1]
    assert len({gpu.uuid for gpu in listed}) == 2
    assert [gpu.memory_bytes > 0 and bool(gpu.name) and gpu.mig_parent == "" for gpu in listed] == [
        True,
        True,
    ]


def test_simulated_gpus_say_so_and_real_ones_do_not(source: GpuSource) -> None:
    simulated = isinstance(source, FakeGpuSource)

    assert [gpu.simulated for gpu in source.gpus] == [simulated] * 2
    assert ("simulated" in source.note) == simulated


def test_every_gpu_is_read_in_order_and_is_well(source: GpuSource) -> None:
    first, second = source.sample({source.gpus[0].uuid: os.getpid()})

    assert [first.uuid, second.uuid] == [gpu.uuid for gpu in source.gpus]
    assert (first.trouble, second.trouble) == (None, None)
    assert ([process.pid for process in first.processes], second.processes) == ([os.getpid()], ())
    for sample, gpu in zip((first, second), source.gpus, strict=True):
        assert 0.0 <= (sample.utilisation_percent or 0.0) <= 100.0
        assert 0 < (sample.memory_used_bytes or 0) <= gpu.memory_bytes
        assert (sample.temperature_c or 0.0) > 0.0
        assert (sample.power_w or 0.0) > 0.0


def test_closing_twice_is_harmless(source: GpuSource) -> None:
    source.close()
    source.close()
