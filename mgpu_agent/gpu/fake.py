"""Simulated GPUs, for machines without any and for demonstrations. They say that they are simulated and compute nothing.

Readings move smoothly towards what a busy or an idle GPU would show, so that charts look as they do on real machines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuInfo, GpuProcess, GpuSample

MEMORY_BYTES = 24 * 1024**3
_RISE_S = 4.0  # a reading is two thirds of the way to its target after this long


class _Level:
    """One reading that follows its target."""

    def __init__(self, value: float) -> None:
        self._value = value

    def follow(self, target: float, elapsed_s: float) -> float:
        self._value += (target - self._value) * (1.0 - math.exp(-elapsed_s / _RISE_S))
        return self._value


class _Gpu:
    def __init__(self, info: GpuInfo) -> None:
        self.info = info
        self._load = _Level(0.0)
        self._warmth = _Level(0.0)

    def sample(self, pid: int | None, now: float, elapsed_s: float) -> GpuSample:
        busy = pid is not None
        wave = math.sin(now / 7.0 + self.info.index * 1.7)
        load = self._load.follow(0.9 if busy else 0.0, elapsed_s)
        warmth = self._warmth.follow(load, elapsed_s / 5.0)
        memory = int(MEMORY_BYTES * (0.01 + 0.6 * load))
        return GpuSample(
            uuid=self.info.uuid,
            utilisation_percent=round(max(0.0, min(100.0, 100.0 * load + 5.0 * wave * load)), 1),
            memory_used_bytes=memory,
            temperature_c=round(34.0 + wave + 38.0 * warmth, 1),
            power_w=round(22.0 + 1.5 * wave + 250.0 * load, 1),
            processes=(GpuProcess(pid=pid, memory_bytes=memory),) if pid else (),
        )


class FakeGpuSource:
    """A number of simulated GPUs with names that stay the same for a node."""

    def __init__(self, node_id: NodeId, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read_at = clock()
        self._gpus = [
            _Gpu(
                GpuInfo(
                    index=index,
                    uuid=GpuUuid(f"GPU-SIM-{node_id}-{index}"),
                    name="Simulated GPU 24GB",
                    memory_bytes=MEMORY_BYTES,
                    simulated=True,
                )
            )
            for index in range(count)
        ]

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """Return the simulated GPUs."""
        return tuple(gpu.info for gpu in self._gpus)

    @property
    def note(self) -> str:
        """Say that these are no real GPUs."""
        return f"{len(self._gpus)} simulated GPUs: jobs run, but compute on no GPU."

    def sample(self, held: Mapping[GpuUuid, int]) -> tuple[GpuSample, ...]:
        """Return readings that rise while a job holds the GPU."""
        now = self._clock()
        elapsed_s, self._read_at = now - self._read_at, now
        return tuple(gpu.sample(held.get(gpu.info.uuid), now, elapsed_s) for gpu in self._gpus)

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""
