"""A node as others may see it: a copy of what the master knows, taken after a turn. Values only."""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_agent.protocol.model import GpuSample, GpuTrouble, NodeFacts
from mgpu_jupyter.scheduler.model import Load, Node
from mgpu_jupyter.scheduler.standing import NodeHealth, NodeOrders
from mgpu_jupyter.scheduler.state import ClusterState

NO_LOAD = Load()


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node as others may see it: a copy that nobody changes any more."""

    seq: int
    id: NodeId
    facts: NodeFacts
    state: str
    reason: str
    holders: dict[GpuUuid, JobId]
    users: dict[GpuUuid, str]
    blocked: dict[GpuUuid, GpuTrouble] = {}
    samples: tuple[GpuSample, ...]
    heard_at: float | None
    orders: NodeOrders = NodeOrders()
    health: NodeHealth = NodeHealth()
    load: Load = Load()
    mismatch: str = ""


def view_of(
    state: ClusterState, node: Node, samples: tuple[GpuSample, ...], seq: int, heard_at: float | None, *, load: Load = NO_LOAD
) -> NodeView:
    """Copy what others may see of a node."""
    return NodeView(
        seq=seq,
        id=node.id,
        facts=node.facts,
        state=node.state,
        reason=node.reason,
        holders=dict(node.holders),
        users={uuid: state.jobs[job_id].user for uuid, job_id in node.holders.items()},
        blocked=dict(node.blocked),
        samples=samples,
        heard_at=heard_at,
        orders=node.orders,
        health=node.health,
        load=load,
        mismatch=node.mismatch,
    )
