"""Readings of nodes: their GPUs, and how busy they are, from what they tell; says when that changed enough to matter. Decides nothing."""

from __future__ import annotations

from typing import TypeGuard

from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import Heartbeat
from mgpu_agent.protocol.model import GpuSample
from mgpu_jupyter.master.node_link import Reading
from mgpu_jupyter.scheduler.model import Load

STEPS = 20  # a change of less than a twentieth is noise
_HIGHEST_PERCENT = 1e6


class Readings:
    """The newest of all nodes. Used by the master's thread."""

    def __init__(self) -> None:
        self._samples: dict[NodeId, tuple[GpuSample, ...]] = {}
        self._memory: dict[NodeId, int] = {}
        self._newest: dict[NodeId, Load] = {}
        self._told: dict[NodeId, tuple[int | None, ...]] = {}

    def know(self, node_id: NodeId, memory_bytes: int) -> None:
        """Take in a node that joined, with the memory it has; what was told before is told again."""
        self._memory[node_id] = memory_bytes
        self._told.pop(node_id, None)

    def take_samples(self, node_id: NodeId, samples: tuple[GpuSample, ...]) -> None:
        """Take in readings of all GPUs of a node."""
        self._samples[node_id] = samples

    def take_load(self, node_id: NodeId, beat: Heartbeat) -> Load | None:
        """Take in what a heartbeat carries beside samples and return the load if it is worth telling."""
        before = self._newest.get(node_id, Load())
        busy = [sample.utilisation_percent for sample in beat.samples if _is_number(sample.utilisation_percent)]
        load = replace(before, gpu_percent=sum(busy) / len(busy)) if busy else before
        if _is_number(beat.cpu_percent):
            load = replace(load, cpu_percent=beat.cpu_percent, memory_available_bytes=beat.memory_available_bytes)
        self._newest[node_id] = load
        rounded = (
            _round(load.gpu_percent, 100.0),
            _round(load.cpu_percent, 100.0),
            _round(load.memory_available_bytes, self._memory.get(node_id, 0)),
        )
        if rounded == self._told.get(node_id, (None, None, None)):
            return None
        self._told[node_id] = rounded
        return load

    def newest(self, node_id: NodeId) -> Reading:
        """Return all that is known of a node."""
        return Reading(samples=self._samples.get(node_id, ()), load=self._newest.get(node_id, Load()))

    def forget(self, node_id: NodeId) -> None:
        """Forget a node."""
        self._samples.pop(node_id, None)
        for known in (self._memory, self._newest, self._told):
            known.pop(node_id, None)


def _is_number(value: float | None) -> TypeGuard[float]:
    """Tell whether a node gave a number that one can reckon with: a broken one may tell of infinite load."""
    return value is not None and 0.0 <= value <= _HIGHEST_PERCENT


def _round(value: float | None, whole: float) -> int | None:
    return None if value is None or whole <= 0 else round(value / whole * STEPS)
