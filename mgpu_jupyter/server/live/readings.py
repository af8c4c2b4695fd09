"""Readings as whole numbers, and what is new in them for one reader. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import GpuSample
from mgpu_jupyter.api.frames import GpuReading, NodeReading
from mgpu_jupyter.master.node_views import NodeView

MIB = 1 << 20
LARGEST = 1e9
"""A larger value is no reading."""


class Rounded(msgspec.Struct, frozen=True):
    """The readings of one node, as exact as people see."""

    seq: int
    cpu: int | None
    memory_available_mib: int | None
    gpus: dict[str, GpuReading]


class Rounding:
    """Rounds each reading once, for all readers."""

    def __init__(self) -> None:
        self._newest: dict[NodeId, Rounded] = {}

    def of(self, node: NodeView) -> Rounded:
        """Return a node's readings."""
        known = self._newest.get(node.id)
        if known is None or known.seq != node.seq:
            known = self._newest[node.id] = rounded(node)
        return known

    def forget_all_but(self, nodes: Iterable[NodeId]) -> None:
        """Keep only those that are still there."""
        for node_id in self._newest.keys() - set(nodes):
            del self._newest[node_id]


def rounded(node: NodeView) -> Rounded:
    """Return a node's readings as whole numbers."""
    index_of = {gpu.uuid: gpu.index for gpu in node.facts.gpus}
    return Rounded(
        node.seq,
        whole_number(node.load.cpu_percent),
        mib(node.load.memory_available_bytes),
        {
            str(index_of[sample.uuid]): reading_of(sample)
            for sample in node.samples
            if sample.uuid in index_of
        },
    )


def reading_of(sample: GpuSample) -> GpuReading:
    """Return one GPU's readings as whole numbers."""
    return (
        whole_number(sample.utilisation_percent),
        mib(sample.memory_used_bytes),
        whole_number(sample.temperature_c),
        whole_number(sample.power_w),
    )


def whole_number(value: float | None) -> int | None:
    """Round; None for what is not a finite number (a faulty GPU may report infinite power)."""
    return round(value) if value is not None and abs(value) < LARGEST else None


def mib(value: int | None) -> int | None:
    """Return bytes as MiB."""
    return None if value is None else round(value / MIB)


class Told:
    """What one reader was sent last."""

    def __init__(self, rounding: Rounding) -> None:
        self._rounding = rounding
        self._told: dict[NodeId, Rounded] = {}

    def news(self, nodes: Iterable[NodeView]) -> dict[NodeId, NodeReading]:
        """Return what changed since the last call; the first time everything."""
        found: dict[NodeId, NodeReading] = {}
        for node in nodes:
            before, now = self._told.get(node.id), self._rounding.of(node)
            if before is now:
                continue
            self._told[node.id] = now
            if (changed := _change(before, now)) is not None:
                found[node.id] = changed
        return found


def _change(before: Rounded | None, now: Rounded) -> NodeReading | None:
    if before is None:
        return NodeReading(cpu=now.cpu, memory_available_mib=now.memory_available_mib, gpus=now.gpus)
    gpus = {index: reading for index, reading in now.gpus.items() if before.gpus.get(index) != reading}
    cpu = now.cpu if now.cpu != before.cpu else None
    memory = now.memory_available_mib if now.memory_available_mib != before.memory_available_mib else None
    return (
        NodeReading(cpu=cpu, memory_available_mib=memory, gpus=gpus)
        if gpus or cpu is not None or memory is not None
        else None
    )
