"""Nodes that are away, and fenced attempts on them: when nothing of these can run there any more. Part of the machine.

The keeper of a node ends a fenced attempt one lease after the last word that the master is known to have heard. So the master,
which heard it no earlier, waits for the lease, the kill grace and a margin from then on; ranks on other nodes are ended as soon as
the lease is over. After a start of the master it counts
from that start: whatever the one before it heard was heard sooner.
"""

from __future__ import annotations

from heapq import heappop, heappush

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.scheduler import attempts
from mgpu_jupyter.scheduler.commands import Command
from mgpu_jupyter.scheduler.model import Job, Node, Reason, StopCause
from mgpu_jupyter.scheduler.state import ClusterState


def lose_sight(state: ClusterState, node: Node, heard_at: float) -> None:
    """Note when a node was heard last, and by when the fenced attempts on it are over."""
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
                text = f"Nothing was heard of node {node_id} for {job.fence_s:g} s: its lease of {job.lease_s:g} s ran out there."
                commands += attempts.give_up_ranks(state, at, job, node_id, text)
            elif node.away_since + job.lease_s <= at and len(job.placements) > 1 and job.stop is None:
                # What runs there is being ended by its keeper, so that the other ranks have nothing to wait for.
                cause = StopCause.REQUEUE if job.spec.requeue else StopCause.RANK_FAILED
                text = f"Nothing was heard of node {node_id} for {job.lease_s:g} s: its lease ran out there."
                commands += attempts.stop_attempt(state, job, cause, Reason("node-lost", text))
    return commands


def _fenced_on(state: ClusterState, node_id: NodeId) -> list[Job]:
    jobs = [state.jobs[job_id] for job_id in state.pool.slots[node_id].holds]
    return [job for job in jobs if job.fence_s]
