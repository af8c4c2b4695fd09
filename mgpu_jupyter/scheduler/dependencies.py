"""Jobs that wait for other jobs: queued or cancelled when those start or end. Part of the machine; changes
jobs only through the books.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.waits import After, Dependency
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import Command, SaveJob
from mgpu_jupyter.scheduler.model import Job, Reason
from mgpu_jupyter.scheduler.state import ClusterState

_WORDS = {After.OK: "succeed", After.NOT_OK: "fail"}


def is_met(dependency: Dependency, other: Job) -> bool | None:
    """Tell whether another job's state fulfils a dependency; None while that is open."""
    if dependency.kind is After.STARTED:
        return True if other.started_at is not None or other.state.is_final else None
    if not other.state.is_final:
        return None
    if dependency.kind is After.ANY:
        return True
    return (other.state is JobState.COMPLETED) == (dependency.kind is After.OK)


def why_never(dependency: Dependency, other: Job) -> Reason:
    """Return why this dependency can never be fulfilled."""
    text = f"It waited for job {other.id} to {_WORDS[dependency.kind]}, and that one {other.state.past}."
    return Reason("dependency-never", text, never=True)


def settle(state: ClusterState) -> list[Command]:
    """Update all jobs that wait for those that just started or ended; cancel what waits in vain."""
    commands: list[Command] = []
    while state.news:
        other = state.news.pop(0)
        for job_id in list(state.dependents.get(other.id, ())):
            commands += _tell(state, job_id, other)
        if other.state.is_final:
            state.dependents.pop(other.id, None)
    return commands


def _tell(state: ClusterState, job_id: JobId, other: Job) -> list[Command]:
    job = state.jobs.get(job_id)
    if job is None:
        return []
    left = []
    for dependency in job.after:
        met = is_met(dependency, other) if dependency.job_id == other.id else None
        if met is False:
            reason = why_never(dependency, other)
            return [
                SaveJob(
                    books.move(
                        state, job, state_=JobState.CANCELLED, ended_at=state.now, reason=reason, after=()
                    )
                )
            ]
        if met is None:
            left.append(dependency)
    if len(left) == len(job.after):
        return []
    job = books.change(state, job, after=tuple(left))
    # Saved only when nothing is left, since an array of thousands is fulfilled one by one; `still_open`
    # finds out the rest.
    return [] if left else [SaveJob(job)]


def still_open(job: Job, jobs: Mapping[JobId, Job]) -> Job:
    """Return a job from the store without the dependencies that are fulfilled.

    A job that is over fulfilled its dependents, else they would have been cancelled in the same commit.
    """
    left = tuple(
        one
        for one in job.after
        if (other := jobs.get(JobId(one.job_id))) is not None and is_met(one, other) is None
    )
    return job if left == job.after else replace(job, after=left)
