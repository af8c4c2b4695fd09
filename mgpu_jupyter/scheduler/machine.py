"""The scheduler's one entry point: an event changes the state and returns what should happen.

Theory of operation. `handle` is the only function that changes a `ClusterState`. It never sends, saves,
sleeps or looks at a clock. A job moves only through `books.move`, which checks the transition table and keeps
queue, GPUs and deadlines in step. A report that does not name the current attempt changes no job. Placement
is requested by a flag (`wants_pass`) and done by `PassDue`, so that many events cost one pass.
"""

from __future__ import annotations

from typing import assert_never

from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.launchers import tasks_on
from mgpu_jupyter.scheduler import (
    attempts,
    books,
    dependencies,
    gang,
    health,
    job_orders,
    mismatches,
    nodes,
    orders,
    warnings,
)
from mgpu_jupyter.scheduler.commands import Command, Remember, SaveJob
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    Event,
    GpusChanged,
    JobChanged,
    JobSubmitted,
    LaunchWasPrepared,
    LaunchWasRefused,
    NodeChecked,
    NodeDeclaredLost,
    NodeHeard,
    NodeJoined,
    NodeLeft,
    NodeMeasured,
    NodeMet,
    NodeMisnamed,
    NodeOrdered,
    NodeProbed,
    NodeQuiet,
    NodeSilent,
    PassDue,
    RequeueRequested,
    StateRecovered,
    TaskReported,
    TimePassed,
)
from mgpu_jupyter.scheduler.explain import history
from mgpu_jupyter.scheduler.model import Job, Placement, Reason, StopCause
from mgpu_jupyter.scheduler.passing import run_pass
from mgpu_jupyter.scheduler.placement.fit import Found
from mgpu_jupyter.scheduler.planning.queue import Entry
from mgpu_jupyter.scheduler.state import ClusterState

LAST_TURN = "last_turn"


def handle(state: ClusterState, event: Event) -> list[Command]:
    """Handle one event and return the commands that follow from it, in order."""
    state.now = max(state.now, event.at)
    commands = _decide(state, event)
    books.learn(state, state.news)
    settled = commands + dependencies.settle(state)
    return settled + history.record_aside(state) + history.record_left(state) + _remember(state)


def _decide(state: ClusterState, event: Event) -> list[Command]:  # noqa: PLR0911, PLR0912 - one branch per kind of event
    match event:
        case JobSubmitted():
            return _on_job_submitted(state, event)
        case TaskReported():
            return attempts.on_task_reported(state, event.at, event.status)
        case LaunchWasPrepared():
            return gang.on_prepared(state, event)
        case NodeMet():
            return gang.on_met(state, event)
        case LaunchWasRefused():
            return attempts.on_launch_refused(state, event)
        case PassDue():
            return _on_pass_due(state)
        case CancelRequested():
            return job_orders.on_cancel_requested(state, event)
        case JobChanged():
            return job_orders.on_job_changed(state, event)
        case RequeueRequested():
            return job_orders.on_requeue_requested(state, event)
        case NodeJoined():
            return nodes.on_joined(state, event) + warnings.tell_again(state, event.node_id)
        case GpusChanged():
            return nodes.on_gpus_changed(state, event)
        case NodeQuiet():
            return nodes.on_quiet(state, event)
        case NodeSilent():
            return nodes.on_silent(state, event)
        case NodeLeft():
            return nodes.on_left(state, event)
        case NodeDeclaredLost():
            return nodes.on_declared_lost(state, event)
        case NodeHeard():
            return nodes.on_heard(state, event)
        case NodeMisnamed():
            return mismatches.on_misnamed(state, event)
        case NodeMeasured():
            return nodes.on_measured(state, event)
        case NodeOrdered():
            return orders.on_ordered(state, event)
        case NodeChecked():
            return health.on_checked(state, event)
        case NodeProbed():
            return health.on_probed(state, event)
        case TimePassed():
            return _on_time_passed(state, event)
        case StateRecovered():
            return _on_state_recovered(state, event)
        case _:  # pragma: no cover - mypy proves that this cannot be reached
            assert_never(event)


def _remember(state: ClusterState) -> list[Command]:
    return [Remember(name, value) for name, value in state.shares.take_changes().items()]


def _on_job_submitted(state: ClusterState, event: JobSubmitted) -> list[Command]:
    state.number += 1
    job = Job(
        id=event.job_id,
        number=state.number,
        user=event.user,
        spec=event.spec,
        submitted_at=event.at,
        key=event.key,
        account=state.site.account_of(event.user, event.spec),
        held=event.spec.hold,
        not_before=event.spec.begin_at,
        after=event.after,
        array=event.array,
    )
    books.admit(state, job)
    return [SaveJob(job)]


def _on_time_passed(state: ClusterState, event: TimePassed) -> list[Command]:
    commands: list[Command] = []
    for job in books.due_deadlines(state, event.at):
        limit = books.time_limit_s(state, job)
        commands += attempts.stop_attempt(
            state, job, StopCause.TIMEOUT, Reason("timeout", f"Stopped at its time limit of {limit:g} s.")
        )
    commands += warnings.due(state, event.at)
    books.release_delayed(state, event.at)
    # A promise whose time has come was broken by jobs that run longer than expected: plan again.
    if any(promise.at <= event.at for promise in state.planner.promises):
        state.wants_pass = True
    if state.pool.bring_together(event.at):
        state.wants_pass = True
    commands += nodes.give_up_hope(state, event.at)
    commands += nodes.run_out(state, event.at) + gang.give_up_late(state, event.at)
    return commands + health.probe_due(state, event.at)


def _on_state_recovered(state: ClusterState, event: StateRecovered) -> list[Command]:
    state.epoch, state.number = event.epoch, event.number
    state.last_turn = event.memos.get(LAST_TURN, "")
    state.shares.restore(event.memos)
    books.learn(state, event.ended)
    nodes.recover(state, event)
    for node in state.nodes.values():
        books.recount(state, node)
    jobs = {job.id: job for job in event.jobs}
    for job in sorted(event.jobs, key=lambda job: job.number):
        known = dependencies.still_open(gang.begun_anew(job), jobs)
        books.admit(state, attempts.with_short_backoff(state, known, event.at))
        gang.watch(state, state.jobs[job.id])
    for node in state.nodes.values():
        nodes.lose_sight(state, node, event.at)
    history.recover(state)
    return []


def _on_pass_due(state: ClusterState) -> list[Command]:
    saves: list[Command] = []
    launches: list[Command] = []

    def start(entry: Entry, found: Found) -> None:
        job = _start(state, state.jobs[entry.job_id], found)
        saves.append(SaveJob(job))
        launches.extend(gang.begin(state, job))

    last_turn, whole = state.last_turn, state.wants_pass
    run_pass(state, start)
    if state.last_turn != last_turn:
        saves.append(Remember(LAST_TURN, state.last_turn))
    return saves + launches + job_orders.preempt(state) + history.record_pass(state, whole=whole)


def _start(state: ClusterState, job: Job, found: Found) -> Job:
    state.epoch += 1
    placements: list[Placement] = []
    rank = 0
    for slot, hold in found:
        facts = state.nodes[slot.id].facts
        gpus = [gpu for bit, gpu in enumerate(slot.gpus) if hold.mask >> bit & 1]
        placements.append(
            Placement(
                node_id=slot.id,
                incarnation=slot.incarnation,
                rank=rank,
                gpus=tuple(gpu.uuid for gpu in gpus),
                gpu_indices=tuple(gpu.index for gpu in gpus),
                cpus=hold.cpus,
                mem_bytes=hold.mem_bytes,
                simulated=any(gpu.simulated for gpu in gpus),
                tasks=tasks_on(job.spec, len(gpus)),
                host=facts.host,
                address=facts.address,
            )
        )
        rank = placements[-1].ranks.stop
    return books.move(
        state,
        job,
        state_=JobState.STARTING,
        attempt=job.attempt + 1,
        epoch=state.epoch,
        placements=tuple(placements),
        tasks=(),
        refused=(),
        given_up=(),
        prepared=(),
        in_scratch=(),
        rendezvous=None,
        warnings=(),
        lease_s=state.policy.lease_of(job.spec),
        fence_s=state.policy.fence_of(job.spec),
        stop=None,
        reason=None,
        placed_at=state.now,
        started_at=None,
    )
