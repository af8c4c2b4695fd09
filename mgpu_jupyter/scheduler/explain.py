"""What a waiting job is told: its place and its reason. Reads the state, changes nothing."""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.model import ClusterState, Reason

NOT_LOOKED_AT = Reason("new", "It was just submitted and will be looked at in a moment.")


class Waiting(msgspec.Struct, frozen=True):
    """Place in the queue (1 is next) and why it waits."""

    place: int | None
    reason: Reason


def waiting(state: ClusterState, job_id: JobId, at: float) -> Waiting | None:
    """Return why a queued job waits; None for a job that does not wait."""
    job = state.jobs.get(job_id)
    if job is None or job.state is not JobState.QUEUED:
        return None
    if job_id not in state.queue:
        last = f" after: {job.reason.text}" if job.reason else ""
        text = f"Tries again in {max(0.0, job.not_before - at):.0f} s{last}"
        return Waiting(None, Reason("delayed", text))
    reason = state.reasons.get(state.queue.shape_of(job_id), NOT_LOOKED_AT)
    return Waiting(state.queue.place_of(job_id), reason)
