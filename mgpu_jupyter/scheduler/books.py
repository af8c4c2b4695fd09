"""Keeps queue, pool, quotas, deadlines and delays in step with the state of each job. Every move of a job
goes through `move`.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

from msgspec.structs import replace

from mgpu_agent.protocol.errors import LocalProtocolError
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.model.job import JobState, request_bytes
from mgpu_jupyter.model.units import gpus_of
from mgpu_jupyter.scheduler import warnings
from mgpu_jupyter.scheduler.model import Job, Node, StopCause
from mgpu_jupyter.scheduler.placement.pool import FOREVER
from mgpu_jupyter.scheduler.placement.shape import Shape, shape_of
from mgpu_jupyter.scheduler.placement.slots import Hold, Slot
from mgpu_jupyter.scheduler.planning import priority
from mgpu_jupyter.scheduler.planning.estimates import Ran
from mgpu_jupyter.scheduler.planning.queue import Entry
from mgpu_jupyter.scheduler.planning.quotas import Claim
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.scheduler.transitions import may_follow

HOLDING = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING})


# --- moves ---------------------------------------------------------------------------------------


def admit(state: ClusterState, job: Job) -> None:
    """Add a job that is new, or was loaded from the store, to the books."""
    state.jobs[job.id] = job
    if job.array is not None:
        state.quotas.throttles[job.array.id] = job.array.throttle
    for dependency in job.after:
        state.dependents.setdefault(dependency.job_id, {})[job.id] = None
    if job.state is JobState.QUEUED:
        _enqueue(state, job)
        return
    _take(state, job)
    _hold(state, job)
    if job.state is JobState.RUNNING:
        _set_deadline(state, job)


def move(state: ClusterState, job: Job, *, state_: JobState, **changes: Any) -> Job:
    """Return the job in its next state, and update the books."""
    if not may_follow(job.state, state_):
        raise LocalProtocolError("bad-transition", f"Job {job.id} cannot go from {job.state} to {state_}.")
    after: Job = replace(job, state=state_, **changes)
    if job.state is JobState.QUEUED:
        _dequeue(state, job)
    if job.state in HOLDING and state_ not in HOLDING:
        _release(state, job)
    if state_.is_final:
        del state.jobs[job.id]
        state.news.append(after)
        return after
    state.jobs[job.id] = after
    if state_ is JobState.QUEUED:
        _enqueue(state, after)
    elif state_ is JobState.STARTING and job.state is JobState.QUEUED:
        _hold(state, after)
    elif state_ is JobState.RUNNING and job.state is not JobState.RUNNING:
        _set_deadline(state, after)
        state.news.append(after)
    elif state_ is JobState.STOPPING and job.state is not JobState.STOPPING:
        kill_at = state.now + grace_s(state, after, after.stop)
        state.pool.expect_end(job.id, kill_at)
        after = state.jobs[job.id] = replace(after, kill_at=kill_at)
    return after


def change(state: ClusterState, job: Job, **changes: Any) -> Job:
    """Return a waiting job with a new priority, limit, hold or anything else that decides its place."""
    return move(state, job, state_=job.state, **changes)


def set_limit(state: ClusterState, job: Job, limit_s: float) -> Job:
    """Return a job with another time limit; if it has resources, its expected end and deadline move."""
    after = change(state, job, new_time_limit_s=limit_s)
    if job.state in HOLDING:
        held = state.pool.held[job.id]
        state.pool.expect_end(job.id, held.begun + limit_s)
        state.wants_pass = True
        if job.state is JobState.RUNNING:
            _set_deadline(state, after)
    return after


def grace_s(state: ClusterState, job: Job, cause: StopCause | None) -> float:
    """Return the time between TERM and KILL when this job is ended for this cause."""
    own = state.site.qos(job.spec.qos).grace_s if cause is StopCause.PREEMPTED else None
    return state.policy.kill_grace_s if own is None else own


# --- nodes ---------------------------------------------------------------------------------------


def recount(state: ClusterState, node: Node) -> None:
    """Count anew who holds what on a node that joined."""
    node.holders, node.cpus_taken = {}, 0
    before = state.pool.slots.get(node.id)
    near = list(state.pool.held if before is None else before.holds)
    was_restricted = state.pool.is_restricted
    state.pool.put(node, state.site.partitions_of(node.id))
    if state.pool.is_restricted != was_restricted:
        reshape(state)
    for job_id in near:
        job = state.jobs[job_id]
        on_node = [placement for placement in job.placements if placement.node_id == node.id]
        for placement in on_node:
            node.holders.update(dict.fromkeys(placement.gpus, job.id))
            node.cpus_taken += placement.cpus
        if on_node:
            state.pool.give(job.id)
            _take(state, job)


def refresh(state: ClusterState, node: Node) -> None:
    """Update placement with a node's new state, lists, load or blocked GPUs."""
    version = state.pool.version
    state.pool.refresh(node)
    if version != state.pool.version:
        reshape(state)


def settle(state: ClusterState, node: Node) -> None:
    """Update a node's state from what is heard, ordered and failed, for people and for placement."""
    node.settle()
    refresh(state, node)


def forget(state: ClusterState, node_id: NodeId) -> None:
    """Drop a node that holds nothing."""
    del state.nodes[node_id]
    state.pool.remove(node_id)
    reshape(state)


def reshape(state: ClusterState) -> None:
    """Compute the shapes of all waiting jobs again: who may use what has changed."""
    for job_id in list(state.queue):
        _leave_lane(state, job_id)
        _line_up(state, state.jobs[job_id])
    state.wants_pass = True


# --- time ----------------------------------------------------------------------------------------


def due_deadlines(state: ClusterState, at: float) -> list[Job]:
    """Return the jobs whose time is up and that are not being stopped yet."""
    due = []
    while state.deadlines and state.deadlines[0][0] <= at:
        _, job_id, epoch = heappop(state.deadlines)
        job = state.jobs.get(job_id)
        if (
            job is not None
            and job.epoch == epoch
            and job.state is JobState.RUNNING
            and deadline(state, job) <= at
        ):
            due.append(job)
    return due


def release_delayed(state: ClusterState, at: float) -> None:
    """Put jobs whose delay is over into the queue."""
    while state.delayed and state.delayed[0][0] <= at:
        _, job_id = heappop(state.delayed)
        job = state.jobs.get(job_id)
        if (
            job is not None
            and job.state is JobState.QUEUED
            and job_id not in state.queue
            and job.may_line_up(at)
        ):
            _line_up(state, job)


def next_due_at(state: ClusterState) -> float | None:
    """Return when `TimePassed` is needed next."""
    heaps = (
        *(state.deadlines, state.warnings, state.delayed, state.probes),
        *(state.leases, state.silences, state.preparations),
    )
    heads = [heap[0][0] for heap in heaps if heap]
    heads += [apart.until for apart in state.pool.apart.values()]
    heads += [promise.at for promise in state.planner.promises if promise.at > state.now]
    return min(heads, default=None)


def time_limit_s(state: ClusterState, job: Job) -> float | None:
    """Return the limit that ends the job: its own, at most its partition's and the cluster's; one set later
    was checked then.
    """
    if job.new_time_limit_s is not None:
        return job.new_time_limit_s
    return state.site.time_limit_s(job.spec, job.time_limit_s)


def expected_s(state: ClusterState, job: Job) -> float:
    """Return how long a job is expected to run, for its place in the order."""
    limit = time_limit_s(state, job) if job.time_limit_s is not None else None
    learnt = _learnt_s(state, job)
    if learnt is None:
        return limit if limit is not None else state.policy.scheduling.default_time_s
    return learnt if limit is None else min(learnt, limit)


def planned_s(state: ClusterState, job: Job) -> float:
    """Return how long a job is planned to hold its resources: its limit, since nothing else binds it."""
    if job.time_limit_s is not None:
        return time_limit_s(state, job) or FOREVER
    learnt = _learnt_s(state, job)
    return state.policy.scheduling.default_time_s if learnt is None else learnt


def _learnt_s(state: ClusterState, job: Job) -> float | None:
    if not state.policy.scheduling.planning.learn:
        return None
    return state.estimates.expect(job.user, job.spec.name, gpus_of(job.spec))


def learn(state: ClusterState, jobs: Iterable[Job]) -> None:
    """Learn from how long jobs ran that ended by themselves."""
    for job in jobs:
        if (
            job.state in (JobState.COMPLETED, JobState.FAILED)
            and job.started_at is not None
            and job.ended_at is not None
        ):
            state.estimates.learn(
                Ran(job.user, job.spec.name, gpus_of(job.spec), max(0.0, job.ended_at - job.started_at))
            )


# --- the queue -----------------------------------------------------------------------------------


def shape(state: ClusterState, job: Job) -> Shape:
    """Return what decides about the placement of a job."""
    spec, site = job.spec, state.site
    restricted = state.pool.is_restricted
    return shape_of(
        spec,
        failed_nodes=job.failed_nodes,
        partition=site.partition_of(spec),
        strategy=site.strategy_of(spec),
        user=job.user if restricted else "",
        account=job.account if restricted else "",
    )


def facts(state: ClusterState, job: Job, gpus: int) -> priority.PriorityFacts:
    """Return the facts about a job that count for its priority."""
    return priority.PriorityFacts(
        submitted_at=job.submitted_at,
        expected_s=expected_s(state, job),
        gpus=gpus,
        priority=job.priority,
        qos_priority=state.site.qos(job.spec.qos).priority,
    )


def _enqueue(state: ClusterState, job: Job) -> None:
    state.quotas.wait(_claim(state, job, request_bytes(job.spec)), 1)
    if job.not_before > state.now:
        heappush(state.delayed, (job.not_before, job.id))
    elif job.may_line_up(state.now):
        _line_up(state, job)
        return
    state.notes.aside.append(job)


def _dequeue(state: ClusterState, job: Job) -> None:
    state.quotas.wait(_claim(state, job, request_bytes(job.spec)), -1)
    if job.id in state.queue:
        _leave_lane(state, job.id)
        if any(promise.job_id == job.id for promise in state.planner.promises):
            state.wants_pass = True


def _leave_lane(state: ClusterState, job_id: JobId) -> None:
    lane = state.queue.remove(job_id).lane
    if not lane.members and lane in state.notes.lanes:
        state.notes.left.append(lane)


def _line_up(state: ClusterState, job: Job) -> None:
    lane = state.queue.lane(shape(state, job))
    entry = Entry(
        job.id,
        job.number,
        lane,
        base=priority.base(state.policy.scheduling.planning.weights, facts(state, job, lane.gpus)),
        duration=planned_s(state, job),
        user=job.user,
        account=job.account,
        qos=job.spec.qos,
        array=job.array.id if job.array else None,
    )
    state.queue.add(entry, lambda user, account: state.shares.bonus(user, account, state.now))
    state.planner.arrived(entry)


# --- resources -----------------------------------------------------------------------------------


def _hold(state: ClusterState, job: Job) -> None:
    """Note who holds what; the pool has it as taken already."""
    for placement in job.placements:
        node = state.nodes.get(placement.node_id)
        if node is not None:
            node.holders.update(dict.fromkeys(placement.gpus, job.id))
            node.cpus_taken += placement.cpus
    _count_hold(state, job, 1)


def _release(state: ClusterState, job: Job) -> None:
    for placement in job.placements:
        node = state.nodes.get(placement.node_id)
        if node is not None:
            for uuid in placement.gpus:
                node.holders.pop(uuid, None)
            node.cpus_taken -= placement.cpus
    _count_hold(state, job, -1)
    state.pool.give(job.id)
    state.wants_pass = True


def _take(state: ClusterState, job: Job) -> None:
    """Take in the pool what a job has on known nodes."""
    holds: list[tuple[Slot, Hold]] = []
    for placement in job.placements:
        slot = state.pool.slots.get(placement.node_id)
        if slot is not None:
            whole = slot.full_mask if job.spec.exclusive else None
            mask = slot.mask_of_uuids(placement.gpus)
            holds.append((slot, Hold(mask, placement.cpus, placement.mem_bytes, whole=whole)))
    begun = job.started_at or state.now
    state.pool.take(job.id, begun, begun + planned_s(state, job), holds)


def _count_hold(state: ClusterState, job: Job, sign: int) -> None:
    claim = _claim(state, job)
    state.quotas.hold(claim, sign)
    state.shares.hold(claim.user, claim.account, sign * claim.gpus, state.now)


def _claim(state: ClusterState, job: Job, size: int = 0) -> Claim:
    # By its placements where it has some: a node that comes back with fewer GPUs must not change the count.
    gpus = sum(len(placement.gpus) for placement in job.placements)
    if not job.placements and (held := state.pool.held.get(job.id)) is not None:
        gpus = held.gpus
    return Claim(job.user, job.account, job.spec.qos, job.array.id if job.array else None, gpus, size)


def deadline(state: ClusterState, job: Job) -> float:
    """Return when a running job's time is over."""
    limit = time_limit_s(state, job)
    return FOREVER if limit is None or job.started_at is None else job.started_at + limit


def _set_deadline(state: ClusterState, job: Job) -> None:
    at = deadline(state, job)
    if at != FOREVER:
        heappush(state.deadlines, (at, job.id, job.epoch))
        warnings.watch(state, job, at)
