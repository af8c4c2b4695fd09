"""Which launches a node does not carry out, and why, for how long that holds; and how one is stopped. Pure."""

from __future__ import annotations

from mgpu_agent.core.attempts import Attempts
from mgpu_agent.core.commands import StopAttempt
from mgpu_agent.core.gpus import Gpus
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.messages import LaunchRefused, Stop
from mgpu_agent.protocol.model import LaunchSpec, NodeFacts

REFUSALS_KEPT = 10_000  # on one connection, newest: a few MB


class Refusals:
    """What was refused on the present connection, and stays so.

    Who is told that an attempt never starts here begins another one elsewhere. So a launch that comes once more, or an earlier
    copy of it that was held up, must not be carried out, even if it could be by now. What a lost connection brought needs no
    memory: the master asks anew for what it was not told.
    """

    def __init__(self) -> None:
        self._all: dict[AttemptKey, LaunchRefused] = {}

    def of(self, key: AttemptKey) -> LaunchRefused | None:
        """Return what the master was told about this attempt, if it was refused."""
        return self._all.get(key)

    def note(self, refusal: LaunchRefused) -> LaunchRefused:
        """Remember a refusal, and return it."""
        self._all[refusal.key] = refusal
        if len(self._all) > REFUSALS_KEPT:
            del self._all[next(iter(self._all))]
        return refusal

    def forget(self) -> None:
        """Begin anew, with a new connection."""
        self._all.clear()


def why_not(spec: LaunchSpec, node_id: NodeId, facts: NodeFacts | None, attempts: Attempts, gpus: Gpus) -> LaunchRefused | None:
    """Return the refusal of a launch that is not for this node as it is now, or None."""

    def refused(code: str, message: str, fault: str) -> LaunchRefused:
        return LaunchRefused(key=spec.key, code=code, message=message, fault=fault)

    if spec.node_id != node_id:
        return refused("wrong-node", f"This is node {node_id}, not {spec.node_id}.", "stale")
    if facts is not None:
        if spec.incarnation != facts.incarnation:
            return refused("stale", "The launch was meant for the node as it was before it started anew.", "stale")
        missing = set(spec.gpus) - {gpu.uuid for gpu in facts.gpus}
        if missing:
            return refused("no-such-gpu", f"This node has no GPU {', '.join(sorted(missing))}.", "node")
    if problem := gpus.lost(spec.gpus):
        return refused("gpu-lost", problem, "node")
    if (holder := attempts.holder(spec.gpus)) is not None:
        return refused("gpu-busy", f"A GPU of this launch is still held by attempt {holder}.", "node")
    return None


def stop_command(message: Stop) -> StopAttempt:
    """Return what the keeper is asked for when the master says stop."""
    return StopAttempt(key=message.key, grace_s=message.grace_s, reason=message.reason, cause=message.cause)
