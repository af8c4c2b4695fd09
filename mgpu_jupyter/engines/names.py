"""Under which name a node's reports count: the one that its key is bound to, never the one that they say. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.model import TaskStatus
from mgpu_jupyter.scheduler.events import NodeMisnamed


def under_own_name(
    node_id: NodeId, told: tuple[TaskStatus, ...], has: Callable[[NodeId, AttemptKey], bool], at: float
) -> tuple[tuple[TaskStatus, ...], list[NodeMisnamed]]:
    """Return what counts of a node's reports, and those that named another node; of those, what is not its job is dropped."""
    known: list[TaskStatus] = []
    misnamed: list[NodeMisnamed] = []
    for status in told:
        if status.node_id == node_id:
            known.append(status)
        elif has(node_id, status.key):
            known.append(replace(status, node_id=node_id))
            misnamed.append(NodeMisnamed(at=at, node_id=node_id, said=status.node_id, key=status.key))
    return tuple(known), misnamed
