"""A node as others may see it: a copy of what the master knows, taken after a turn. Values only."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_agent.protocol.model import GpuSample, GpuTrouble, NodeFacts
from mgpu_jupyter.scheduler.model import Load, Node, Placement
from mgpu_jupyter.scheduler.standing import NodeHealth, NodeOrders
from mgpu_jupyter.scheduler.state import ClusterState

NO_LOAD = Load()


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node as others may see it: a copy that nobody changes any more."""

    seq: int
    core_seq: int = 0
    """The change with which more than its readings changed last."""
    id: NodeId
    facts: NodeFacts
    state: str
    reason: str
    holders: dict[GpuUuid, JobId]
    users: dict[GpuUuid, str]
    ranks: dict[GpuUuid, int] = {}
    """The process that a held GPU is for, where that follows from their numbers."""
    blocked: dict[GpuUuid, GpuTrouble] = {}
    samples: tuple[GpuSample, ...]
    heard_at: float | None
    orders: NodeOrders = NodeOrders()
    health: NodeHealth = NodeHealth()
    load: Load = Load()
    mismatch: str = ""


def view_of(
    state: ClusterState,
    node: Node,
    samples: tuple[GpuSample, ...],
    seq: int,
    heard_at: float | None,
    *,
    load: Load = NO_LOAD,
    before: NodeView | None = None,
) -> NodeView:
    """Copy what others may see of a node; `before` is what they saw last."""
    ranks: dict[GpuUuid, int] = {}
    for job_id in set(node.holders.values()):
        for placement in state.jobs[job_id].placements:
            if placement.node_id == node.id:
                ranks.update(ranks_by_gpu(placement))
    view = NodeView(
        seq=seq,
        core_seq=seq,
        id=node.id,
        facts=node.facts,
        state=node.state,
        reason=node.reason,
        holders=dict(node.holders),
        users={uuid: state.jobs[job_id].user for uuid, job_id in node.holders.items()},
        ranks=ranks,
        blocked=dict(node.blocked),
        samples=samples,
        heard_at=heard_at,
        orders=node.orders,
        health=node.health,
        load=load,
        mismatch=node.mismatch,
    )
    return replace(view, core_seq=before.core_seq) if before is not None and _differ_in_readings_only(before, view) else view


def ranks_by_gpu(placement: Placement) -> dict[GpuUuid, int]:
    """Return the process that each GPU of a placement is for: they share them in the order of their numbers."""
    gpus, tasks = len(placement.gpus), placement.tasks
    if tasks > gpus:
        return {}
    return {uuid: placement.rank + index * tasks // gpus for index, uuid in enumerate(placement.gpus)}


def _differ_in_readings_only(before: NodeView, after: NodeView) -> bool:
    # Facts are the same object until the agent says Hello again, so that most comparisons are of addresses.
    return (
        (before.facts is after.facts or before.facts == after.facts)
        and (before.state, before.reason, before.mismatch) == (after.state, after.reason, after.mismatch)
        and before.holders == after.holders
        and before.users == after.users
        and before.ranks == after.ranks
        and before.blocked == after.blocked
        and before.orders == after.orders
        and before.health == after.health
        and _processes(before) == _processes(after)
    )


def _processes(view: NodeView) -> list[tuple[int, str | None, bool]]:
    return [(one.pid, one.user, one.outside) for sample in view.samples for one in sample.processes]
