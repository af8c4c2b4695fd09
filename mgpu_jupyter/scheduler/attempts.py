"""The life of one attempt: started, ended, refused, lost, stopped. Part of the machine; changes jobs only
through the books.

An attempt is over when each of its ranks ended, was refused or is known to be lost. Only then may the job end
or start again.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.model import TaskStatus, Trouble
from mgpu_agent.protocol.wording import count
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import books, gang, health, mismatches
from mgpu_jupyter.scheduler.commands import Command, LaunchTask, SaveAttempt, SaveJob, StopTask
from mgpu_jupyter.scheduler.events import LaunchWasRefused, NodeDeclaredLost, NodeJoined
from mgpu_jupyter.scheduler.launch import hooks_of, launch_spec
from mgpu_jupyter.scheduler.model import GivenUp, Job, Node, Placement, Reason, StopCause
from mgpu_jupyter.scheduler.state import ClusterState

EXITED = "exit"
GPU_LOST = "gpu-lost"
FIRST_DONE = "first-done"
_OUTCOMES = {
    None: JobState.COMPLETED,
    StopCause.CANCELLED: JobState.CANCELLED,
    StopCause.TIMEOUT: JobState.TIMEOUT,
    StopCause.RANK_FAILED: JobState.FAILED,
    StopCause.FIRST_DONE: JobState.COMPLETED,
}
_AGAIN = (StopCause.REQUEUE, StopCause.PREEMPTED)
_DECIDED = (StopCause.CANCELLED, StopCause.TIMEOUT, StopCause.FIRST_DONE, *_AGAIN)
"""The outcome of a job that is ended for one of these is not changed by a node that is lost meanwhile."""


def on_task_reported(state: ClusterState, at: float, status: TaskStatus) -> list[Command]:
    """Handle a node's report about one rank."""
    job = state.jobs.get(status.key.job_id)
    if job is None or job.attempt_key != status.key or job.state is JobState.QUEUED:
        return _stop_stale(state, status)
    placement = next(
        (one for one in job.placements if one.node_id == status.node_id and status.rank in one.ranks), None
    )
    if placement is None:
        text = (
            f"Rank {status.rank} of job {job.id} was reported by {status.node_id}, which it was not "
            f"assigned to."
        )
        return [*mismatches.blame(state, job, text), *_stop_stale(state, status)]
    if status.rank not in job.open_ranks or status in job.tasks:
        return []
    job, commands = mismatches.noted(job, mismatches.differences(job, placement, status))
    if not status.lost and all(task.rank != status.rank for task in job.tasks):
        commands += health.count_start(state, status.node_id)
    return commands + _take_in(state, at, _with_task(job, status), status)


def on_launch_refused(state: ClusterState, event: LaunchWasRefused) -> list[Command]:
    """Note that a node will never start its part of an attempt."""
    job = state.jobs.get(event.key.job_id)
    if job is None or job.attempt_key != event.key or job.state is JobState.QUEUED:
        return []
    ranks = job.open_ranks_on(event.node_id)
    if not ranks:
        return []
    commands = _refused(state, event, _without(job, ranks, event.at, event.message))
    return commands + health.count_failed_start(state, event)


def reconcile(state: ClusterState, event: NodeJoined) -> list[Command]:
    """Compare what a node reports in its Hello with what it should run."""
    commands: list[Command] = []
    for status in event.tasks:
        commands += on_task_reported(state, event.at, status)
    commands += gang.reconcile(state, event)
    told = {(status.key, status.rank) for status in event.tasks}
    for job in list(state.jobs.values()):
        for placement in job.live_placements:
            if placement.node_id != event.node_id:
                continue
            # All ranks of a node are one launch, so that it knows all of them or none. Only a ledger whose
            # end was lost in a power cut may know some: in its new incarnation nothing of the others can run.
            is_told = (
                any((job.attempt_key, rank) in told for rank in placement.ranks)
                or job.attempt_key in event.prepared
            )
            if not is_told or placement.incarnation != event.facts.incarnation:
                commands += _not_told(state, event, state.jobs[job.id], placement)
    return commands + _stop_again(state, event, dict.fromkeys(status.key for status in event.tasks))


def end_on_lost_gpus(state: ClusterState, node: Node, at: float) -> list[Command]:
    """End every job that holds a lost GPU of this node: it fails, or is queued again when nothing of it is
    known to run.
    """
    commands: list[Command] = []
    for gpu in node.facts.gpus:
        trouble, holder = node.blocked.get(gpu.uuid), node.holders.get(gpu.uuid)
        if (
            trouble is None
            or trouble.kind != Trouble.LOST
            or holder is None
            or state.jobs[holder].stop is not None
        ):
            continue
        job = state.jobs[holder]
        cause = StopCause.RANK_FAILED if job.tasks else StopCause.REQUEUE
        reason = Reason(GPU_LOST, f"GPU {gpu.index} of {node.id} was lost: {trouble.text}")
        commands += stop_attempt(state, job, cause, reason, at=at)
    return commands


def on_node_declared_lost(state: ClusterState, event: NodeDeclaredLost) -> list[Command]:
    """Give up what runs on a node, as an operator ordered; other ranks of those attempts are ended."""
    text = f"Node {event.node_id} was given up: {event.reason}"
    return [
        command
        for job in list(state.jobs.values())
        for command in give_up_ranks(state, event.at, job, event.node_id, text)
    ]


def give_up_ranks(state: ClusterState, at: float, job: Job, node_id: NodeId, text: str) -> list[Command]:
    """Count as lost what a job may still run on this node; its other ranks are ended."""
    ranks = job.open_ranks_on(node_id)
    return _lost(state, at, _without(job, ranks, at, text), text) if ranks else []


def stop_attempt(
    state: ClusterState, job: Job, cause: StopCause, reason: Reason, at: float | None = None
) -> list[Command]:
    """End all ranks of the current attempt; `cause` decides what the job becomes then."""
    live = job.live_placements
    if job.is_preparing:
        stops = [StopTask(placement.node_id, job.attempt_key, 0.0, reason.text) for placement in live]
        return [*_finish(state, state.now, replace(job, stop=cause, reason=reason)), *stops]
    if not live and at is not None:
        return _finish(state, at, replace(job, stop=cause, reason=reason))
    job = books.move(state, job, state_=JobState.STOPPING, stop=cause, reason=reason)
    grace_s = books.grace_s(state, job, job.stop)
    nodes = dict.fromkeys(placement.node_id for placement in live)
    return [
        SaveJob(job),
        *(StopTask(node_id, job.attempt_key, grace_s, reason.text, cause) for node_id in nodes),
    ]


def _refused(state: ClusterState, event: LaunchWasRefused, job: Job) -> list[Command]:
    if job.stop is not None:
        return _go_on(state, event.at, job)
    reason = Reason(event.code, f"It could not be started on {event.node_id}: {event.message}")
    if event.fault == "request":
        return stop_attempt(
            state, replace(job, exit_code=event.exit_code), StopCause.RANK_FAILED, reason, at=event.at
        )
    if event.fault != "stale":  # a late launch says nothing about the job or the node
        job = replace(
            job, failed_starts=job.failed_starts + 1, failed_nodes=_add(job.failed_nodes, event.node_id)
        )
    if job.failed_starts >= state.policy.scheduling.retries.max_failed_starts:
        text = (
            f"It could not be started {count(job.failed_starts, 'time')}; the last time on {event.node_id}: "
            f"{event.message}"
        )
        return stop_attempt(state, job, StopCause.RANK_FAILED, Reason(event.code, text), at=event.at)
    job = replace(job, not_before=event.at + _backoff_s(state, job, job.failed_starts))
    return stop_attempt(state, job, StopCause.REQUEUE, reason, at=event.at)


def _stop_stale(state: ClusterState, status: TaskStatus) -> list[Command]:
    if status.ended_at is not None:
        return []
    return [
        StopTask(
            status.node_id, status.key, state.policy.kill_grace_s, "This attempt is not the current one."
        )
    ]


def _stop_again(state: ClusterState, event: NodeJoined, told: Iterable[AttemptKey]) -> list[Command]:
    """Repeat the stop of an attempt that a node reports as running: the first one may have been lost with its
    connection.
    """
    jobs = [job for key in told if (job := state.jobs.get(key.job_id)) is not None and job.attempt_key == key]
    return [
        _stop_once_more(state, event.node_id, job, job.reason.text if job.reason else "")
        for job in jobs
        if job.state is JobState.STOPPING
        and any(placement.node_id == event.node_id for placement in job.live_placements)
    ]


def _stop_once_more(state: ClusterState, node_id: NodeId, job: Job, text: str) -> StopTask:
    return StopTask(node_id, job.attempt_key, books.grace_s(state, job, job.stop), text, job.stop or "")


def _not_told(state: ClusterState, event: NodeJoined, job: Job, placement: Placement) -> list[Command]:
    if placement.incarnation != event.facts.incarnation:
        text = f"Node {event.node_id} restarted and lost it."
        ranks = job.open_ranks_on(event.node_id)
        return _lost(state, event.at, _without(job, ranks, event.at, text), text)
    if job.state is JobState.STOPPING:
        return [_stop_once_more(state, event.node_id, job, "Stopped before it was started.")]
    if job.is_preparing:
        return gang.ask_again(state, job, placement)
    # Also when it has reported something: this Hello may be older, and the node does not start again what is
    # in its ledger.
    return [
        LaunchTask(launch_spec(job, placement, state.policy.kill_grace_s, hooks_of(job.spec, state.policy)))
    ]


def _take_in(state: ClusterState, at: float, job: Job, status: TaskStatus) -> list[Command]:
    if status.ended_at is None:
        if job.state is JobState.STARTING and len(job.tasks) == job.world_size:
            return [SaveJob(books.move(state, job, state_=JobState.RUNNING, started_at=_started_at(job, at)))]
        return [SaveJob(books.move(state, job, state_=job.state))]
    if status.lost:
        return _lost(state, at, job, f"Node {status.node_id} lost it: {status.reason}.")
    if _exit_code(status) != 0 and job.stop is None:
        return stop_attempt(state, job, StopCause.RANK_FAILED, _failure(job, status), at=at)
    if job.spec.mpi and status.rank == 0 and job.stop is None and job.live_placements:
        return stop_attempt(
            state, job, StopCause.FIRST_DONE, Reason(FIRST_DONE, "Its first process is over."), at=at
        )
    return _go_on(state, at, job)


def _started_at(job: Job, at: float) -> float | None:
    """Return when its last rank started: by the nodes' clocks where they can be right, between its placing
    and now.
    """
    told = max((task.started_at for task in job.tasks), default=None)
    return None if told is None else min(at, max(told, job.placed_at))


def _lost(state: ClusterState, at: float, job: Job, text: str) -> list[Command]:
    if job.stop in _DECIDED:
        return _go_on(state, at, job)
    cause = StopCause.REQUEUE if job.spec.requeue or job.is_preparing else StopCause.RANK_FAILED
    return stop_attempt(state, job, cause, Reason("node-lost", text), at=at)


def _go_on(state: ClusterState, at: float, job: Job) -> list[Command]:
    if job.live_placements:
        return [SaveJob(books.move(state, job, state_=job.state))]
    return _finish(state, at, job)


def _finish(state: ClusterState, at: float, job: Job) -> list[Command]:
    state.meetings.pop(job.id, None)
    ended = [task for task in job.tasks if task.ended_at is not None]
    started_at = job.started_at or _started_at(job, at)
    ended_at = min(at, max((task.ended_at or at for task in ended), default=at))
    if started_at is not None:
        ended_at = max(started_at, ended_at)
    job = replace(job, ended_at=ended_at, started_at=started_at, exit_code=_job_exit_code(job, ended))
    if job.stop in _AGAIN:
        return _requeue(state, job)
    if job.stop is StopCause.RANK_FAILED:
        job = _blame_first(job, ended)
        if job.reason is not None and job.reason.code == EXITED and job.retried < job.spec.retries:
            job = replace(job, retried=job.retried + 1)
            return _requeue(state, replace(job, not_before=ended_at + _backoff_s(state, job, job.retried)))
    return [SaveJob(books.move(state, job, state_=_OUTCOMES[job.stop]))]


def _requeue(state: ClusterState, job: Job) -> list[Command]:
    record = SaveAttempt(job)
    is_delayed = job.ended_at is not None and job.not_before > job.ended_at
    again = books.move(
        state,
        job,
        state_=JobState.QUEUED,
        placements=(),
        tasks=(),
        refused=(),
        given_up=(),
        prepared=(),
        in_scratch=(),
        rendezvous=None,
        warnings=(),
        stop=None,
        kill_at=None,
        started_at=None,
        ended_at=None,
        exit_code=None,
        not_before=job.not_before if is_delayed else 0.0,
        preempted=job.preempted + (job.stop is StopCause.PREEMPTED),
    )
    return [record, SaveJob(again)]


def _without(job: Job, ranks: tuple[int, ...], at: float, text: str) -> Job:
    """Return a job some of whose ranks will never be told of again."""
    gone = GivenUp(ranks=ranks, at=at, text=text)
    return replace(job, refused=job.refused + ranks, given_up=(*job.given_up, gone))


def _with_task(job: Job, status: TaskStatus) -> Job:
    others = tuple(task for task in job.tasks if task.rank != status.rank)
    return replace(job, tasks=tuple(sorted((*others, status), key=lambda task: task.rank)))


def _exit_code(status: TaskStatus) -> int:
    if status.signal is not None:
        return 128 + status.signal
    return status.exit_code or 0


def first_failed(ended: Iterable[TaskStatus]) -> TaskStatus | None:
    """Return the process that failed first, leaving out those that mgpu ended, unless there is no other."""
    failed = [task for task in ended if _exit_code(task) != 0]
    return min(failed, key=lambda task: (bool(task.reason), task.ended_at or 0.0, task.rank), default=None)


def _blame_first(job: Job, ended: list[TaskStatus]) -> Job:
    """Name the rank that ended first, not the one that was reported first."""
    first = first_failed(ended)
    if first is None or job.reason is None or job.reason.code != EXITED:
        return job
    return replace(job, reason=_failure(job, first))


def _job_exit_code(job: Job, ended: list[TaskStatus]) -> int | None:
    """Return the exit code of the rank that failed first; a refused launch has its own."""
    if job.stop is StopCause.FIRST_DONE:
        return 0
    first = first_failed(ended)
    if first is not None:
        return _exit_code(first)
    if job.exit_code is not None:
        return job.exit_code
    return 0 if job.stop is None else None


def _failure(job: Job, status: TaskStatus) -> Reason:
    how = f"signal {status.signal}" if status.signal is not None else f"exit code {status.exit_code}"
    who = f"Rank {status.rank}" if job.world_size > 1 else "It"
    because = f" ({status.reason})" if status.reason else ""
    return Reason(EXITED, f"{who} ended with {how} on {status.node_id}{because}.")


def with_short_backoff(state: ClusterState, job: Job, at: float) -> Job:
    """Return a job that waits for its next start no longer than the longest back-off: the clock may have
    been set back meanwhile.
    """
    retries = state.policy.scheduling.retries
    latest = max(job.spec.begin_at, at + retries.backoff_cap_s * (1.0 + retries.jitter))
    return job if job.not_before <= latest else replace(job, not_before=latest)


def _backoff_s(state: ClusterState, job: Job, failures: int) -> float:
    retries = state.policy.scheduling.retries
    delay = min(retries.backoff_cap_s, retries.backoff_base_s * 2.0 ** (failures - 1))
    # Spread by epoch, so that jobs refused together do not start together again; needs no random number.
    spread = (job.epoch * 2_654_435_761 % 1_000) / 1_000
    return delay * (1.0 + retries.jitter * (2.0 * spread - 1.0))


def _add(nodes: tuple[NodeId, ...], node_id: NodeId) -> tuple[NodeId, ...]:
    return nodes if node_id in nodes else (*nodes, node_id)
