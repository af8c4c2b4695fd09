"""The scheduler's one door: an event changes the state and returns what should happen.

Theory of operation. `handle` is the only function that changes a `ClusterState`. It never sends, saves, sleeps or looks at a
clock. A job moves only through `_move`, which checks the transition table and keeps queue, GPUs and deadlines in step. A report
that does not name the current attempt changes no job. Placement is asked for by a flag (`wants_pass`) and done by `PassDue`, so
that many events cost one pass.
"""

from __future__ import annotations

from typing import assert_never

from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import attempts, books, nodes
from mgpu_jupyter.scheduler.commands import Command, LaunchTask, SaveJob
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    Event,
    GpusChanged,
    JobSubmitted,
    LaunchWasRefused,
    NodeDeclaredLost,
    NodeHeard,
    NodeJoined,
    NodeLeft,
    NodeSilent,
    PassDue,
    StateRecovered,
    TaskReported,
    TimePassed,
)
from mgpu_jupyter.scheduler.launch import launch_spec
from mgpu_jupyter.scheduler.model import ClusterState, Job, Placement, Reason, StopCause
from mgpu_jupyter.scheduler.placement.fit import Placed, place
from mgpu_jupyter.scheduler.placement.scratch import Assigned, Scratch


def handle(state: ClusterState, event: Event) -> list[Command]:  # noqa: PLR0911 - one return per kind of event
    """Take one event in, return the commands that follow from it, in order."""
    match event:
        case JobSubmitted():
            return _on_job_submitted(state, event)
        case TaskReported():
            return attempts.on_task_reported(state, event.at, event.status)
        case LaunchWasRefused():
            return attempts.on_launch_refused(state, event)
        case PassDue():
            return _on_pass_due(state)
        case CancelRequested():
            return _on_cancel_requested(state, event)
        case NodeJoined():
            return nodes.on_joined(state, event)
        case GpusChanged():
            return nodes.on_gpus_changed(state, event)
        case NodeSilent():
            return nodes.on_silent(state, event)
        case NodeLeft():
            return nodes.on_left(state, event)
        case NodeDeclaredLost():
            return nodes.on_declared_lost(state, event)
        case NodeHeard():
            return nodes.on_heard(state, event)
        case TimePassed():
            return _on_time_passed(state, event)
        case StateRecovered():
            return _on_state_recovered(state, event)
        case _:  # pragma: no cover - mypy proves that this cannot be reached
            assert_never(event)


def _on_job_submitted(state: ClusterState, event: JobSubmitted) -> list[Command]:
    state.number += 1
    job = Job(id=event.job_id, number=state.number, user=event.user, spec=event.spec, submitted_at=event.at, key=event.key)
    books.admit(state, job)
    return [SaveJob(job)]


def _on_cancel_requested(state: ClusterState, event: CancelRequested) -> list[Command]:
    job = state.jobs.get(event.job_id)
    if job is None:
        return []
    reason = Reason("cancelled", f"Cancelled by {event.by}.")
    if job.state is JobState.QUEUED:
        return [SaveJob(books.move(state, job, state_=JobState.CANCELLED, ended_at=event.at, reason=reason))]
    if job.stop is StopCause.CANCELLED:
        return []
    return attempts.stop_attempt(state, job, StopCause.CANCELLED, reason)


def _on_time_passed(state: ClusterState, event: TimePassed) -> list[Command]:
    commands: list[Command] = []
    for job in books.due_deadlines(state, event.at):
        limit = books.time_limit_s(state, job.spec)
        commands += attempts.stop_attempt(state, job, StopCause.TIMEOUT, Reason("timeout", f"Stopped at its time limit of {limit:g} s."))
    if books.release_delayed(state, event.at):
        state.wants_pass = True
    return commands


def _on_state_recovered(state: ClusterState, event: StateRecovered) -> list[Command]:
    state.epoch, state.number = event.epoch, event.number
    nodes.recover(state, event)
    for job in sorted(event.jobs, key=lambda job: job.number):
        books.admit(state, job)
    for node in state.nodes.values():
        books.recount(state, node)
    return []


def _on_pass_due(state: ClusterState) -> list[Command]:
    state.wants_pass = False
    state.reasons.clear()
    saves: list[Command] = []
    launches: list[Command] = []
    scratch = Scratch(state.nodes.values())
    walk = state.queue.pass_in_order()
    while (head := walk.next()) is not None:
        job_id, shape = head
        answer = place(books.as_shape(shape), scratch)
        if isinstance(answer, Placed):
            job = _start(state, state.jobs[job_id], answer.assigned)
            saves.append(SaveJob(job))
            launches += [LaunchTask(launch_spec(job, placement, state.policy.kill_grace_s)) for placement in job.placements]
            walk.placed()
        else:
            state.reasons[shape] = answer.reason
            walk.give_up()
    return saves + launches


def _start(state: ClusterState, job: Job, assigned: tuple[Assigned, ...]) -> Job:
    state.epoch += 1
    placements = tuple(
        Placement(
            node_id=one.node_id,
            incarnation=one.incarnation,
            rank=one.unit,
            gpus=tuple(gpu.uuid for gpu in one.gpus),
            gpu_indices=tuple(gpu.index for gpu in one.gpus),
            cpus=one.cpus,
            simulated=any(gpu.simulated for gpu in one.gpus),
        )
        for one in assigned
    )
    return books.move(
        state,
        job,
        state_=JobState.STARTING,
        attempt=job.attempt + 1,
        epoch=state.epoch,
        placements=placements,
        tasks=(),
        refused=(),
        stop=None,
        reason=None,
        started_at=None,
    )
