"""Nodes on which starts fail: counted, taken out, tried again, taken back. Part of the machine; touches no
job.

A number of failed starts in a row makes a node unhealthy. Then a trial is ordered, again and again with
doubled delays, until one works or an operator resumes the node. The delay is reset only when a real job
starts, so that a node whose trials work and whose jobs fail is tried less and less often.
"""

from __future__ import annotations

from heapq import heappop, heappush

from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import Command, ProbeNode, SaveNode
from mgpu_jupyter.scheduler.events import LaunchWasRefused, NodeChecked, NodeProbed
from mgpu_jupyter.scheduler.model import Node
from mgpu_jupyter.scheduler.standing import NodeHealth, clock_time
from mgpu_jupyter.scheduler.state import ClusterState

PROBE_ANSWER_S = 15.0
NOT_THE_NODES = frozenset(
    {"no-python", "gpu-busy", "gpu-lost", "attempt-alive", "no-directory", "other-python"}
)
"""Refusals that say nothing about other jobs: an interpreter that only this one asks for, a GPU that is
already out.
"""


def count_failed_start(state: ClusterState, event: LaunchWasRefused) -> list[Command]:
    """Count a start that failed by the node's fault; too many in a row make it unhealthy."""
    node = state.nodes.get(event.node_id)
    if node is None or event.fault != "node" or event.code in NOT_THE_NODES:
        return []
    health = node.health
    failures = health.failures + 1
    health = replace(health, failures=failures, failures_total=health.failures_total + 1, failed_at=event.at)
    retries = state.policy.scheduling.retries
    if failures >= retries.node_failures:
        times = (
            "The last start on it failed"
            if failures == 1
            else f"{failures} starts in a row failed on it, the last"
        )
        health = replace(health, trouble=f"{times}: {_sentence(event.message)}")
        if not node.health.is_unhealthy:
            delay_s = min(retries.probe_cap_s, max(retries.probe_after_s, 2 * health.probe_delay_s))
            health = _probe_later(state, node, health, event.at, delay_s)
    return _set(state, node, health)


def count_start(state: ClusterState, node_id: NodeId) -> list[Command]:
    """Note that a process was started: earlier failures no longer count."""
    node = state.nodes.get(node_id)
    if (
        node is None
        or node.health.is_unhealthy
        or (node.health.failures, node.health.probe_delay_s) == (0, 0.0)
    ):
        return []
    return _set(state, node, replace(node.health, failures=0, probe_delay_s=0.0))


def probe_now(state: ClusterState, node: Node, at: float) -> None:
    """Order a trial at once, for an unhealthy node that is back."""
    if node.health.is_unhealthy:
        node.health = _probe_later(state, node, node.health, at, 0.0)
        books.settle(state, node)


def probe_due(state: ClusterState, at: float) -> list[Command]:
    """Order the trials that are due, and give up those that were not answered."""
    commands: list[Command] = []
    while state.probes and state.probes[0][0] <= at:
        due_at, node_id = heappop(state.probes)
        node = state.nodes.get(node_id)
        if node is None or node.state is not NodeState.UNHEALTHY or node.health.probe_at != due_at:
            continue
        if node.health.probe:
            commands += _probe_failed(
                state, node, at, f"Its agent did not answer within {PROBE_ANSWER_S:g} s."
            )
            continue
        state.epoch += 1
        health = replace(node.health, probe=state.epoch, probe_at=at + PROBE_ANSWER_S)
        heappush(state.probes, (at + PROBE_ANSWER_S, node.id))
        commands += [*_set(state, node, health), ProbeNode(node.id, state.epoch)]
    return commands


def on_probed(state: ClusterState, event: NodeProbed) -> list[Command]:
    """Take back a node whose trial worked, or wait longer before the next one."""
    node = state.nodes.get(event.node_id)
    if node is None or not event.number or node.health.probe != event.number:
        return []
    if not event.ok:
        return _probe_failed(state, node, event.at, event.message)
    state.wants_pass = True
    return _set(state, node, replace(node.health, failures=0, trouble="", probe_at=None, probe=0))


def on_checked(state: ClusterState, event: NodeChecked) -> list[Command]:
    """Take out a node that is unhealthy by its own checks, and take it back when it is healthy."""
    node = state.nodes.get(event.node_id)
    if node is None or node.ailments == event.ailments:
        return []
    node.ailments = event.ailments
    state.wants_pass = True
    return _set(state, node, node.health)


def _probe_failed(state: ClusterState, node: Node, at: float, message: str) -> list[Command]:
    retries = state.policy.scheduling.retries
    delay_s = min(retries.probe_cap_s, max(retries.probe_after_s, 2 * node.health.probe_delay_s))
    first, _, _ = node.health.trouble.partition(" A trial at ")
    health = replace(
        node.health, trouble=f"{first} A trial at {clock_time(at)} failed too: {_sentence(message)}"
    )
    return _set(state, node, _probe_later(state, node, health, at, delay_s))


def _probe_later(
    state: ClusterState, node: Node, health: NodeHealth, at: float, delay_s: float
) -> NodeHealth:
    heappush(state.probes, (at + delay_s, node.id))
    return replace(health, probe=0, probe_at=at + delay_s, probe_delay_s=delay_s or health.probe_delay_s)


def _set(state: ClusterState, node: Node, health: NodeHealth) -> list[Command]:
    node.health = health
    books.settle(state, node)
    return [SaveNode(node.id)]


def _sentence(text: str) -> str:
    return text.rstrip(".") + "."
