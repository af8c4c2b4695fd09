"""Which Hello of a node is the newest: packets of a connection that was given up may arrive after those of the next one. Sends nothing.

What a late Hello tells is no longer so: a job that was launched since would count as lost and run twice. Within one boot of a node
its clock tells which is later. Two boots have no order, so that a connection from another one is asked to say Hello once more, with
a number that no earlier Hello can have; only one that lives does. So is one whose clock seems to have gone back, as in a container
that was made anew.
"""

from __future__ import annotations

from itertools import count

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import Hello

CONNECTIONS_ASKED = 16
"""Of one node: one that connects again and again must not be remembered for ever."""


class Hellos:
    """The newest Hello of each node, and the questions to connections that are in doubt."""

    def __init__(self) -> None:
        self._newest: dict[NodeId, tuple[bytes, str, float]] = {}
        """Connection, boot and beat."""
        self._asked: dict[NodeId, dict[bytes, int]] = {}
        """Connections whose Hello may be an earlier one, each with the number it was asked to answer."""
        self._numbers = count(1)

    def doubt(self, node_id: NodeId, route: bytes, hello: Hello) -> int:
        """Take in a Hello and return 0; or return the number with which its connection is to be asked for another."""
        asked = self._asked.setdefault(node_id, {})
        if self._may_be_earlier(node_id, route, hello) and (route not in asked or hello.answers != asked[route]):
            # The same number as before, if there was one: its answer may be on the way.
            number = asked.setdefault(route, next(self._numbers))
            if len(asked) > CONNECTIONS_ASKED:
                del asked[next(iter(asked))]
            return number
        self._newest[node_id] = (route, hello.facts.boot_id, hello.beat)
        del self._asked[node_id]
        return 0

    def _may_be_earlier(self, node_id: NodeId, route: bytes, hello: Hello) -> bool:
        if node_id not in self._newest:
            return False
        newest_route, boot_id, beat = self._newest[node_id]
        if hello.facts.boot_id != boot_id:
            return True
        # Two Hellos between two ticks of an agent have the same beat; one connection keeps its order.
        return hello.beat < beat or (hello.beat == beat != 0.0 and route != newest_route)

    def forget(self, node_id: NodeId) -> None:
        """Know nothing of a node any more."""
        self._newest.pop(node_id, None)
        self._asked.pop(node_id, None)
