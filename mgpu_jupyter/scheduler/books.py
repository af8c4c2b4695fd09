"""Keeps queue, GPUs, deadlines and delays in step with the state of each job. Every move of a job goes through `move`."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Any

from msgspec.structs import replace

from mgpu_agent.protocol.errors import LocalProtocolError
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.scheduler.model import ClusterState, Job, Node
from mgpu_jupyter.scheduler.placement.fit import Shape, shape_of
from mgpu_jupyter.scheduler.transitions import may_follow

HOLDING = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})


def admit(state: ClusterState, job: Job) -> None:
    """Take a job that is new, or came out of the store, into the books."""
    state.jobs[job.id] = job
    if job.state is JobState.QUEUED:
        _enqueue(state, job)
    elif job.state is JobState.RUNNING:
        _set_deadline(state, job)


def move(state: ClusterState, job: Job, *, state_: JobState, **changes: Any) -> Job:
    """Return the job in its next state, with the books brought up to date."""
    if not may_follow(job.state, state_):
        raise LocalProtocolError("bad-transition", f"Job {job.id} cannot go from {job.state} to {state_}.")
    after: Job = replace(job, state=state_, **changes)
    if job.id in state.queue:
        state.queue.remove(job.id)
    if job.state in HOLDING and state_ not in HOLDING:
        _release(state, job)
    if state_.is_final:
        del state.jobs[job.id]
        return after
    state.jobs[job.id] = after
    if state_ is JobState.QUEUED:
        _enqueue(state, after)
    elif state_ is JobState.STARTING and job.state is JobState.QUEUED:
        _hold(state, after)
    elif state_ is JobState.RUNNING and job.state is not JobState.RUNNING:
        _set_deadline(state, after)
    return after


def recount(state: ClusterState, node: Node) -> None:
    """Count anew who holds what on a node that joined."""
    node.holders, node.cpus_taken = {}, 0
    for job in state.jobs.values():
        if job.state in HOLDING:
            for placement in job.placements:
                if placement.node_id == node.id:
                    node.holders.update(dict.fromkeys(placement.gpus, job.id))
                    node.cpus_taken += placement.cpus


def due_deadlines(state: ClusterState, at: float) -> list[Job]:
    """Return the jobs whose time is up and that nobody stops yet."""
    due = []
    while state.deadlines and state.deadlines[0][0] <= at:
        _, job_id, epoch = heappop(state.deadlines)
        job = state.jobs.get(job_id)
        if job is not None and job.epoch == epoch and job.state is JobState.RUNNING:
            due.append(job)
    return due


def release_delayed(state: ClusterState, at: float) -> bool:
    """Put jobs whose delay is over into the queue; tell whether there were any."""
    released = False
    while state.delayed and state.delayed[0][0] <= at:
        _, job_id = heappop(state.delayed)
        job = state.jobs.get(job_id)
        if job is not None and job.state is JobState.QUEUED and job_id not in state.queue:
            _line_up(state, job)
            released = True
    return released


def next_due_at(state: ClusterState) -> float | None:
    """Return when `TimePassed` is needed next."""
    heads = [heap[0][0] for heap in (state.deadlines, state.delayed) if heap]
    return min(heads, default=None)


def time_limit_s(state: ClusterState, spec: JobSpec) -> float | None:
    """Return the limit that ends the job: its own, at most the cluster's."""
    limits = [limit for limit in (spec.time_limit_s, state.policy.max_time_limit_s) if limit is not None]
    return min(limits, default=None)


def as_shape(shape: Hashable) -> Shape:
    """Return what the queue kept as the key of a group."""
    assert isinstance(shape, Shape)
    return shape


def _enqueue(state: ClusterState, job: Job) -> None:
    if job.not_before > 0:
        heappush(state.delayed, (job.not_before, job.id))
    else:
        _line_up(state, job)


def _line_up(state: ClusterState, job: Job) -> None:
    state.queue.add(job.id, (-job.spec.priority, job.number), shape_of(job.spec, job.failed_nodes))
    state.wants_pass = True


def _hold(state: ClusterState, job: Job) -> None:
    for placement in job.placements:
        node = state.nodes[placement.node_id]
        node.holders.update(dict.fromkeys(placement.gpus, job.id))
        node.cpus_taken += placement.cpus


def _release(state: ClusterState, job: Job) -> None:
    for placement in job.placements:
        node = state.nodes.get(placement.node_id)
        if node is not None:
            for uuid in placement.gpus:
                node.holders.pop(uuid, None)
            node.cpus_taken -= placement.cpus
    state.wants_pass = True


def _set_deadline(state: ClusterState, job: Job) -> None:
    limit = time_limit_s(state, job.spec)
    if limit is not None and job.started_at is not None:
        heappush(state.deadlines, (job.started_at + limit, job.id, job.epoch))
