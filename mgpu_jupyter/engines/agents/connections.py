"""Which connection speaks for a node, and whether the node is there: its newest Hello, when it was heard, silence. Sends nothing.

A connection is worth what its key is bound to. Packets of one that was given up may arrive after those of the next one: what a late
Hello tells is no longer so, and a job that was launched since would count as lost and run twice. Within one boot of a node its clock
tells which is later. Two boots have no order, so that a connection from another one is asked to say Hello once more, with a number
that no earlier Hello can have; only one that lives does. So is one whose clock seems to have gone back, as in a container that was
made anew.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import Hello
from mgpu_jupyter.scheduler.events import NodeHeard, NodeSilent

CONNECTIONS_ASKED = 16
"""Of one node: one that connects again and again must not be remembered for ever."""


class Connections:
    """The connection of each node, its newest Hello, and the questions to connections that are in doubt. Used by the master's thread."""

    def __init__(self, clock: Callable[[], float], timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self.routes: dict[NodeId, bytes] = {}
        """Where each node that is connected is reached."""
        self.heard: dict[NodeId, float] = {}
        """When each of them was heard last."""
        self._silent: set[NodeId] = set()
        self._beats: dict[NodeId, float] = {}
        """Beats that were heard and not answered yet."""
        self._newest: dict[NodeId, tuple[bytes, str, float]] = {}
        """Connection, boot and beat."""
        self._asked: dict[NodeId, dict[bytes, int]] = {}
        """Connections whose Hello may be an earlier one, each with the number it was asked to answer."""
        self._numbers = count(1)

    def greet(self, node_id: NodeId, route: bytes, hello: Hello) -> int:
        """Give a node to the connection of this Hello and return 0; or return the number with which to ask that one for another."""
        asked = self._asked.setdefault(node_id, {})
        if self._may_be_earlier(node_id, route, hello) and (route not in asked or hello.answers != asked[route]):
            # The same number as before, if there was one: its answer may be on the way.
            number = asked.setdefault(route, next(self._numbers))
            if len(asked) > CONNECTIONS_ASKED:
                del asked[next(iter(asked))]
            return number
        self._newest[node_id] = (route, hello.facts.boot_id, hello.beat)
        del self._asked[node_id]
        self.routes[node_id] = route
        self.heard[node_id] = self._clock()
        self._silent.discard(node_id)
        self._beats.pop(node_id, None)
        return 0

    def owns(self, node_id: NodeId, route: bytes) -> bool:
        """Tell whether this connection speaks for the node."""
        return self.routes.get(node_id) == route

    def is_there(self, node_id: NodeId) -> bool:
        """Tell whether a node is connected and heard."""
        return node_id in self.routes and node_id not in self._silent

    def hear(self, node_id: NodeId) -> list[NodeHeard]:
        """Note that a node was heard; return the news if it was silent."""
        self.heard[node_id] = self._clock()
        if node_id not in self._silent:
            return []
        self._silent.discard(node_id)
        return [NodeHeard(at=self._clock(), node_id=node_id)]

    def note_beat(self, node_id: NodeId, beat: float) -> None:
        """Keep a beat until it is answered; only the newest counts."""
        self._beats[node_id] = beat

    def take_beats(self) -> dict[NodeId, float]:
        """Return the beats that are to be answered."""
        beats, self._beats = self._beats, {}
        return beats

    def fallen_silent(self) -> list[NodeSilent]:
        """Return the nodes of which nothing was heard for too long, once each."""
        now = self._clock()
        late = [node_id for node_id, heard in self.heard.items() if now - heard > self._timeout_s and node_id not in self._silent]
        return [self._silence(node_id, f"Nothing was heard of it for {self._timeout_s:g} s.") for node_id in late]

    def broken(self, node_ids: list[NodeId]) -> list[NodeSilent]:
        """Note that connections broke; return the nodes that are silent from now on."""
        return [self._silence(node_id, "Its connection broke.") for node_id in node_ids if node_id not in self._silent]

    def _silence(self, node_id: NodeId, reason: str) -> NodeSilent:
        self._silent.add(node_id)
        return NodeSilent(at=self._clock(), node_id=node_id, reason=reason, heard_at=self.heard[node_id])

    def _may_be_earlier(self, node_id: NodeId, route: bytes, hello: Hello) -> bool:
        if node_id not in self._newest:
            return False
        newest_route, boot_id, beat = self._newest[node_id]
        if hello.facts.boot_id != boot_id:
            return True
        # Two Hellos between two ticks of an agent have the same beat; one connection keeps its order.
        return hello.beat < beat or (hello.beat == beat != 0.0 and route != newest_route)

    def forget(self, node_id: NodeId) -> None:
        """Forget a node and its connection."""
        for known in (self.routes, self.heard, self._beats):
            known.pop(node_id, None)
        self._silent.discard(node_id)
        self._newest.pop(node_id, None)
        self._asked.pop(node_id, None)
