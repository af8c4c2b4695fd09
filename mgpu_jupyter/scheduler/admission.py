"""Whether a request is taken at all, given the nodes that are known: pure, and asked before anything is saved.

A request that no known node could ever run is refused, since it is far more often a slip (a ninth GPU, a misspelt node) than a
wish to wait for a machine; whoever means that says so with `wait_for_nodes`. With no node known yet, every request waits.
"""

from __future__ import annotations

import difflib

from mgpu_agent.protocol.errors import Conflict
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.scheduler.model import ClusterState
from mgpu_jupyter.scheduler.placement.fit import Never, Shape, find_capable, shape_of
from mgpu_jupyter.scheduler.placement.scratch import Scratch

WAIT = "add --wait-for-nodes to wait for a machine that has it"


class Admission:
    """Answers for many requests against the state as it is now; alike ones are looked at once."""

    def __init__(self, state: ClusterState) -> None:
        self._slots = Scratch(state.nodes.values()).slots
        self._answers: dict[Shape, Conflict | None] = {}

    def check(self, spec: JobSpec) -> None:
        """Refuse what no node that is known could ever run."""
        if not self._slots or spec.wait_for_nodes:
            return
        shape = shape_of(spec)
        if shape not in self._answers:
            self._answers[shape] = self._look(shape)
        refusal = self._answers[shape]
        if refusal is not None:
            raise refusal

    def _look(self, shape: Shape) -> Conflict | None:
        answer = find_capable(shape, self._slots)
        if not isinstance(answer, Never):
            return None
        known = [slot.id for slot in self._slots]
        unknown = [name for name in shape.nodelist if name not in known]
        if not unknown:
            return Conflict(answer.reason.code, f"{answer.reason.text.rstrip('.')}; or {WAIT}.")
        near = difflib.get_close_matches(unknown[0], known, 1, 0.5)
        hint = f"name {near[0]} if you mean that one, see `mgpu nodes`" if near else "see `mgpu nodes`"
        return Conflict(
            "unknown-node",
            f"There is no node {unknown[0]}: {hint}, or {WAIT}.",
            {"unknown": unknown, "nearest": near[0] if near else None},
        )
