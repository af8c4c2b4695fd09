"""Whether a request is accepted at all, given the site and the known nodes: pure, and asked before anything
is saved.

A request that no known node could ever run is refused, since it is far more often a slip (a ninth GPU, a
misspelt node) than a wish to wait for a machine; whoever means that says so with `wait_for_nodes`. The same
goes for a name in `exclude` that no node has. With no node known yet, every request waits.
"""

from __future__ import annotations

import difflib
from collections import Counter

from mgpu_agent.protocol.errors import Conflict, MgpuError
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobSpec, request_bytes
from mgpu_jupyter.scheduler.explain.waiting import why_never
from mgpu_jupyter.scheduler.placement.shape import Shape, shape_of
from mgpu_jupyter.scheduler.planning.quotas import keys_of
from mgpu_jupyter.scheduler.state import ClusterState

NAME_EARLY = "add --wait-for-nodes to name it before it joins"
WAIT = "add --wait-for-nodes to wait for a machine that has it"


class Admission:
    """Checks many requests against the present state; equal ones are checked once."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._answers: dict[Shape, Conflict | None] = {}
        self._more: Counter[tuple[str, ...]] = Counter()
        """Jobs that were admitted here and will wait, too."""
        self._more_bytes = 0

    def check(self, user: str, spec: JobSpec, jobs: int = 1) -> None:
        """Refuse what the site does not allow, and what no known node could ever run."""
        state = self._state
        state.site.check(user, spec)
        account = state.site.account_of(user, spec)
        shape = shape_of(
            spec,
            partition=state.site.partition_of(spec),
            user=user if state.pool.is_restricted else "",
            account=account,
        )
        self._more.update(dict.fromkeys(keys_of(user, account, spec.qos), jobs))
        text = state.quotas.why_not_queued(user, account, spec.qos, self._more) or state.quotas.can_ever(
            user, account, spec.qos, shape.gpus
        )
        if text:
            raise Conflict("quota", text)
        self._more_bytes += jobs * request_bytes(spec)
        if text := state.quotas.why_too_much(user, self._more_bytes):
            raise Conflict("share-used", text)
        if not state.pool.slots or spec.wait_for_nodes:
            return
        if shape not in self._answers:
            self._answers[shape] = self._look(shape) or self._misspelt(shape)
        refusal = self._answers[shape]
        if refusal is not None:
            raise refusal

    def _look(self, shape: Shape) -> Conflict | None:
        reason = why_never(self._state, shape)
        if reason is None:
            return None
        known = list(self._state.pool.slots)
        unknown = [name for name in shape.rules.nodelist if name not in known]
        unknown += [
            group.need.node for group in shape.groups if group.need.node and group.need.node not in known
        ]
        if not unknown:
            return Conflict(reason.code, f"{reason.text.rstrip('.')}; or {WAIT}.")
        return _unknown_node(unknown, known, f"There is no node {unknown[0]}", WAIT)

    def _misspelt(self, shape: Shape) -> Conflict | None:
        """Refuse names that keep the job off no node; what it would only rather have may be no node."""
        known = list(self._state.pool.slots)
        unknown = [name for name in shape.rules.exclude if name not in self._state.pool.slots]
        if not unknown:
            return None
        return _unknown_node(
            unknown, known, f"There is no node {unknown[0]}, which --exclude names", NAME_EARLY
        )


def _unknown_node(unknown: list[str], known: list[NodeId], text: str, otherwise: str) -> Conflict:
    near = difflib.get_close_matches(unknown[0], known, 1, 0.5)
    hint = f"name {near[0]} if you mean that one, see `mgpu nodes`" if near else "see `mgpu nodes`"
    return Conflict(
        "unknown-node",
        f"{text}: {hint}, or {otherwise}.",
        {"unknown": unknown, "nearest": near[0] if near else None},
    )


def usable_nodes(state: ClusterState, user: str) -> frozenset[NodeId]:
    """Return the nodes on which some job of this user could run, by the partitions and lists that would apply
    to it.
    """
    settings, found = state.site.settings, frozenset[NodeId]()
    accounts = [name for name, one in settings.accounts.items() if not one.users or user in one.users]
    for partition in ("", *settings.partitions):
        for account in ("", *accounts):
            spec = JobSpec(command=("true",), gpus=0, partition=partition, account=account)
            try:
                state.site.check(user, spec)
            except MgpuError:
                continue
            shape = shape_of(
                spec,
                partition=state.site.partition_of(spec),
                user=user,
                account=state.site.account_of(user, spec),
            )
            found |= state.pool.capable(shape.rules, shape.groups[0].need)
            if len(found) == len(state.pool.slots):
                return found
    return found
