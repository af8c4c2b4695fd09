"""The whole queue at one moment: the place of each job, why it waits, which are promised a start. Reads the
state once, changes nothing.

Jobs share their reasons: what keeps one from starting keeps all of its lane, so that a reason is computed
once and named by a key. The key stays the same while its words change ("gpu-04 has 3 free"), so that a change
of words costs one line and not one for each job.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.scheduler.explain.waiting import NOT_LOOKED_AT, Known, quota_reason, why
from mgpu_jupyter.scheduler.model import Reason
from mgpu_jupyter.scheduler.state import ClusterState


class QueueSnapshot(NamedTuple):
    """The queue and its reasons."""

    order: list[JobId]
    keys: list[Hashable]
    """For each of them the key of its reason."""
    reasons: dict[Hashable, Reason]
    expected: dict[JobId, float]


def queue_snapshot(state: ClusterState, at: float) -> QueueSnapshot:
    """Return all waiting jobs, in order."""
    fresh = {id(entry) for entry in state.planner.fresh}
    promises = [(promise.at, promise.job_id) for promise in state.planner.promises]
    known: Known = {}
    reasons: dict[Hashable, Reason] = {}
    claims: dict[Hashable, Reason | None] = {}
    lanes: dict[Hashable, Reason | None] = {}
    order: list[JobId] = []
    keys: list[Hashable] = []
    for entry in state.queue.order:
        order.append(entry.job_id)
        if id(entry) in fresh:
            keys.append("new")
            reasons["new"] = NOT_LOOKED_AT
            continue
        claim = (entry.user, entry.account, entry.qos, entry.array, entry.gpus)
        if claim not in claims:
            claims[claim] = quota_reason(state, claim)
        lane: Hashable = entry.lane
        if (quota := claims[claim]) is not None:
            keys.append(claim)
            reasons[claim] = quota
            continue
        if lane not in lanes:
            why(state, entry.lane.shape, at, known)
            lanes[lane] = known[entry.lane.shape]
        if (no_room := lanes[lane]) is not None:
            keys.append(lane)
            reasons[lane] = no_room
            continue
        end = at + entry.duration
        ahead = next((job_id for start, job_id in promises if start < end), "")
        key = ("ahead", ahead)
        keys.append(key)
        if key not in reasons:
            reasons[key] = why(state, entry.lane.shape, end, known)
    waits = set(order)
    return QueueSnapshot(
        order, keys, reasons, {job_id: start for start, job_id in promises if job_id in waits}
    )
