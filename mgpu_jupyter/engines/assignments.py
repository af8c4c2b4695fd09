"""Which attempts a node was given, remembered so that not every piece of output asks the store. Used by the master's thread."""

from __future__ import annotations

from collections.abc import Callable

from mgpu_agent.protocol.ids import AttemptKey, NodeId

REMEMBERED = 100_000


class Assignments:
    """Answers from memory where it can; `look_up` asks the store."""

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
