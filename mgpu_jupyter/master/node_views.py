"""Nodes as others may see them: copies of what the master knows, taken after a turn. Values only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_agent.protocol.model import SUBMITTER, GpuSample, GpuTrouble, NodeFacts
from mgpu_jupyter.scheduler.model import Load, Node, Placement
from mgpu_jupyter.scheduler.standing import NodeHealth, NodeOrders
from mgpu_jupyter.scheduler.state import ClusterState

NO_LOAD = Load()


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node as others may see it: an immutable copy."""

    seq: int
    core_seq: int = 0
    """The last change that concerned more than its readings."""
    id: NodeId
    facts: NodeFacts
    state: str
    reason: str
    holders: dict[GpuUuid, JobId]
    users: dict[GpuUuid, str]
    ranks: dict[GpuUuid, int] = {}
    """The rank that a held GPU belongs to, where that follows from their numbers."""
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
    """Copy what others may see of a node; `before` is the copy before."""
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
    return (
        replace(view, core_seq=before.core_seq)
        if before is not None and _differ_in_readings_only(before, view)
        else view
    )


def ranks_by_gpu(placement: Placement) -> dict[GpuUuid, int]:
    """Return the rank of each GPU of a placement: GPUs are shared out in the order of ranks."""
    gpus, tasks = len(placement.gpus), placement.tasks
    if tasks > gpus:
        return {}
    return {uuid: placement.rank + index * tasks // gpus for index, uuid in enumerate(placement.gpus)}


def _differ_in_readings_only(before: NodeView, after: NodeView) -> bool:
    # Facts are the same object until the agent says Hello again, so most comparisons are by identity.
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


NAMED = 5
_NOBODY_YET = (
    "An agent that is not told to run jobs as their users runs all as its own: all who may use "
    "such a node trust each other."
)


def runs_as_words(facts: NodeFacts) -> str:
    """Return the account that one node runs jobs as, in words."""
    if facts.runs_as == SUBMITTER:
        return "each job as its user"
    return f"every job as {facts.runs_as or 'the user of its agent'}"


def notice(nodes: Sequence[tuple[str, NodeFacts]]) -> str:
    """Return the notice for all users about which accounts jobs run as on these nodes."""
    if not nodes:
        return _NOBODY_YET
    shared = [(node_id, facts) for node_id, facts in nodes if facts.runs_as != SUBMITTER]
    if not shared:
        return "Every node runs each job as its user."
    names = ", ".join(
        f"{node_id} (as {facts.runs_as or 'its own user'})" for node_id, facts in shared[:NAMED]
    )
    more = f" and {len(shared) - NAMED} more" if len(shared) > NAMED else ""
    own = "" if len(shared) == len(nodes) else " The other nodes run each job as its user."
    return (
        f"Jobs of all users run as one account on {names}{more}: all who may use such a node trust each "
        f"other.{own}"
    )
