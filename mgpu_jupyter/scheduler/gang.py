"""The first half of a start on several nodes: all are asked whether they can, and only when all can is it started. Part of the machine.

Until the last node has said yes and that is saved, no `Start` has left, so nothing of the attempt can run: it is given up
without waiting for anybody, and nodes that kept GPUs for it are told to let go.
"""

from __future__ import annotations

from heapq import heappop, heappush

from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import attempts, books
from mgpu_jupyter.scheduler.commands import Command, LaunchTask, PrepareTask, SaveJob, StartTask, StopTask
from mgpu_jupyter.scheduler.events import LaunchWasPrepared, NodeJoined
from mgpu_jupyter.scheduler.launch import launch_spec
from mgpu_jupyter.scheduler.model import Job, Placement, Reason, StopCause
from mgpu_jupyter.scheduler.state import ClusterState

HOLD_FACTOR = 4.0  # a node holds on this much longer than the master waits, so that it is the master who gives up first
LET_GO = "This attempt is not the current one."


def begin(state: ClusterState, job: Job) -> list[Command]:
    """Return what a new attempt starts with: one node is told to launch, several are asked first."""
    if len(job.placements) == 1:
        return [LaunchTask(launch_spec(job, job.placements[0], state.policy.kill_grace_s))]
    watch(state, job)
    return [prepare(state, job, placement) for placement in job.placements]


def prepare(state: ClusterState, job: Job, placement: Placement) -> PrepareTask:
    """Return the question to one node."""
    spec = launch_spec(job, placement, state.policy.kill_grace_s)
    return PrepareTask(spec, HOLD_FACTOR * state.policy.prepare_s)


def watch(state: ClusterState, job: Job) -> None:
    """Give the nodes of an attempt so long to answer, from now on."""
    if job.is_unprepared:
        heappush(state.preparations, (state.now + state.policy.prepare_s, job.id, job.epoch))


def on_prepared(state: ClusterState, event: LaunchWasPrepared) -> list[Command]:
    """Take in that a node can start its part; the last one starts them all."""
    job = _current(state, event.key)
    if job is None:
        return [_let_go(state, event.node_id, event.key)]
    ranks = {placement.rank for placement in job.live_placements if placement.node_id == event.node_id}
    if not job.is_preparing or ranks <= set(job.prepared):
        return []
    job = books.move(state, job, state_=JobState.STARTING, prepared=tuple(sorted({*job.prepared, *ranks})))
    if job.is_preparing:
        return [SaveJob(job)]
    return [SaveJob(job), *(StartTask(placement.node_id, job.attempt_key) for placement in job.placements)]


def reconcile(state: ClusterState, event: NodeJoined) -> list[Command]:
    """Bring what a node keeps prepared together with what it should start."""
    commands: list[Command] = []
    for key in event.prepared:
        job = _current(state, key)
        if job is None or event.node_id not in {placement.node_id for placement in job.live_placements} or job.state is JobState.STOPPING:
            commands.append(_let_go(state, event.node_id, key))
        elif job.is_preparing:
            commands += on_prepared(state, LaunchWasPrepared(at=event.at, node_id=event.node_id, key=key))
        else:
            commands.append(StartTask(event.node_id, key))
    return commands


def ask_again(state: ClusterState, job: Job, placement: Placement) -> list[Command]:
    """Ask a node anew that knows nothing of its part; what it said before counts no more."""
    others = tuple(rank for rank in job.prepared if rank != placement.rank)
    if others == job.prepared:
        return [prepare(state, job, placement)]
    job = books.move(state, job, state_=JobState.STARTING, prepared=others)
    return [SaveJob(job), prepare(state, job, placement)]


def give_up_late(state: ClusterState, at: float) -> list[Command]:
    """Send back to the queue what some node did not answer for in time."""
    commands: list[Command] = []
    while state.preparations and state.preparations[0][0] <= at:
        _, job_id, epoch = heappop(state.preparations)
        job = state.jobs.get(job_id)
        if job is None or job.epoch != epoch or not job.is_unprepared:
            continue
        silent = tuple(dict.fromkeys(placement.node_id for placement in job.placements if placement.rank not in job.prepared))
        text = f"{', '.join(silent)} did not answer within {state.policy.prepare_s:g} s whether it can start."
        job = books.move(state, job, state_=JobState.STARTING, failed_nodes=tuple(dict.fromkeys((*job.failed_nodes, *silent))))
        commands += attempts.stop_attempt(state, job, StopCause.REQUEUE, Reason("not-prepared", text), at=at)
    return commands


def _current(state: ClusterState, key: AttemptKey) -> Job | None:
    """Return the job whose current attempt this is."""
    job = state.jobs.get(key.job_id)
    return job if job is not None and job.attempt_key == key and job.state is not JobState.QUEUED else None


def _let_go(state: ClusterState, node_id: NodeId, key: AttemptKey) -> StopTask:
    return StopTask(node_id, key, state.policy.kill_grace_s, LET_GO)
