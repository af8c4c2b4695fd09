"""The one-line answer for a waiting job: its place and its reason, cheap enough for lists. Reads the state,
changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.wording import count, rounded
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.units import Need
from mgpu_jupyter.scheduler.model import Job, Reason
from mgpu_jupyter.scheduler.placement.filters import never, not_now, room
from mgpu_jupyter.scheduler.placement.fit import Finder
from mgpu_jupyter.scheduler.placement.shape import Shape
from mgpu_jupyter.scheduler.placement.slots import Slot
from mgpu_jupyter.scheduler.planning.plan import promised_start
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.scheduler.words import NAMED, several

NOT_LOOKED_AT = Reason("new", "It was just submitted and will be looked at in a moment.")
NO_NODES = Reason(
    "no-nodes", "No node has joined yet: start JupyterLab's own agent or run mgpu_node on a GPU machine."
)


MAX_SEATED = 200
"""Up to this many unlike units are matched one by one before the answer is *never*; beyond, only when there
are too few nodes.
"""


class Waiting(msgspec.Struct, frozen=True):
    """Place in the queue (1 is next) and why it waits."""

    place: int | None
    reason: Reason
    expected_at: float | None = None
    """The promised start, if there is one."""


Known = dict[Shape, Reason | None]
"""Answers for shapes that are already known while a list is made."""


def waiting(state: ClusterState, job_id: JobId, at: float, known: Known | None = None) -> Waiting | None:
    """Return why a queued job waits, None for a job that does not wait; for many jobs of one moment, `known`
    saves work.
    """
    job = state.jobs.get(job_id)
    if job is None or job.state is not JobState.QUEUED:
        return None
    entry = state.queue.entry(job_id)
    if entry is None:
        return Waiting(None, aside(job, at))
    place = state.queue.place_of(job_id)
    if entry in state.planner.fresh:
        return Waiting(place, NOT_LOOKED_AT)
    reason = quota_reason(state, (entry.user, entry.account, entry.qos, entry.array, entry.gpus))
    if reason is not None:
        return Waiting(place, reason)
    reason = why(state, entry.lane.shape, at + entry.duration, known)
    return Waiting(place, reason, promised_start(state.planner, job_id))


def quota_reason(state: ClusterState, claim: tuple[str, str, str, str | None, int]) -> Reason | None:
    """Return the quota or throttle that keeps this user, account, QoS and array from having this many more
    GPUs; None for none.
    """
    user, account, qos, array, gpus = claim
    text = state.quotas.why_not(user, account, qos, array, gpus)
    return Reason("throttle" if state.quotas.is_throttled(array) else "quota", text) if text else None


def why(state: ClusterState, shape: Shape, end: float, known: Known | None = None) -> Reason:
    """Return why a job of this shape does not start now."""
    known = {} if known is None else known
    if shape not in known:
        known[shape] = _why_no_room(state, shape)
    reason = known[shape]
    if reason is not None:
        return reason
    ahead = next((promise for promise in state.planner.promises if promise.at < end), None)
    if ahead is None:
        return Reason("ahead", "It waits for those ahead of it in the queue.")
    when = rounded(ahead.at - state.now)
    text = (
        f"It would fit now, but delay job {ahead.job_id}, which is promised to start in {when}: a "
        f"shorter -t may help."
    )
    return Reason("promised", text)


def _why_no_room(state: ClusterState, shape: Shape) -> Reason | None:
    if not state.pool.slots:
        return NO_NODES
    reason = why_never(state, shape)
    if reason is not None:
        return reason
    finder = Finder(state.pool, state.site.own, state.last_turn)
    missing = finder.missing(shape, state.now)
    if not any(missing):
        return None
    if shape.meets and state.pool.apart and not any(finder.missing(replace(shape, meets=False), state.now)):
        return _apart(state, shape)
    return _not_now(state, shape, sum(missing))


def _apart(state: ClusterState, shape: Shape) -> Reason:
    """Return the reason that there is room, but on nodes that cannot reach each other."""
    capable = frozenset[NodeId]().union(
        *(state.pool.capable(shape.rules, group.need) for group in shape.groups)
    )
    texts = [
        (apart.until, apart.text)
        for pair, apart in sorted(state.pool.apart.items(), key=lambda one: sorted(one[0]))
        if pair <= capable
    ]
    until, text = min(texts)
    return Reason(
        "cannot-talk",
        f"{text} They are tried again in {rounded(until - state.now)}; other nodes would do at once.",
    )


def why_never(state: ClusterState, shape: Shape) -> Reason | None:
    """Return why no known node could ever run this, or None when some could."""
    unknown = [name for name in shape.rules.nodelist if name not in state.pool.slots]
    unknown += [
        group.need.node
        for group in shape.groups
        if group.need.node is not None and group.need.node not in state.pool.slots
    ]
    if unknown and (len(shape.rules.nodelist) - len(unknown) < shape.nodes):
        return Reason(
            "unknown-node",
            f"Waits for {several(unknown)} to join: no such node is known yet; see `mgpu nodes`.",
            never=True,
        )
    capable = [state.pool.capable(shape.rules, group.need) for group in shape.groups]
    if can_serve(shape, capable):
        return None
    wanted = 0
    for group, nodes in zip(
        shape.groups, capable, strict=True
    ):  # pragma: no branch - some group finds too few
        wanted += group.count
        if len(nodes) < (group.count if group.need.node else wanted):
            break
    return _never(state, shape, group.need, wanted, len(nodes))


def can_serve(shape: Shape, capable: Sequence[frozenset[NodeId]]) -> bool:
    """Tell whether every unit could have a node of its own, each among those that are capable of it."""
    wanted = 0
    for nodes, number in sorted(
        ((len(nodes), group.count) for group, nodes in zip(shape.groups, capable, strict=True))
    ):
        wanted += number
        if nodes < wanted:
            break
    else:
        return True  # the group with the fewest choices goes first, and there is always one left
    enough = len(frozenset[NodeId]().union(*capable)) >= shape.nodes
    if not enough or shape.nodes > MAX_SEATED:
        return enough
    unit_of: dict[NodeId, int] = {}
    return all(
        _seat(index, capable, unit_of, set())
        for index, group in enumerate(shape.groups)
        for _ in range(group.count)
    )


def _seat(
    index: int, capable: Sequence[frozenset[NodeId]], unit_of: dict[NodeId, int], seen: set[NodeId]
) -> bool:
    """Find a node for one more unit of a group, if need be by moving the unit that had it."""
    for node_id in sorted(capable[index] - seen):
        seen.add(node_id)
        if node_id not in unit_of or _seat(unit_of[node_id], capable, unit_of, seen):
            unit_of[node_id] = index
            return True
    return False


def _never(state: ClusterState, shape: Shape, need: Need, wanted: int, capable: int) -> Reason:
    slots = list(state.pool.slots.values())
    out = [
        (slot, exclusion)
        for slot in slots
        if (exclusion := never(slot, need, shape.rules, state.pool.homes)) is not None
    ]
    too_small = [slot for slot, exclusion in out if exclusion.code == "size"]
    allowed = capable + len(too_small)
    if allowed < wanted:
        few = f"Needs {count(wanted, 'node')}, but {f'only {allowed}' if allowed else 'none'}"
        others = [(slot, exclusion) for slot, exclusion in out if exclusion.code not in ("size", "named")]
        if not others:
            text = f"{few} may be used: ask for fewer --nodes."
            return Reason("too-few-nodes", text, never=True)
        told = [f"{slot.id}: {exclusion.text.rstrip('.')}" for slot, exclusion in others]
        text = f"{few} would do. {several(told)}."
        return Reason(others[0][1].code, text, never=True)
    wants = what(need)
    if capable:
        text = (
            f"Needs {wants} on each of {wanted} nodes, but only {capable} {'is' if capable == 1 else 'are'} "
            f"that large: ask for less, or add a machine."
        )
    else:
        largest = max(too_small, key=lambda slot: (len(slot.gpus), slot.cpus))
        if need.gpu_ids and largest.mask_of(need.gpu_ids).bit_count() < len(need.gpu_ids):
            return Reason("too-large", _no_such_gpu(need, largest), never=True)
        has = f"{count(len(largest.gpus), 'GPU')} and {count(largest.cpus, 'CPU')}"
        text = (
            f"Needs {wants} on one node, but the largest, {largest.id}, has {has}: ask for less, or use "
            f"--nodes."
        )
    return Reason("too-large", text, never=True)


def _no_such_gpu(need: Need, largest: Slot) -> str:
    missing = [index for index in need.gpu_ids if not largest.mask_of((index,))]
    return (
        f"There is no GPU {missing[0]}: {largest.id} has {count(len(largest.gpus), 'GPU')}, numbered from 0; "
        f"name others, see `mgpu nodes`."
    )


def aside(job: Job, at: float) -> Reason:
    """Return why a job that waits is not in the queue."""
    if job.held:
        return Reason("held", f"It is held: release it with `mgpu release {job.id}`.")
    if job.after:
        told = [f"{one.kind}:{one.job_id}" for one in job.after]
        return Reason("dependency", f"It waits for other jobs: {several(told)}.")
    if job.failed_starts == 0 and job.attempt == 0:
        return Reason("begin", f"It begins in {rounded(job.not_before - at)}, as asked.")
    last = f" after: {job.reason.text}" if job.reason else ""
    return Reason("delayed", f"Tries again in {max(0.0, job.not_before - at):.0f} s{last}")


def _not_now(state: ClusterState, shape: Shape, missing: int) -> Reason:
    need, wanted = shape.groups[0].need, shape.nodes
    capable = [state.pool.slots[node_id] for node_id in sorted(state.pool.capable(shape.rules, need))]
    up = [slot for slot in capable if slot.up]
    if len(up) < wanted:
        away = [f"{slot.id} is {slot.state}" for slot in capable if not slot.up]
        return Reason(
            "nodes-away", f"Waits for {count(wanted - len(up), 'node')} to take work again: {several(away)}."
        )
    own = " of its own" if need.exclusive else ""
    where = f"on each of {wanted} nodes{own} ({missing} missing)" if wanted > 1 else f"on one node{own}"
    return Reason(
        "busy", f"Waits for {what(need)} free {where}: {_free(up, shape, need)}.{_blocked(up, need)}"
    )


def _free(slots: list[Slot], shape: Shape, need: Need) -> str:
    # Only those that are named are worded: there may be thousands.
    first, rules = slots[:NAMED], shape.rules
    is_alone = need.exclusive or any(slot.seats <= 0 for slot in slots)
    if (
        need.gpus
        and not need.gpu_ids
        and not is_alone
        and not any(need.cpus > slot.free_cpus or need.mem_bytes > slot.free_mem for slot in slots)
    ):
        free = [
            (slot.free_mask & slot.eligible(rules.gpu_type, rules.gpu_mem_bytes)).bit_count()
            for slot in first
        ]
        return several(
            [f"{slot.id} has {number}" for slot, number in zip(first, free, strict=True)], len(slots)
        )
    if not need.gpus and not need.mem_bytes and not is_alone:
        return several([f"{slot.id} has {slot.free_cpus}" for slot in first], len(slots))
    lacking = [slot for slot in slots if room(slot, need, rules) < 0]
    told = [
        f"{slot.id}{out.text[2:] if out.text.startswith('It ') else f': {out.text}'}".rstrip(".")
        for slot in lacking[:NAMED]
        if (out := not_now(slot, need, rules)) is not None
    ]
    return several(told, len(lacking))


def _blocked(slots: list[Slot], need: Need) -> str:
    """Name GPUs that nobody holds and that are still not handed out."""
    told = [
        f" GPU {index} of {slot.id}: {text}"
        for slot in slots
        for index, text in slot.blocked.items()
        if need.gpus and not any(hold.mask & slot.mask_of((index,)) for hold in slot.holds.values())
    ]
    return "".join(told[:2])


def what(need: Need) -> str:
    """Return what a unit asks of a node, in words."""
    parts = (
        [f"GPU {', '.join(map(str, need.gpu_ids))}"]
        if need.gpu_ids
        else [count(need.gpus, "GPU")]
        if need.gpus or not need.cpus
        else []
    )
    return " and ".join(parts + ([count(need.cpus, "CPU")] if need.cpus else []))
