"""What a node may speak of: the attempts that it was given, told under the name that its key is bound to. Used by the master's thread."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.model import TaskStatus
from mgpu_jupyter.scheduler.events import NodeMisnamed

REMEMBERED = 100_000


class Assignments:
    """Answers from memory where it can, so that not every piece of output asks the store; `look_up` asks it."""

    def __init__(self, look_up: Callable[[AttemptKey], frozenset[NodeId]]) -> None:
        self._look_up = look_up
        self._known: set[tuple[NodeId, AttemptKey]] = set()

    def remember(self, node_id: NodeId, key: AttemptKey) -> None:
        """Note that a node was given an attempt."""
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known.add((node_id, key))

    def has(self, node_id: NodeId, key: AttemptKey) -> bool:
        """Tell whether a node was given this attempt, now or in the past."""
        if (node_id, key) in self._known:
            return True
        if node_id not in self._look_up(key):
            return False
        self.remember(node_id, key)
        return True

    def under_own_name(self, node_id: NodeId, told: tuple[TaskStatus, ...], at: float) -> tuple[tuple[TaskStatus, ...], list[NodeMisnamed]]:
        """Return what counts of a node's reports, and those that named another node; of those, what is not its job is dropped."""
        known: list[TaskStatus] = []
        misnamed: list[NodeMisnamed] = []
        for status in told:
            if status.node_id == node_id:
                known.append(status)
            elif self.has(node_id, status.key):
                known.append(replace(status, node_id=node_id))
                misnamed.append(NodeMisnamed(at=at, node_id=node_id, said=status.node_id, key=status.key))
        return tuple(known), misnamed
