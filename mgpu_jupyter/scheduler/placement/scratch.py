"""A view of what is free that can be tried on: units reserve in it, and a job that does not fit leaves no trace."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import GpuInfo
from mgpu_jupyter.scheduler.model import Node


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    """What a node would give to one unit."""

    unit: int
    node_id: NodeId
    incarnation: str
    gpus: tuple[GpuInfo, ...]
    cpus: int


class Slot(msgspec.Struct, kw_only=True):
    """What one node has left in this view."""

    id: NodeId
    incarnation: str
    gpus_total: int
    cpus_total: int
    takes_work: bool
    state: str
    free_gpus: list[GpuInfo]
    free_cpus: int
    blocked: tuple[str, ...] = ()
    """What keeps GPUs that nobody holds from being handed out, a sentence for each."""


class Scratch:
    """Free resources of all nodes, with reservations that are committed or rolled back per job."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.slots = [_slot(node) for node in sorted(nodes, key=lambda node: node.id)]
        self._by_id = {slot.id: slot for slot in self.slots}
        self._pending: list[Assigned] = []

    def reserve(self, unit: int, slot: Slot, gpus: int, cpus: int) -> Assigned:
        """Take the first free GPUs of a node for a unit; the caller has checked that they are there."""
        taken, slot.free_gpus = tuple(slot.free_gpus[:gpus]), slot.free_gpus[gpus:]
        slot.free_cpus -= cpus
        assigned = Assigned(unit=unit, node_id=slot.id, incarnation=slot.incarnation, gpus=taken, cpus=cpus)
        self._pending.append(assigned)
        return assigned

    def reserved_nodes(self) -> frozenset[NodeId]:
        """Return the nodes that the job being placed has taken so far."""
        return frozenset(assigned.node_id for assigned in self._pending)

    def commit(self) -> tuple[Assigned, ...]:
        """Keep what the job took, and return it."""
        placed, self._pending = tuple(self._pending), []
        return placed

    def rollback(self) -> None:
        """Give back all that the job took."""
        for assigned in reversed(self._pending):
            slot = self._by_id[assigned.node_id]
            slot.free_gpus = [*assigned.gpus, *slot.free_gpus]
            slot.free_cpus += assigned.cpus
        self._pending = []


def _slot(node: Node) -> Slot:
    return Slot(
        id=node.id,
        incarnation=node.facts.incarnation,
        gpus_total=len(node.facts.gpus),
        cpus_total=node.facts.cpus,
        takes_work=node.takes_work,
        state=node.state.value,
        free_gpus=[gpu for gpu in node.facts.gpus if gpu.uuid not in node.holders and gpu.uuid not in node.blocked],
        free_cpus=node.facts.cpus - node.cpus_taken,
        blocked=_blocked(node) if node.blocked else (),
    )


def _blocked(node: Node) -> tuple[str, ...]:
    return tuple(
        f"GPU {gpu.index} of {node.id}: {node.blocked[gpu.uuid].text}"
        for gpu in node.facts.gpus
        if gpu.uuid in node.blocked and gpu.uuid not in node.holders
    )
