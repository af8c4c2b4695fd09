"""Who trusts whom, in a sentence: as which accounts nodes run jobs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mgpu_agent.protocol.model import SUBMITTER, NodeFacts

NAMED = 5
_NOBODY_YET = "An agent that is not told to run jobs as their users runs all as its own: all who may use such a node trust each other."


def runs_as_words(facts: NodeFacts) -> str:
    """Return as whom one node runs jobs."""
    if facts.runs_as == SUBMITTER:
        return "each job as its user"
    return f"every job as {facts.runs_as or 'the user of its agent'}"


def notice(nodes: Sequence[tuple[str, NodeFacts]]) -> str:
    """Return what all who use these nodes should know about each other."""
    if not nodes:
        return _NOBODY_YET
    shared = [(node_id, facts) for node_id, facts in nodes if facts.runs_as != SUBMITTER]
    if not shared:
        return "Every node runs each job as its user."
    names = ", ".join(f"{node_id} (as {facts.runs_as or 'its own user'})" for node_id, facts in shared[:NAMED])
    more = f" and {len(shared) - NAMED} more" if len(shared) > NAMED else ""
    own = "" if len(shared) == len(nodes) else " The other nodes run each job as its user."
    return f"Jobs of all users run as one account on {names}{more}: all who may use such a node trust each other.{own}"
