"""How each node answers each unit of a request: the first check that it fails, and what is missing. Reads the
state, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.wording import count, exact, rounded
from mgpu_jupyter.model.explanations import Ahead, Excluded, Term, UnitAnswer, Where
from mgpu_jupyter.model.units import Group, Need
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.explain.waiting import what
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.scheduler.placement.filters import NEVER, NOT_NOW, Exclusion, never, not_now
from mgpu_jupyter.scheduler.placement.fit import Finder, Found
from mgpu_jupyter.scheduler.placement.shape import Shape
from mgpu_jupyter.scheduler.placement.slots import Slot
from mgpu_jupyter.scheduler.planning import priority
from mgpu_jupyter.scheduler.state import ClusterState

SIBLINGS = "siblings"
PROMISES = "promises"
CHECKS = (*(code for code, _ in NEVER), *(code for code, _ in NOT_NOW), SIBLINGS, PROMISES)
"""All checks of a node, in the order in which they are made."""
NAMED_NODES = 8
NAMED_AHEAD = 5
MAX_REASONS = 12
MAX_GROUPS = 8

Reasons = dict[tuple[Exclusion, bool], list[NodeId]]


def diagnose(state: ClusterState, shape: Shape, end: float) -> tuple[UnitAnswer, ...]:
    """Return the nodes' answers to a job of this shape that would run until `end`; of many unlike units,
    those of the first few.
    """
    finder = Finder(state.pool, state.site.own, state.last_turn)
    missing = finder.missing(shape, end)
    given = _given(finder, shape, missing, end)
    taken: dict[NodeId, int] = {}
    answers = []
    for group, lacks, nodes in list(zip(shape.groups, missing, given, strict=True))[:MAX_GROUPS]:
        reasons, would_do = _ask_all(state, shape, group, taken, end)
        taken |= {node_id: group.first + index for index, node_id in enumerate(nodes)}
        answers.append(
            UnitAnswer(
                first=group.first,
                count=group.count,
                needs=needs(group.need),
                missing=lacks,
                would_do=would_do,
                given=nodes[:NAMED_NODES],
                excluded=_grouped(reasons),
            )
        )
    return tuple(answers)


def ahead_of(state: ClusterState, place: int) -> tuple[Ahead, ...]:
    """Return the first few of those ahead of a place in the queue."""
    first = state.queue.order[: min(NAMED_AHEAD, place - 1)]
    return tuple(
        Ahead(
            job_id=entry.job_id,
            user=entry.user,
            gpus=entry.gpus,
            priority=sum(term.points for term in terms_of(state, state.jobs[entry.job_id])),
        )
        for entry in first
    )


def terms_of(state: ClusterState, job: Job) -> tuple[Term, ...]:
    """Return the summands of a job's priority now."""
    gpus = books.shape(state, job).gpus
    factor = state.shares.factor(job.user, job.account, state.now)
    return priority.terms(
        state.policy.scheduling.planning.weights, books.facts(state, job, gpus), state.now, factor
    )


def where(found: Found) -> tuple[Where, ...]:
    """Return what was found, by node names and GPU indices."""
    return tuple(
        Where(
            node=slot.id, gpus=tuple(gpu.index for bit, gpu in enumerate(slot.gpus) if hold.mask >> bit & 1)
        )
        for slot, hold in found
    )


def needs(need: Need) -> str:
    """Return all that a unit asks of a node, in words."""
    memory = f" and {exact(need.mem_bytes)} of memory" if need.mem_bytes else ""
    alone = " of a node to itself" if need.exclusive else ""
    return f"{what(need)}{memory}{alone}"


def _given(finder: Finder, shape: Shape, missing: list[int], end: float) -> list[tuple[NodeId, ...]]:
    """Return the nodes that each group would get, as far as there are any."""
    served = [
        Group(group.need, group.first, group.count - lacks)
        for group, lacks in zip(shape.groups, missing, strict=True)
    ]
    groups = tuple(group for group in served if group.count)
    found = iter((groups and finder.find(replace(shape, groups=groups), end)) or ())
    return [
        tuple(slot.id for (slot, _), _ in zip(found, range(group.count), strict=False)) for group in served
    ]


def _ask_all(
    state: ClusterState, shape: Shape, group: Group, taken: dict[NodeId, int], end: float
) -> tuple[Reasons, int]:
    reasons: Reasons = {}
    would_do = 0
    need, rules = group.need, shape.rules
    capable = state.pool.capable(rules, need)
    # Most nodes of a large cluster are alike, so the answer of one holds for the next.
    alike: dict[tuple[object, ...], Exclusion | None] = {}
    any_gpu = not (need.gpu_ids or rules.gpu_type or rules.gpu_mem_bytes)
    for slot in state.pool.slots.values():
        if slot.id not in capable:
            out = never(slot, need, rules, state.pool.homes)
        elif any_gpu and not slot.blocked and not (slot.holds and (need.exclusive or slot.seats <= 0)):
            key = (slot.state, slot.free, slot.free_cpus, slot.free_mem)
            if key not in alike:
                alike[key] = not_now(slot, need, rules)
            out = alike[key]
        else:
            out = not_now(slot, need, rules)
        out = out or _not_beside(state, slot, need, taken, end)
        if out is None:
            would_do += 1
        else:
            reasons.setdefault((out, slot.id not in capable), []).append(slot.id)
    return reasons, would_do


def _not_beside(
    state: ClusterState, slot: Slot, need: Need, taken: dict[NodeId, int], end: float
) -> Exclusion | None:
    """Return what excludes a unit from a node with room: another unit of its job, or a promise."""
    if slot.id in taken:
        return Exclusion(SIBLINGS, f"Unit {taken[slot.id]} of this job takes it.")
    counted = state.pool.counted
    if counted is not None and not counted.lets(need.gpus or need.exclusive, end):
        return Exclusion(PROMISES, f"It is promised from in {rounded(counted.at - state.now)} on.")
    if slot.promises and not slot.lets(need, end):
        return Exclusion(
            PROMISES,
            f"It is promised from in {rounded(min(one.at for one in slot.promises) - state.now)} on.",
        )
    return None


def _grouped(reasons: Reasons) -> tuple[Excluded, ...]:
    """Return the reasons of most nodes first; beyond a limit, the rest by check alone."""
    ordered = sorted(
        reasons.items(), key=lambda item: (CHECKS.index(item[0][0].code), -len(item[1]), item[1][0])
    )
    if len(ordered) > MAX_REASONS:
        by_check: dict[str, Reasons] = {}
        for (out, is_never), nodes in ordered:
            by_check.setdefault(out.code, {})[out, is_never] = nodes
        ordered = [item for one in by_check.values() for item in _merged(one).items()]
    return tuple(_excluded(out, nodes, is_never=is_never) for (out, is_never), nodes in ordered)


def _merged(reasons: Reasons) -> Reasons:
    if len(reasons) == 1:
        return reasons
    (out, is_never), nodes = max(reasons.items(), key=lambda item: len(item[1]))
    everywhere = sorted(node_id for some in reasons.values() for node_id in some)
    text = f"{out.text} ({count(len(nodes), 'node')}; others in other numbers)"
    return {(Exclusion(out.code, text), is_never): everywhere}


def _excluded(out: Exclusion, nodes: Iterable[NodeId], *, is_never: bool) -> Excluded:
    names = sorted(nodes)
    return Excluded(
        check=out.code,
        text=out.text,
        never=is_never,
        count=len(names),
        nodes=tuple(names[:NAMED_NODES]),
        passed=CHECKS[: CHECKS.index(out.code)],
    )
