"""Histories of nodes and their GPUs, from the master's readings. In memory, bounded, lost with it.

A node of eight GPUs takes about 270 KB when all its rings are full.
"""

from __future__ import annotations

from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuSample
from mgpu_jupyter.api.histories import GpuHistory, NodeHistory
from mgpu_jupyter.master.node_views import NodeView
from mgpu_jupyter.server.live.readings import LARGEST, MIB, whole_number
from mgpu_jupyter.server.live.rings import Tiers

STEPS = ((2.0, 300), (10.0, 720), (120.0, 1_440))
"""Ten minutes, two hours, two days."""
OWN_COLUMNS = 2
GPU_COLUMNS = 4

Row = list[float | None]
_NO_SAMPLE = GpuSample(uuid=GpuUuid(""))


class NodeHistories:
    """The readings of nodes over time."""

    def __init__(self) -> None:
        self._tiers: dict[NodeId, Tiers] = {}
        self._gpus: dict[NodeId, tuple[GpuUuid, ...]] = {}

    def take(self, node: NodeView, at: float) -> None:
        """Take the newest readings of a node."""
        gpus = tuple(gpu.uuid for gpu in node.facts.gpus)
        if self._gpus.get(node.id) != gpus:  # another set of GPUs begins another history
            self._gpus[node.id] = gpus
            self._tiers[node.id] = Tiers(STEPS, OWN_COLUMNS + GPU_COLUMNS * len(gpus))
        self._tiers[node.id].add(at, row_of(node, gpus))

    def forget_all_but(self, nodes: set[NodeId]) -> None:
        """Keep only nodes that are still there."""
        for node_id in self._tiers.keys() - nodes:
            del self._tiers[node_id], self._gpus[node_id]

    def read(self, node: NodeView, since: float, until: float, points: int) -> NodeHistory:
        """Return the history of a node."""
        tiers = self._tiers.get(node.id)
        if tiers is None or self._gpus[node.id] != tuple(gpu.uuid for gpu in node.facts.gpus):
            message = "Nothing was read of this node since the master started."
            return NodeHistory(
                node=node.id,
                step_s=STEPS[0][0],
                times=(),
                cpu=(),
                memory_available_mib=(),
                gpus=(),
                message=message,
            )
        found = tiers.read(since, until, points)
        columns = [tuple(map(whole_number, column)) for column in found.columns]
        gpus = []
        for number, gpu in enumerate(node.facts.gpus):
            first = OWN_COLUMNS + GPU_COLUMNS * number
            busy, memory, temperature, power = columns[first : first + GPU_COLUMNS]
            gpus.append(
                GpuHistory(
                    index=gpu.index,
                    uuid=gpu.uuid,
                    busy=busy,
                    memory_mib=memory,
                    temperature=temperature,
                    power=power,
                )
            )
        return NodeHistory(
            node=node.id,
            step_s=found.step_s,
            times=tuple(found.times),
            cpu=columns[0],
            memory_available_mib=columns[1],
            gpus=tuple(gpus),
        )


def row_of(node: NodeView, gpus: tuple[GpuUuid, ...]) -> Row:
    """Return the readings of a node as one row."""
    samples = {sample.uuid: sample for sample in node.samples}
    row: Row = [plain(node.load.cpu_percent), in_mib(node.load.memory_available_bytes)]
    for uuid in gpus:
        sample = samples.get(uuid, _NO_SAMPLE)
        row += (
            plain(sample.utilisation_percent),
            in_mib(sample.memory_used_bytes),
            plain(sample.temperature_c),
            plain(sample.power_w),
        )
    return row


def plain(value: float | None) -> float | None:
    """Return a finite number or None: a faulty GPU may report infinite power."""
    return value if value is not None and abs(value) < LARGEST else None


def in_mib(value: int | None) -> float | None:
    """Return bytes as MiB, or None."""
    return plain(None if value is None else value / MIB)
