"""What is heard of nodes, and what follows: which are there, which GPUs are out, how busy they are.

Changes nodes only; what happens to the jobs on them is decided in `attempts`. Places nothing.

Leases: the keeper of a node ends a fenced attempt one lease after the last message that the master is known
to have received. So the master, which received it no earlier, waits for the lease, the kill grace and a
margin from then on; ranks on other nodes are ended as soon as the lease is over. After a start of the master
it counts from that start: whatever an earlier master received was earlier.
"""

from __future__ import annotations

from heapq import heappop, heappush

from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuTrouble, NodeFacts, Trouble
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.scheduler import attempts, books, health
from mgpu_jupyter.scheduler.commands import Command, SaveNode
from mgpu_jupyter.scheduler.events import (
    GpusChanged,
    NodeDeclaredLost,
    NodeHeard,
    NodeJoined,
    NodeLeft,
    NodeMeasured,
    NodeQuiet,
    NodeSilent,
    StateRecovered,
)
from mgpu_jupyter.scheduler.model import Job, Node, Reason, StopCause
from mgpu_jupyter.scheduler.standing import NodeHealth, NodeOrders
from mgpu_jupyter.scheduler.state import ClusterState

NOT_SEEN = "It has not connected since the master started."


def on_joined(state: ClusterState, event: NodeJoined) -> list[Command]:
    """Handle a node that connected, with what it says it runs."""
    blocked = _blocked(state, event.facts, event.troubles)
    node = Node(id=event.node_id, facts=event.facts, state=NodeState.ONLINE, blocked=blocked)
    if (before := state.nodes.get(node.id)) is not None:
        node.orders, node.health, node.load, node.mismatch = (
            before.orders,
            before.health,
            before.load,
            before.mismatch,
        )
    state.nodes[node.id] = node
    node.settle()
    health.probe_now(state, node, event.at)
    books.recount(state, node)
    state.wants_pass = True
    return [
        SaveNode(node.id),
        *attempts.reconcile(state, event),
        *attempts.end_on_lost_gpus(state, node, event.at),
    ]


def on_gpus_changed(state: ClusterState, event: GpusChanged) -> list[Command]:
    """Note which GPUs of a node must not be handed out now."""
    node = state.nodes.get(event.node_id)
    if node is None or (blocked := _blocked(state, node.facts, event.troubles)) == node.blocked:
        return []
    node.blocked = blocked
    books.refresh(state, node)
    state.wants_pass = True
    return [SaveNode(node.id), *attempts.end_on_lost_gpus(state, node, event.at)]


def _blocked(
    state: ClusterState, facts: NodeFacts, troubles: dict[GpuUuid, GpuTrouble]
) -> dict[GpuUuid, GpuTrouble]:
    """Return the troubles that keep GPUs of this node from being handed out."""
    known = {gpu.uuid for gpu in facts.gpus}
    shared = (Trouble.OUTSIDE,) if state.policy.share_busy_gpus else ()
    return {
        uuid: trouble for uuid, trouble in troubles.items() if uuid in known and trouble.kind not in shared
    }


def on_measured(state: ClusterState, event: NodeMeasured) -> list[Command]:
    """Note the load of a node; it is measured all the time, so nothing is saved."""
    if event.node_id in state.nodes:
        state.nodes[event.node_id].load = event.load
        books.refresh(state, state.nodes[event.node_id])
    return []


def on_quiet(state: ClusterState, event: NodeQuiet) -> list[Command]:
    """Give a node nothing new until it is heard: nobody else learns of it, and nothing is saved."""
    if (node := state.nodes.get(event.node_id)) is not None:
        node.is_quiet = True
        books.refresh(state, node)
    return []


def on_heard(state: ClusterState, event: NodeHeard) -> list[Command]:
    """Believe a node again that was quiet or silent."""
    node = state.nodes.get(event.node_id)
    if node is None or not (node.is_quiet or node.is_silent):
        return []
    state.wants_pass = True
    if node.is_quiet:
        node.is_quiet = False
        books.refresh(state, node)
    if not node.is_silent:
        return []
    node.away_since, node.is_silent = None, False
    commands = _set_link(state, node.id, NodeState.ONLINE, "")
    health.probe_now(state, node, event.at)
    return commands


def on_silent(state: ClusterState, event: NodeSilent) -> list[Command]:
    """Place nothing more on a silent node; after a while it counts as offline."""
    heard_at = event.at if event.heard_at is None else event.heard_at
    _lose_sight(state, event.node_id, heard_at)
    if (node := state.nodes.get(event.node_id)) is not None:
        node.is_silent = True
        heappush(state.silences, (heard_at + state.policy.offline_s, node.id))
    return _set_link(state, event.node_id, NodeState.SUSPECT, event.reason)


def on_left(state: ClusterState, event: NodeLeft) -> list[Command]:
    """Note that a node said goodbye."""
    _lose_sight(state, event.node_id, event.at)
    _end_silence(state, event.node_id)
    return _set_link(state, event.node_id, NodeState.OFFLINE, event.reason)


def on_declared_lost(state: ClusterState, event: NodeDeclaredLost) -> list[Command]:
    """Give up what ran on a node, as an operator ordered."""
    _end_silence(state, event.node_id)
    offline = _set_link(state, event.node_id, NodeState.OFFLINE, event.reason)
    return offline + attempts.on_node_declared_lost(state, event)


def recover(state: ClusterState, event: StateRecovered) -> None:
    """Restore the nodes that were known before, with their orders and the results of starts."""
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
        lose_sight(state, state.nodes[node_id], heard_at)


def _end_silence(state: ClusterState, node_id: NodeId) -> None:
    if node_id in state.nodes:
        state.nodes[node_id].is_silent = False


def give_up_hope(state: ClusterState, at: float) -> list[Command]:
    """Mark nodes as offline that were silent for too long."""
    commands: list[Command] = []
    while state.silences and state.silences[0][0] <= at:
        _, node_id = heappop(state.silences)
        node = state.nodes.get(node_id)
        if node is None or not node.is_silent or node.away_since is None:
            continue
        if node.away_since + state.policy.offline_s <= at:
            commands += _set_link(state, node_id, NodeState.OFFLINE, node.link_reason)
    return commands


def _set_link(state: ClusterState, node_id: NodeId, link: NodeState, reason: str) -> list[Command]:
    node = state.nodes.get(node_id)
    if node is None or (node.link, node.link_reason) == (link, reason):
        return []
    node.link, node.link_reason = link, reason
    books.settle(state, node)
    return [SaveNode(node.id)]


def lose_sight(state: ClusterState, node: Node, heard_at: float) -> None:
    """Note when a node was last heard, and by when the fenced attempts on it are over."""
    node.away_since = heard_at
    jobs = _fenced_on(state, node.id)
    for after_s in {job.fence_s for job in jobs} | {job.lease_s for job in jobs if len(job.placements) > 1}:
        heappush(state.leases, (heard_at + after_s, node.id))


def run_out(state: ClusterState, at: float) -> list[Command]:
    """Give up the fenced attempts of nodes that were away for too long."""
    commands: list[Command] = []
    while state.leases and state.leases[0][0] <= at:
        _, node_id = heappop(state.leases)
        node = state.nodes.get(node_id)
        if node is None or node.away_since is None:
            continue
        for job in _fenced_on(state, node_id):
            if node.away_since + job.fence_s <= at:
                text = (
                    f"Nothing was heard of node {node_id} for {job.fence_s:g} s: its lease of "
                    f"{job.lease_s:g} s ran out there."
                )
                commands += attempts.give_up_ranks(state, at, job, node_id, text)
            elif node.away_since + job.lease_s <= at and len(job.placements) > 1 and job.stop is None:
                # Its keeper is ending what runs there, so the other ranks have nothing to wait for.
                cause = StopCause.REQUEUE if job.spec.requeue else StopCause.RANK_FAILED
                text = f"Nothing was heard of node {node_id} for {job.lease_s:g} s: its lease ran out there."
                commands += attempts.stop_attempt(state, job, cause, Reason("node-lost", text))
    return commands


def _fenced_on(state: ClusterState, node_id: NodeId) -> list[Job]:
    jobs = [state.jobs[job_id] for job_id in state.pool.slots[node_id].holds]
    return [job for job in jobs if job.fence_s]
