"""What the nodes of an attempt found out about the ways between them, and what follows: addresses and
interfaces, or which nodes cannot reach each other. Pure.

A node's address is good when every node that tried it succeeded. The first node's best one is that of rank 0;
the interface of each node's best one is what its libraries are told to use.
"""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.meeting import Fingerprint, MeetingPoint, Peer
from mgpu_agent.protocol.messages import Met
from mgpu_jupyter.scheduler.model import Rendezvous
from mgpu_jupyter.scheduler.words import several

ALL_PAIRS = 64
"""Up to this many nodes visit all others; of more, each visits the first node and its neighbours."""
NEIGHBOURS = 32
LOOPBACK = ("127.", "::1")
NAMED_PAIRS = 3


class CannotTalk(msgspec.Struct, frozen=True):
    """Two nodes that cannot reach each other, and what was tried."""

    one: NodeId
    other: NodeId
    text: str


class Meeting:
    """One meeting, from the first meeting point to the last answer."""

    def __init__(self, epoch: int, nodes: tuple[NodeId, ...]) -> None:
        self.epoch = epoch
        self.nodes = nodes
        self.offers: dict[NodeId, MeetingPoint] = {}
        self.answers: dict[NodeId, Met] = {}
        self.until = 0.0
        """The deadline, once it has begun."""

    @property
    def is_complete(self) -> bool:
        """Tell whether every node reported where it waits."""
        return len(self.offers) == len(self.nodes)

    @property
    def is_over(self) -> bool:
        """Tell whether every node reported whom it reached; a single node has nobody to visit."""
        return self.is_complete and (len(self.nodes) == 1 or len(self.answers) == len(self.nodes))

    def silent(self) -> tuple[NodeId, ...]:
        """Return the nodes that did not answer."""
        return tuple(node for node in self.nodes if node not in self.answers)

    def drop(self, node_id: NodeId) -> None:
        """Forget what a node reported: it knows nothing of it any more, and visits to it were in vain."""
        self.offers.pop(node_id, None)
        self.answers.clear()

    def peers_of(self, node_id: NodeId) -> tuple[Peer, ...]:
        """Return the nodes that this one visits."""
        return tuple(
            Peer(node_id=other, ways=self.offers[other].ways, port=self.offers[other].port)
            for other in self._others(node_id)
        )

    def apart(self) -> list[CannotTalk]:
        """Return the pairs in which one cannot reach the other, each once."""
        found: dict[frozenset[NodeId], CannotTalk] = {}
        for node_id, answer in self.answers.items():
            reached = {one.node_id for one in answer.reached}
            for other in self._others(node_id):
                if other not in reached and frozenset((node_id, other)) not in found:
                    found[frozenset((node_id, other))] = CannotTalk(
                        node_id, other, self._tried(node_id, other)
                    )
        return list(found.values())

    def rendezvous(self) -> Rendezvous | None:
        """Return the address of rank 0, or None when no address of the first node is good."""
        first = self.nodes[0]
        good = self._good_ways(first)
        return Rendezvous(address=good[0][0], port=self.offers[first].master_port) if good else None

    def hardest(self) -> CannotTalk:
        """Return the node that reaches the first one by the fewest ways, when no way is common to all."""
        first = self.nodes[0]

        def ways(node_id: NodeId) -> int:
            return sum(one.node_id == first for one in self.answers[node_id].reached)

        worst = min(self.nodes[1:], key=ways)
        return CannotTalk(worst, first, self._tried(worst, first))

    def interface_of(self, node_id: NodeId) -> str:
        """Return the interface by which the others reach a node; empty when they do not share one."""
        return next((interface for _, interface in self._good_ways(node_id) if interface), "")

    def fingerprints(self) -> dict[NodeId, Fingerprint]:
        """Return what the processes will find on each node."""
        return {node: self.answers[node].fingerprint for node in self.nodes if node in self.answers}

    def _others(self, node_id: NodeId) -> tuple[NodeId, ...]:
        count = len(self.nodes)
        if count <= ALL_PAIRS:
            return tuple(other for other in self.nodes if other != node_id)
        place = self.nodes.index(node_id)
        near = [self.nodes[0], *(self.nodes[(place + step) % count] for step in range(1, NEIGHBOURS + 1))]
        return tuple(other for other in dict.fromkeys(near) if other != node_id)

    def _good_ways(self, node_id: NodeId) -> list[tuple[str, str]]:
        """Return the addresses of a node, with their interfaces, that worked for all who tried."""
        ways = [(way.address, way.interface) for way in self.offers[node_id].ways]
        if len(self.nodes) == 1:  # no other node visits it
            return sorted(ways, key=lambda way: not way[0].startswith(LOOPBACK))
        for other in self.nodes:
            if other != node_id and node_id in self._others(other):
                got = {one.address for one in self.answers[other].reached if one.node_id == node_id}
                ways = [way for way in ways if way[0] in got]
        return ways

    def _tried(self, node_id: NodeId, other: NodeId) -> str:
        """Return what a node tried to reach another, by interface and address."""
        interfaces = {way.address: way.interface for way in self.offers[other].ways}
        tried = [one for one in self.answers[node_id].unreached if one.node_id == other]
        network = [one for one in tried if not one.address.startswith(LOOPBACK)] or tried
        told = [f"{interfaces.get(one.address) or 'announced'} {one.address}: {one.why}" for one in network]
        return several(told) if told else "it has no address"


def cannot_talk(pairs: list[CannotTalk]) -> str:
    """Return a sentence about who cannot reach whom."""
    told = [f"{pair.one} cannot reach {pair.other} ({pair.text})" for pair in pairs[:NAMED_PAIRS]]
    more = f", and {len(pairs) - NAMED_PAIRS} more pairs" if len(pairs) > NAMED_PAIRS else ""
    return f"{'; '.join(told)}{more}."


def differences(prints: dict[NodeId, Fingerprint]) -> tuple[str, ...]:
    """Return a sentence for each difference in what processes find on the nodes."""
    told = []
    for field, name in (("python", "Python"), ("torch", "torch"), ("driver", "The GPU driver")):
        where: dict[str, list[NodeId]] = {}
        for node, fingerprint in prints.items():
            if not fingerprint.python:  # its files could not be read in time
                continue
            where.setdefault(getattr(fingerprint, field), []).append(node)
        if len(where) > 1:
            parts = [f"{version or 'none'} on {several(nodes)}" for version, nodes in where.items()]
            told.append(f"{name} is not the same on all nodes: {', '.join(parts)}.")
    return tuple(told)
