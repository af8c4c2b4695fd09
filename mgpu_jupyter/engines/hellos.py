"""Which Hello of a node is the newest: packets of a connection that was given up may arrive after those of the next one. Sends nothing.

What a late Hello tells is no longer so: a job that was launched since would count as lost and run twice. A connection that lives
says Hello once more when it is asked to, and is believed then, even if its clock counts from another moment.
"""

from __future__ import annotations

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import Hello


class Hellos:
    """The newest Hello of each node."""

    def __init__(self) -> None:
        self._newest: dict[NodeId, tuple[str, float]] = {}
        """Boot and beat."""
        self._doubted: dict[NodeId, bytes] = {}
        """Connections whose Hello came late, to be asked for another."""

    def take(self, node_id: NodeId, route: bytes, hello: Hello) -> bool:
        """Tell whether to believe a Hello; if not, the connection that it came by is to be asked again."""
        boot_id, beat = self._newest.get(node_id, ("", 0.0))
        was_asked = self._doubted.pop(node_id, None) == route
        if not was_asked and boot_id == hello.facts.boot_id and hello.beat < beat:
            self._doubted[node_id] = route
            return False
        self._newest[node_id] = (hello.facts.boot_id, hello.beat)
        return True

    def forget(self, node_id: NodeId) -> None:
        """Know nothing of a node any more."""
        self._newest.pop(node_id, None)
        self._doubted.pop(node_id, None)
