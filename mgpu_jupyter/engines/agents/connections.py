"""Which connection speaks for a node, for which attempts, and whether it is alive: its newest Hello, when it
was heard, the attempts that it was given. Sends nothing.

A connection has the rights of the name that its key is bound to. Packets of an abandoned connection may
arrive after those of the next one: a late Hello is out of date, and a job that was launched since would count
as lost and run twice. Within one boot of a node its clock tells which is later. Two boots have no order, so a
connection from another boot is asked to say Hello once more, with a number that no earlier Hello can have;
only a live one answers. So is one whose clock seems to have gone back, as in a container that was made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count

from msgspec.structs import replace

from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.messages import Hello
from mgpu_agent.protocol.model import TaskStatus
from mgpu_agent.protocol.text import printable
from mgpu_jupyter.scheduler.events import NodeHeard, NodeMisnamed, NodeQuiet, NodeSilent

QUIET_BEATS = 2.5
"""Two beats of a node did not come, and half of another is for their way."""
CONNECTIONS_ASKED = 16
"""Of one node: one that connects again and again must not be remembered for ever."""


class Connections:
    """The connection of each node, its newest Hello, and questions to doubtful connections. Master's thread
    only.
    """

    def __init__(self, clock: Callable[[], float], timeout_s: float, heartbeat_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._quiet_s = QUIET_BEATS * heartbeat_s
        self.routes: dict[NodeId, bytes] = {}
        """The connection of each node."""
        self.heard: dict[NodeId, float] = {}
        """When each of them was last heard."""
        self._silent: set[NodeId] = set()
        self._quiet: set[NodeId] = set()
        self._over: set[NodeId] = set()
        """Nodes whose connection ended: what it still brings is no sign of life."""
        self._beats: dict[NodeId, float] = {}
        """Beats that were received and not answered yet."""
        self._newest: dict[NodeId, tuple[bytes, str, float]] = {}
        """Connection, boot and beat."""
        self._asked: dict[NodeId, dict[bytes, int]] = {}
        """Connections whose Hello may be an earlier one, each with the number that it was asked to repeat."""
        self._numbers = count(1)

    def greet(self, node_id: NodeId, route: bytes, hello: Hello) -> int:
        """Assign a node to the connection of this Hello and return 0, or the number of a `Resync` to send
        it.
        """
        asked = self._asked.setdefault(node_id, {})
        if self._may_be_earlier(node_id, route, hello) and (
            route not in asked or hello.answers != asked[route]
        ):
            # The same number as before, if there was one: its answer may be under way.
            number = asked.setdefault(route, next(self._numbers))
            if len(asked) > CONNECTIONS_ASKED:
                del asked[next(iter(asked))]
            return number
        self._newest[node_id] = (route, hello.facts.boot_id, hello.beat)
        del self._asked[node_id]
        self.routes[node_id] = route
        self.heard[node_id] = self._clock()
        self._silent.discard(node_id)
        self._quiet.discard(node_id)
        self._over.discard(node_id)
        self._beats.pop(node_id, None)
        return 0

    def owns(self, node_id: NodeId, route: bytes) -> bool:
        """Tell whether this connection speaks for the node."""
        return self.routes.get(node_id) == route

    def is_there(self, node_id: NodeId) -> bool:
        """Tell whether a node is connected and not silent."""
        return node_id in self.routes and node_id not in self._silent

    def hear(self, node_id: NodeId) -> list[NodeHeard]:
        """Note that a node was heard; return the news if it was quiet or silent."""
        if node_id in self._over:
            return []
        self.heard[node_id] = self._clock()
        if node_id not in self._silent and node_id not in self._quiet:
            return []
        self._silent.discard(node_id)
        self._quiet.discard(node_id)
        return [NodeHeard(at=self._clock(), node_id=node_id)]

    def note_beat(self, node_id: NodeId, beat: float) -> None:
        """Keep a beat until it is answered; only the newest counts."""
        self._beats[node_id] = beat

    def take_beats(self) -> dict[NodeId, float]:
        """Return the beats to answer."""
        beats, self._beats = self._beats, {}
        return beats

    def fallen_silent(self) -> list[NodeQuiet | NodeSilent]:
        """Return the nodes of which nothing was heard for two beats, and for too long, once each."""
        now = self._clock()
        believed = [one for one in self.heard.items() if one[0] not in self._silent]
        late = [node_id for node_id, heard in believed if now - heard > self._timeout_s]
        silent = [self._silence(node_id, "Nothing is heard of it any more.") for node_id in late]
        quiet = [
            node_id
            for node_id, heard in believed
            if now - heard > self._quiet_s and node_id not in self._quiet and node_id not in self._silent
        ]
        self._quiet.update(quiet)
        return [*silent, *(NodeQuiet(at=now, node_id=node_id) for node_id in quiet)]

    def broken(self, node_ids: list[NodeId]) -> list[NodeSilent]:
        """Note that connections broke; return the nodes that are silent from now on."""
        return [
            self._silence(node_id, "Its connection broke.")
            for node_id in node_ids
            if node_id not in self._silent
        ]

    def ended(self, routes: list[bytes]) -> list[NodeSilent]:
        """Note that connections ended; return the nodes that are silent from now on, until they connect."""
        if not routes:
            return []
        nodes = [node_id for node_id, route in self.routes.items() if route in routes]
        self._over.update(nodes)
        return self.broken(nodes)

    def _silence(self, node_id: NodeId, reason: str) -> NodeSilent:
        self._silent.add(node_id)
        self._quiet.discard(node_id)
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
        self._quiet.discard(node_id)
        self._over.discard(node_id)
        self._newest.pop(node_id, None)
        self._asked.pop(node_id, None)


AGAIN_S = 600.0

LINES_REMEMBERED = 10_000


class Sayings:
    """Limits how often a line of one kind is logged."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._said: dict[str, float] = {}

    def warn(self, what: str, sentence: str) -> None:
        """Log a warning, unless one of its kind was logged recently."""
        if self.may(what, AGAIN_S):
            self._log.warning("%s Further ones like it are not logged for a while.", printable(sentence))

    def may(self, what: str, again_s: float) -> bool:
        """Tell whether a line of this kind may be logged now; then it counts as logged."""
        now = self._clock()
        if now - self._said.get(what, -again_s) < again_s:
            return False
        self._said.pop(what, None)
        while len(self._said) >= LINES_REMEMBERED:
            del self._said[next(iter(self._said))]
        self._said[what] = now
        return True


ATTEMPTS_REMEMBERED = 100_000


class Assignments:
    """Answers from memory where possible, so that not every chunk of output needs the store (`look_up`)."""

    def __init__(self, look_up: Callable[[AttemptKey], frozenset[NodeId]]) -> None:
        self._look_up = look_up
        self._known: set[tuple[NodeId, AttemptKey]] = set()

    def remember(self, node_id: NodeId, key: AttemptKey) -> None:
        """Note that a node was given an attempt."""
        if len(self._known) >= ATTEMPTS_REMEMBERED:
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

    def under_own_name(
        self, node_id: NodeId, told: tuple[TaskStatus, ...], at: float
    ) -> tuple[tuple[TaskStatus, ...], list[NodeMisnamed]]:
        """Return the valid reports of a node, and those under another name; reports about others' jobs are
        dropped.
        """
        known: list[TaskStatus] = []
        misnamed: list[NodeMisnamed] = []
        for status in told:
            if status.node_id == node_id:
                known.append(status)
            elif self.has(node_id, status.key):
                known.append(replace(status, node_id=node_id))
                misnamed.append(NodeMisnamed(at=at, node_id=node_id, said=status.node_id, key=status.key))
        return tuple(known), misnamed
