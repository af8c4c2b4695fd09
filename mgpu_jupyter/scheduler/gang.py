"""The first half of a start on several nodes: all are asked whether they can, and only when all can is it started. Part of the machine.

Until the last node has said yes and that is saved, no `Start` has left, so nothing of the attempt can run: it is given up
without waiting for anybody, and nodes that kept GPUs for it are told to let go. Where the processes must find each other, the
nodes meet in between (`meeting`); two that cannot talk are kept apart for a while.
"""

from __future__ import annotations

from heapq import heappop, heappush

from msgspec.structs import replace

from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.meeting import MeetingPoint
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.tasks import meets
from mgpu_jupyter.scheduler import attempts, books
from mgpu_jupyter.scheduler.commands import Command, LaunchTask, MeetTask, PrepareTask, SaveJob, StartTask, StopTask
from mgpu_jupyter.scheduler.events import LaunchWasPrepared, NodeJoined, NodeMet
from mgpu_jupyter.scheduler.launch import hooks_of, launch_spec
from mgpu_jupyter.scheduler.meeting import Apart, Meeting, cannot_talk, differences
from mgpu_jupyter.scheduler.model import Job, Placement, Reason, StopCause
from mgpu_jupyter.scheduler.state import ClusterState

HOLD_FACTOR = 4.0  # a node holds on this much longer than the master waits, so that it is the master who gives up first
ANSWER_S = 2.0  # for the way of question and answer, beside the time that nodes may try
LET_GO = "This attempt is not the current one."


def begin(state: ClusterState, job: Job) -> list[Command]:
    """Return what a new attempt starts with: one node is told to launch, several are asked first."""
    if not job.is_gang:
        return [LaunchTask(launch_spec(job, job.placements[0], state.policy.kill_grace_s, hooks_of(job.spec, state.policy)))]
    watch(state, job)
    return [prepare(state, job, placement) for placement in job.placements]


def prepare(state: ClusterState, job: Job, placement: Placement) -> PrepareTask:
    """Return the question to one node."""
    spec = launch_spec(job, placement, state.policy.kill_grace_s, hooks_of(job.spec, state.policy))
    return PrepareTask(spec, HOLD_FACTOR * state.policy.prepare_of(job.spec), meets(job.spec))


def begun_anew(job: Job) -> Job:
    """Return a job as a master that just started should see it: what nodes offered for a meeting was not saved."""
    return replace(job, prepared=()) if job.is_preparing and meets(job.spec) else job


def watch(state: ClusterState, job: Job) -> None:
    """Give the nodes of an attempt so long to answer, from now on."""
    if job.is_unprepared:
        heappush(state.preparations, (state.now + state.policy.prepare_of(job.spec), job.id, job.epoch))


def on_prepared(state: ClusterState, event: LaunchWasPrepared) -> list[Command]:
    """Take in that a node can start its part; the last one starts them all."""
    job = _current(state, event.key)
    if job is None:
        return [_let_go(state, event.node_id, event.key)]
    ranks = {placement.rank for placement in job.live_placements if placement.node_id == event.node_id}
    if not job.is_preparing or ranks <= set(job.prepared):
        return []
    job = books.move(state, job, state_=JobState.STARTING, prepared=tuple(sorted({*job.prepared, *ranks})))
    if meets(job.spec):
        return [SaveJob(job), *_take_offer(state, job, event)]
    if job.is_preparing:
        return [SaveJob(job)]
    return [SaveJob(job), *(_start(state, job, placement) for placement in job.placements)]


def _start(state: ClusterState, job: Job, placement: Placement) -> StartTask:
    spec = launch_spec(job, placement, state.policy.kill_grace_s, hooks_of(job.spec, state.policy)) if meets(job.spec) else None
    return StartTask(placement.node_id, job.attempt_key, spec)


# --- the meeting ---------------------------------------------------------------------------------


def _take_offer(state: ClusterState, job: Job, event: LaunchWasPrepared) -> list[Command]:
    """Note where a node waits for the others; when all do, they go to each other."""
    meeting = state.meetings.get(job.id)
    if meeting is None or meeting.epoch != job.epoch:
        meeting = state.meetings[job.id] = Meeting(job.epoch, tuple(placement.node_id for placement in job.placements))
    meeting.offers[event.node_id] = event.offer or MeetingPoint()
    if meeting.is_over:
        return _conclude(state, job, meeting, event.at)
    if not meeting.is_complete:
        return []
    meeting.until = state.now + state.policy.meet_s + ANSWER_S
    heappush(state.preparations, (meeting.until, job.id, job.epoch))
    return [_meet(state, job, meeting, node_id) for node_id in meeting.nodes]


def _meet(state: ClusterState, job: Job, meeting: Meeting, node_id: NodeId) -> MeetTask:
    return MeetTask(node_id, job.attempt_key, meeting.peers_of(node_id), state.policy.meet_s)


def on_met(state: ClusterState, event: NodeMet) -> list[Command]:
    """Take in whom a node reached; the last answer starts all, or sends the job back."""
    job = _current(state, event.met.key)
    if job is None:
        return [_let_go(state, event.node_id, event.met.key)]
    meeting = _meeting_of(state, job)
    if meeting is None or not meeting.is_complete or event.node_id not in meeting.offers:
        return []
    meeting.answers[event.node_id] = event.met
    return _conclude(state, job, meeting, event.at) if meeting.is_over else []


def _meeting_of(state: ClusterState, job: Job) -> Meeting | None:
    meeting = state.meetings.get(job.id)
    return meeting if meeting is not None and meeting.epoch == job.epoch and job.is_preparing else None


def _conclude(state: ClusterState, job: Job, meeting: Meeting, at: float) -> list[Command]:
    pairs = meeting.apart()
    rendezvous = None if pairs else meeting.rendezvous()
    if rendezvous is None:
        return _keep_apart(state, job, pairs or [meeting.hardest()], at)
    del state.meetings[job.id]
    placements = tuple(replace(placement, interface=meeting.interface_of(placement.node_id)) for placement in job.placements)
    job = books.move(
        state,
        job,
        state_=JobState.STARTING,
        placements=placements,
        rendezvous=rendezvous,
        warnings=differences(meeting.fingerprints()),
    )
    return [SaveJob(job), *(_start(state, job, placement) for placement in job.placements)]


def _keep_apart(state: ClusterState, job: Job, pairs: list[Apart], at: float) -> list[Command]:
    """Send a job back to the queue; the nodes that cannot talk get no job together for a while."""
    for pair in pairs:
        state.pool.keep_apart(pair.one, pair.other, at + state.policy.apart_s, cannot_talk([pair]))
    return attempts.stop_attempt(state, job, StopCause.REQUEUE, Reason("cannot-talk", cannot_talk(pairs)), at=at)


def reconcile(state: ClusterState, event: NodeJoined) -> list[Command]:
    """Bring what a node keeps prepared together with what it should start."""
    commands: list[Command] = []
    for key in event.prepared:
        job = _current(state, key)
        if job is None or event.node_id not in {placement.node_id for placement in job.live_placements} or job.state is JobState.STOPPING:
            commands.append(_let_go(state, event.node_id, key))
        elif job.is_preparing:
            commands += _still_prepared(state, job, event)
        else:
            commands += [_start(state, job, placement) for placement in job.placements if placement.node_id == event.node_id]
    return commands


def _still_prepared(state: ClusterState, job: Job, event: NodeJoined) -> list[Command]:
    """Go on with a node that kept its part prepared over a lost connection."""
    if not meets(job.spec):
        return on_prepared(state, LaunchWasPrepared(at=event.at, node_id=event.node_id, key=job.attempt_key))
    meeting = _meeting_of(state, job)
    if meeting is None or event.node_id not in meeting.offers:  # where it waits was not heard, or not saved
        return [prepare(state, job, placement) for placement in job.placements if placement.node_id == event.node_id]
    is_due = meeting.is_complete and event.node_id not in meeting.answers
    return [_meet(state, job, meeting, event.node_id)] if is_due else []


def ask_again(state: ClusterState, job: Job, placement: Placement) -> list[Command]:
    """Ask a node anew that knows nothing of its part; what it said before counts no more."""
    if (meeting := state.meetings.get(job.id)) is not None:
        meeting.drop(placement.node_id)
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
        meeting = _meeting_of(state, job)
        if meeting is not None and meeting.is_complete:
            commands += _give_up_meeting(state, job, meeting, at) if meeting.until <= at else []
            continue
        silent = tuple(dict.fromkeys(placement.node_id for placement in job.placements if placement.rank not in job.prepared))
        text = f"{', '.join(silent)} did not answer within {state.policy.prepare_of(job.spec):g} s whether it can start."
        job = books.move(state, job, state_=JobState.STARTING, failed_nodes=tuple(dict.fromkeys((*job.failed_nodes, *silent))))
        commands += attempts.stop_attempt(state, job, StopCause.REQUEUE, Reason("not-prepared", text), at=at)
    return commands


def _give_up_meeting(state: ClusterState, job: Job, meeting: Meeting, at: float) -> list[Command]:
    """Send back a job of which some node did not say whom it reached; what others found out is not lost."""
    if pairs := meeting.apart():
        return _keep_apart(state, job, pairs, at)
    silent = meeting.silent()
    text = f"{', '.join(silent)} did not answer within {state.policy.meet_s + ANSWER_S:g} s whether it reaches the others."
    job = books.move(state, job, state_=JobState.STARTING, failed_nodes=tuple(dict.fromkeys((*job.failed_nodes, *silent))))
    return attempts.stop_attempt(state, job, StopCause.REQUEUE, Reason("not-met", text), at=at)


def _current(state: ClusterState, key: AttemptKey) -> Job | None:
    """Return the job whose current attempt this is."""
    job = state.jobs.get(key.job_id)
    return job if job is not None and job.attempt_key == key and job.state is not JobState.QUEUED else None


def _let_go(state: ClusterState, node_id: NodeId, key: AttemptKey) -> StopTask:
    return StopTask(node_id, key, state.policy.kill_grace_s, LET_GO)
