"""What people order about jobs: cancel, hold, release, another priority or limit, requeue; and jobs that are
preempted.

Part of the machine; changes jobs only through the books. The checks raise errors, and are made before an
order becomes an event.
"""

from __future__ import annotations

from mgpu_agent.protocol.errors import Conflict, Forbidden
from mgpu_agent.protocol.ids import JobId
from mgpu_agent.protocol.wording import rounded
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import attempts, books
from mgpu_jupyter.scheduler.commands import Command, SaveJob
from mgpu_jupyter.scheduler.events import CancelRequested, JobChanged, RequeueRequested
from mgpu_jupyter.scheduler.model import Job, Reason, StopCause
from mgpu_jupyter.scheduler.placement.fit import Finder
from mgpu_jupyter.scheduler.planning import preemption
from mgpu_jupyter.scheduler.planning.preemption import Victim
from mgpu_jupyter.scheduler.planning.promises import keep
from mgpu_jupyter.scheduler.planning.queue import Entry
from mgpu_jupyter.scheduler.state import ClusterState

SETTLE_S = 30.0
"""GPUs of preempted jobs may need this long to become free: nobody else is preempted meanwhile."""


# --- checks --------------------------------------------------------------------------------------


def check_change(state: ClusterState, job: Job, change: JobChanged, *, is_admin: bool) -> None:
    """Refuse a change that comes too late, or that its owner may not make."""
    if job.state.is_final:
        raise Conflict("job-over", f"Job {job.id} {job.state.past}: there is nothing to change any more.")
    if job.state is not JobState.QUEUED and change.priority is not None:
        raise Conflict("job-started", f"Job {job.id} has started: its priority matters no more.")
    if job.state is not JobState.QUEUED and change.held:
        raise Conflict(
            "job-started",
            f"Job {job.id} has started: cancel it, or `mgpu requeue {job.id}` and then hold it.",
        )
    if change.time_limit_s is not None:
        _check_limit(state, job, change.time_limit_s, is_admin=is_admin)


def check_requeue(job: Job) -> None:
    """Refuse to requeue a job that is over, or is being ended for good."""
    if job.state.is_final:
        raise Conflict("job-over", f"Job {job.id} {job.state.past}: submit it again.")
    if job.stop not in (None, StopCause.REQUEUE, StopCause.PREEMPTED):
        raise Conflict("job-ending", f"Job {job.id} is being ended: wait for that, then submit it again.")


def _check_limit(state: ClusterState, job: Job, limit_s: float, *, is_admin: bool) -> None:
    if job.state is JobState.STOPPING:
        raise Conflict("job-ending", f"Job {job.id} is being ended: its time limit matters no more.")
    allowed = state.site.time_limit_s(job.spec, None)
    if allowed is not None and limit_s > allowed and not is_admin:
        raise Forbidden(
            "limit-too-long",
            (
                f"Job {job.id} may run {rounded(allowed)} at most: give a shorter limit, or ask an "
                f"administrator."
            ),
        )


# --- orders --------------------------------------------------------------------------------------


def on_cancel_requested(state: ClusterState, event: CancelRequested) -> list[Command]:
    """End a job for good."""
    job = state.jobs.get(event.job_id)
    if job is None:
        return []
    reason = Reason("cancelled", f"Cancelled by {event.by}.")
    if job.state is JobState.QUEUED:
        return [SaveJob(books.move(state, job, state_=JobState.CANCELLED, ended_at=event.at, reason=reason))]
    if job.stop is StopCause.CANCELLED:
        return []
    return attempts.stop_attempt(state, job, StopCause.CANCELLED, reason)


def on_job_changed(state: ClusterState, event: JobChanged) -> list[Command]:
    """Change the priority or limit of a job, hold or release it, as far as it still matters."""
    before = job = state.jobs.get(event.job_id)
    if job is None:
        return []
    if job.state is JobState.QUEUED:
        if event.priority is not None and event.priority != job.priority:
            job = books.change(state, job, new_priority=event.priority)
        if event.held is not None and event.held != job.held:
            job = books.change(state, job, held=event.held)
    if (
        event.time_limit_s is not None
        and event.time_limit_s != job.time_limit_s
        and job.state is not JobState.STOPPING
    ):
        job = books.set_limit(state, job, event.time_limit_s)
    return [] if job is before else [SaveJob(job)]


def on_requeue_requested(state: ClusterState, event: RequeueRequested) -> list[Command]:
    """End what runs of a job; it then waits in its old place."""
    job = state.jobs.get(event.job_id)
    if job is None or job.state is JobState.QUEUED or job.stop is not None:
        return []
    return attempts.stop_attempt(
        state, job, StopCause.REQUEUE, Reason("requeued", f"Queued again by {event.by}.")
    )


# --- preemption ----------------------------------------------------------------------------------


def preempt(state: ClusterState) -> list[Command]:
    """End preemptible jobs so that the first with a promise can start, when that is allowed and helps."""
    planner = state.planner
    if not state.policy.scheduling.preemption or not planner.promises:
        return []
    promise = planner.promises[0]
    entry = state.queue.entry(promise.job_id)
    if entry is None or planner.ahead.get(promise.job_id, state.now) > state.now:
        return []
    victims = _victims(state, entry)
    grace_s = max(
        (books.grace_s(state, state.jobs[one.job_id], StopCause.PREEMPTED) for one in victims), default=0.0
    )
    if not victims or promise.at <= state.now + grace_s:
        return []
    chosen = _choose(state, entry, victims)
    if not chosen:
        return []
    planner.ahead[promise.job_id] = state.now + grace_s + SETTLE_S
    state.wants_pass = True
    reason = Reason(
        "preempted", f"Ended for job {promise.job_id}, which goes before it; it waits in its old place."
    )
    commands: list[Command] = []
    for job_id in chosen:
        commands += attempts.stop_attempt(state, state.jobs[job_id], StopCause.PREEMPTED, reason)
    return commands


def _victims(state: ClusterState, entry: Entry) -> list[Victim]:
    """Return the jobs that may be ended for this one, with what would be lost."""
    rank = state.site.qos(entry.qos).priority
    victims = []
    for job_id, held in state.pool.held.items():
        job = state.jobs[job_id]
        qos = state.site.qos(job.spec.qos)
        if (
            qos.preemptible
            and qos.priority < rank
            and job.spec.requeue
            and job.state is not JobState.STOPPING
        ):
            ran_s = max(0.0, state.now - held.begun)
            victims.append(Victim(job_id, sum(hold.gpus for _, hold in held.holds) * ran_s, ran_s))
    return victims


def _choose(state: ClusterState, entry: Entry, victims: list[Victim]) -> list[JobId]:
    """Try it on the pool, without promises, which the first in the queue need not keep."""
    pool, planner = state.pool, state.planner
    pool.clear_promises()
    ending = [job_id for job_id in pool.held if state.jobs[job_id].state is JobState.STOPPING]
    finder = Finder(pool, state.site.own, state.last_turn)
    chosen = preemption.choose(pool, finder, entry.lane.shape, victims=victims, ending=ending)
    kept = [
        (promise, one.lane.shape.rules)
        for promise in planner.promises
        if (one := state.queue.entry(promise.job_id)) is not None
    ]
    for promise, rules in kept:
        keep(pool, promise, rules, state.now)
    return chosen
