"""Simulated GPUs, for machines without any and for demonstrations. They say that they are simulated and
compute nothing.

Readings move smoothly towards what a busy or an idle GPU would show, so that charts look as they do on real
machines. How busy a GPU is depends on the process that uses it: 90 % while it lives, or the numbers in
`MGPU_SIMULATED_BUSY` of its environment, in percent for each GPU of the job on this node (`90,60,0,0`); the
last of them holds for all that follow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import msgspec
import psutil

from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuInfo, GpuProcess, GpuSample

MEMORY_BYTES = 24 * 1024**3
BUSY = b"MGPU_SIMULATED_BUSY"
_GPUS = b"MGPU_GPUS"
_RISE_S = 4.0  # a reading is two thirds of the way to its target after this long
_USUAL_LOAD = 0.9


class Pretender(msgspec.Struct, frozen=True):
    """A process that uses simulated GPUs, and how busy it makes them."""

    name: str = ""
    loads: Mapping[str, float] = {}
    """By UUID; a GPU that is not named has the usual load."""


_NOBODY = Pretender()


def pretender(pid: int) -> Pretender | None:
    """Read what a process asks for; None when that cannot be read, or not yet."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
        name = psutil.Process(pid).name()
    except (OSError, psutil.Error):
        return None
    if _GPUS not in environment:  # it has not executed its program yet
        return None
    wanted = [_load(word) for word in environment.get(BUSY, b"").split(b",") if word.strip()]
    gpus = environment[_GPUS].decode(errors="replace").split(",")
    return Pretender(
        name, {uuid: wanted[min(place, len(wanted) - 1)] for place, uuid in enumerate(gpus)} if wanted else {}
    )


def _load(word: bytes) -> float:
    try:
        return max(0.0, min(1.0, float(word) / 100.0))
    except ValueError:
        return _USUAL_LOAD


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
        self._pid = 0

    def sample(self, pid: int, process: Pretender, now: float, elapsed_s: float) -> GpuSample:
        if pid and pid != self._pid:  # the load of the process before is gone
            self._load = _Level(0.0)
        self._pid = pid
        wave = math.sin(now / 7.0 + self.info.index * 1.7)
        load = self._load.follow(process.loads.get(self.info.uuid, _USUAL_LOAD) if pid else 0.0, elapsed_s)
        warmth = self._warmth.follow(load, elapsed_s / 5.0)
        memory = int(MEMORY_BYTES * (0.01 + 0.6 * load))
        return GpuSample(
            uuid=self.info.uuid,
            utilisation_percent=round(max(0.0, min(100.0, 100.0 * load + 5.0 * wave * load)), 1),
            memory_used_bytes=memory,
            temperature_c=round(34.0 + wave + 38.0 * warmth, 1),
            power_w=round(22.0 + 1.5 * wave + 250.0 * load, 1),
            processes=(GpuProcess(pid=pid, memory_bytes=memory, name=process.name),) if pid else (),
        )


class FakeGpuSource:
    """A number of simulated GPUs whose UUIDs stay the same for a node."""

    def __init__(
        self,
        node_id: NodeId,
        count: int,
        clock: Callable[[], float] = time.monotonic,
        look: Callable[[int], Pretender | None] = pretender,
    ) -> None:
        self._clock = clock
        self._look = look
        self._read_at = clock()
        self._processes: dict[int, Pretender] = {}
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
        """Return readings that rise while the process that holds a GPU lives."""
        now = self._clock()
        elapsed_s, self._read_at = now - self._read_at, now
        self._processes = {
            pid: known
            for pid in {*held.values()} - {0}
            if (known := self._processes.get(pid) or self._look(pid))
        }
        return tuple(
            gpu.sample(pid := held.get(gpu.info.uuid, 0), self._processes.get(pid, _NOBODY), now, elapsed_s)
            for gpu in self._gpus
        )

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
