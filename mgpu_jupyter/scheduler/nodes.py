"""What is heard of nodes, and what follows: who is there, which GPUs are out, how busy they are.

It changes nodes only; what becomes of the jobs on them is decided in `attempts`, and it places nothing.
"""

from __future__ import annotations

from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuTrouble, NodeFacts, Trouble
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.scheduler import attempts, books, health, leases
from mgpu_jupyter.scheduler.commands import Command, SaveNode
from mgpu_jupyter.scheduler.events import (
    GpusChanged,
    NodeDeclaredLost,
    NodeHeard,
    NodeJoined,
    NodeLeft,
    NodeMeasured,
    NodeSilent,
    StateRecovered,
)
from mgpu_jupyter.scheduler.model import Node
from mgpu_jupyter.scheduler.standing import NodeHealth, NodeOrders
from mgpu_jupyter.scheduler.state import ClusterState

NOT_SEEN = "It has not connected since the master started."


def on_joined(state: ClusterState, event: NodeJoined) -> list[Command]:
    """Take in a node that connected, with what it says it runs."""
    blocked = _blocked(state, event.facts, event.troubles)
    node = Node(id=event.node_id, facts=event.facts, state=NodeState.ONLINE, blocked=blocked)
    if (before := state.nodes.get(node.id)) is not None:
        node.orders, node.health, node.load, node.mismatch = before.orders, before.health, before.load, before.mismatch
    state.nodes[node.id] = node
    node.settle()
    health.probe_now(state, node, event.at)
    books.recount(state, node)
    state.wants_pass = True
    return [SaveNode(node.id), *attempts.reconcile(state, event), *attempts.end_on_lost_gpus(state, node, event.at)]


def on_gpus_changed(state: ClusterState, event: GpusChanged) -> list[Command]:
    """Take in which GPUs of a node must not be handed out now."""
    node = state.nodes.get(event.node_id)
    if node is None or (blocked := _blocked(state, node.facts, event.troubles)) == node.blocked:
        return []
    node.blocked = blocked
    books.refresh(state, node)
    state.wants_pass = True
    return [SaveNode(node.id), *attempts.end_on_lost_gpus(state, node, event.at)]


def _blocked(state: ClusterState, facts: NodeFacts, troubles: dict[GpuUuid, GpuTrouble]) -> dict[GpuUuid, GpuTrouble]:
    """Return the troubles that keep GPUs of this node from being handed out."""
    known = {gpu.uuid for gpu in facts.gpus}
    shared = (Trouble.OUTSIDE,) if state.policy.share_busy_gpus else ()
    return {uuid: trouble for uuid, trouble in troubles.items() if uuid in known and trouble.kind not in shared}


def on_measured(state: ClusterState, event: NodeMeasured) -> list[Command]:
    """Note how busy a node is; it is measured anew all the time, so nothing is saved."""
    if event.node_id in state.nodes:
        state.nodes[event.node_id].load = event.load
        books.refresh(state, state.nodes[event.node_id])
    return []


def on_heard(state: ClusterState, event: NodeHeard) -> list[Command]:
    """Believe a node again that was silent."""
    node = state.nodes.get(event.node_id)
    if node is None or node.link is not NodeState.SUSPECT:
        return []
    state.wants_pass = True
    node.away_since = None
    commands = _set_link(state, node.id, NodeState.ONLINE, "")
    health.probe_now(state, node, event.at)
    return commands


def on_silent(state: ClusterState, event: NodeSilent) -> list[Command]:
    """Give a silent node nothing more."""
    _lose_sight(state, event.node_id, event.at if event.heard_at is None else event.heard_at)
    return _set_link(state, event.node_id, NodeState.SUSPECT, event.reason)


def on_left(state: ClusterState, event: NodeLeft) -> list[Command]:
    """Note that a node said goodbye."""
    _lose_sight(state, event.node_id, event.at)
    return _set_link(state, event.node_id, NodeState.OFFLINE, event.reason)


def on_declared_lost(state: ClusterState, event: NodeDeclaredLost) -> list[Command]:
    """Give up what ran on a node, on an operator's word."""
    offline = _set_link(state, event.node_id, NodeState.OFFLINE, event.reason)
    return offline + attempts.on_node_declared_lost(state, event)


def recover(state: ClusterState, event: StateRecovered) -> None:
    """Bring back the nodes that were known before, with what operators ordered and how starts went."""
    for node_id, facts in event.nodes:
        node = Node(
            id=node_id,
            facts=facts,
            state=NodeState.OFFLINE,
            link=NodeState.OFFLINE,
            link_reason=event.reasons.get(node_id, NOT_SEEN),
            orders=event.orders.get(node_id, NodeOrders()),
            health=event.health.get(node_id, NodeHealth()),
        )
        node.settle()
        state.nodes[node_id] = node


def _lose_sight(state: ClusterState, node_id: NodeId, heard_at: float) -> None:
    if node_id in state.nodes:
        leases.lose_sight(state, state.nodes[node_id], heard_at)


def _set_link(state: ClusterState, node_id: NodeId, link: NodeState, reason: str) -> list[Command]:
    node = state.nodes.get(node_id)
    if node is None or (node.link, node.link_reason) == (link, reason):
        return []
    node.link, node.link_reason = link, reason
    books.settle(state, node)
    return [SaveNode(node.id)]
