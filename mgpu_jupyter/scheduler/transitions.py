"""Which state of a job may follow which, as data. The picture in ARCHITECTURE.md is drawn from this table."""

from __future__ import annotations

from mgpu_jupyter.model.job import FINAL_STATES, JobState

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    # A queued job fails when its node-independent part is refused; it is cancelled without ever having run.
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.CANCELLED, JobState.FAILED}),
    # A short process may be over before its start was reported; a lost node sends the job back to the queue.
    JobState.STARTING: frozenset({JobState.RUNNING, JobState.STOPPING, JobState.QUEUED, *FINAL_STATES}),
    JobState.RUNNING: frozenset({JobState.STOPPING, JobState.QUEUED, *FINAL_STATES}),
    JobState.STOPPING: frozenset({JobState.QUEUED, *FINAL_STATES}),
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
    JobState.TIMEOUT: frozenset(),
}


def may_follow(before: JobState, after: JobState) -> bool:
    """Tell whether a job in `before` may become `after`; staying is always allowed while not final."""
    return after in TRANSITIONS[before] or (before is after and before not in FINAL_STATES)
