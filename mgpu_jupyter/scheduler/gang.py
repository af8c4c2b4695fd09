"""The first half of a start on several nodes: all are asked whether they can, and only when all can is it
started. Part of the machine.

Until the last node has agreed and that is saved, no `Start` has been sent, so nothing of the attempt can run:
it can be given up without waiting for anybody, and nodes that reserved GPUs are told to release them. Where
the processes must find each other, the nodes meet in between (`meeting`); two that cannot reach each other
get no job together for a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from msgspec.structs import replace

from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.meeting import MeetingPoint
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.launchers import meets
from mgpu_jupyter.scheduler import attempts, books
from mgpu_jupyter.scheduler.commands import (
    Command,
    LaunchTask,
    MeetTask,
    PrepareTask,
    SaveJob,
    StartTask,
    StopTask,
)
from mgpu_jupyter.scheduler.events import LaunchWasPrepared, LaunchWasRefused, NodeJoined, NodeMet
from mgpu_jupyter.scheduler.launch import hooks_of, launch_spec
from mgpu_jupyter.scheduler.meeting import CannotTalk, Meeting, cannot_talk, differences
from mgpu_jupyter.scheduler.model import Job, Placement, Reason, StopCause
from mgpu_jupyter.scheduler.state import ClusterState

HOLD_FACTOR = (
    4.0  # a node holds its preparation this much longer than the master waits: the master gives up first
)
ANSWER_S = 2.0  # for the question and the answer to travel, beside the time that nodes may try
LET_GO = "This attempt is not the current one."


def begin(state: ClusterState, job: Job) -> list[Command]:
    """Return the commands that begin an attempt: one node is told to launch, several are asked first."""
    if not job.is_gang:
        return [
            LaunchTask(
                launch_spec(
                    job, job.placements[0], state.policy.kill_grace_s, hooks_of(job.spec, state.policy)
                )
            )
        ]
    watch(state, job)
    return [prepare(state, job, placement) for placement in job.placements]


def prepare(state: ClusterState, job: Job, placement: Placement) -> PrepareTask:
    """Return the question to one node."""
    spec = launch_spec(job, placement, state.policy.kill_grace_s, hooks_of(job.spec, state.policy))
    return PrepareTask(spec, HOLD_FACTOR * state.policy.prepare_of(job.spec), meets(job.spec))


def begun_anew(job: Job) -> Job:
    """Return a job as a master that just started should see it: the answers of nodes for a meeting were not
    saved.
    """
    return replace(job, prepared=(), in_scratch=()) if job.is_preparing and meets(job.spec) else job


def watch(state: ClusterState, job: Job) -> None:
    """Set the deadline by which the nodes of an attempt must answer."""
    if job.is_unprepared:
        heappush(state.preparations, (state.now + state.policy.prepare_of(job.spec), job.id, job.epoch))


def on_prepared(state: ClusterState, event: LaunchWasPrepared) -> list[Command]:
    """Note that a node can start its part; the last one starts them all."""
    job = _current(state, event.key)
    if job is None:
        return [_let_go(state, event.node_id, event.key)]
    ranks = {placement.rank for placement in job.live_placements if placement.node_id == event.node_id}
    if not job.is_preparing or ranks <= set(job.prepared):
        return []
    prepared = tuple(sorted({*job.prepared, *ranks}))
    in_scratch = tuple(sorted({*job.in_scratch, *(ranks if event.in_scratch else ())}))
    if len(prepared) == len(job.placements) > len(in_scratch) > 0:
        return _not_in_one_directory(state, job, in_scratch, event.at)
    job = books.move(state, job, state_=JobState.STARTING, prepared=prepared, in_scratch=in_scratch)
    if meets(job.spec):
        return [SaveJob(job), *_take_offer(state, job, event)]
    if job.is_preparing:
        return [SaveJob(job)]
    return [SaveJob(job), *(_start(state, job, placement) for placement in job.placements)]


def _not_in_one_directory(
    state: ClusterState, job: Job, in_scratch: tuple[int, ...], at: float
) -> list[Command]:
    """Send back a job whose directory only some of its nodes have: its ranks would find other files."""
    lacking = [placement.node_id for placement in job.placements if placement.rank in in_scratch]
    having = [placement.node_id for placement in job.placements if placement.rank not in in_scratch]
    text = (
        f"{job.spec.cwd} cannot be entered there, and can on {having[0]}: make it on every node, bring it "
        f"with --sync, or name another directory with --chdir."
    )
    job = books.move(state, job, state_=JobState.STARTING, failed_nodes=_with(job.failed_nodes, lacking))
    refused = LaunchWasRefused(
        at=at, node_id=lacking[0], key=job.attempt_key, code="no-directory", message=text, fault="node"
    )
    lets_go = [_let_go(state, lacking[0], job.attempt_key)]
    return [*attempts.on_launch_refused(state, refused), *lets_go]


def _start(state: ClusterState, job: Job, placement: Placement) -> StartTask:
    spec = (
        launch_spec(job, placement, state.policy.kill_grace_s, hooks_of(job.spec, state.policy))
        if meets(job.spec)
        else None
    )
    return StartTask(placement.node_id, job.attempt_key, spec)


# --- the meeting ---------------------------------------------------------------------------------


def _take_offer(state: ClusterState, job: Job, event: LaunchWasPrepared) -> list[Command]:
    """Note where a node waits for the others; when all do, they visit each other."""
    meeting = state.meetings.get(job.id)
    if meeting is None or meeting.epoch != job.epoch:
        meeting = state.meetings[job.id] = Meeting(
            job.epoch, tuple(placement.node_id for placement in job.placements)
        )
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
    """Note whom a node reached; the last answer starts all, or sends the job back."""
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
    placements = tuple(
        replace(placement, interface=meeting.interface_of(placement.node_id)) for placement in job.placements
    )
    job = books.move(
        state,
        job,
        state_=JobState.STARTING,
        placements=placements,
        rendezvous=rendezvous,
        warnings=differences(meeting.fingerprints()),
    )
    return [SaveJob(job), *(_start(state, job, placement) for placement in job.placements)]


def _keep_apart(state: ClusterState, job: Job, pairs: list[CannotTalk], at: float) -> list[Command]:
    """Send a job back to the queue; the nodes that cannot talk get no job together for a while."""
    for pair in pairs:
        state.pool.keep_apart(pair.one, pair.other, at + state.policy.apart_s, cannot_talk([pair]))
    return attempts.stop_attempt(
        state, job, StopCause.REQUEUE, Reason("cannot-talk", cannot_talk(pairs)), at=at
    )


def reconcile(state: ClusterState, event: NodeJoined) -> list[Command]:
    """Compare what a node has prepared with what it should start."""
    commands: list[Command] = []
    for key in event.prepared:
        job = _current(state, key)
        if (
            job is None
            or event.node_id not in {placement.node_id for placement in job.live_placements}
            or job.state is JobState.STOPPING
        ):
            commands.append(_let_go(state, event.node_id, key))
        elif job.is_preparing:
            commands += _still_prepared(state, job, event)
        else:
            commands += [
                _start(state, job, placement)
                for placement in job.placements
                if placement.node_id == event.node_id
            ]
    return commands


def _still_prepared(state: ClusterState, job: Job, event: NodeJoined) -> list[Command]:
    """Go on with a node that kept its part prepared over a lost connection."""
    own = [placement for placement in job.placements if placement.node_id == event.node_id]
    if not meets(job.spec):  # whether it can enter the directory of the job was not heard, or not saved
        return [prepare(state, job, one) for one in own if one.rank not in job.prepared]
    meeting = _meeting_of(state, job)
    if meeting is None or event.node_id not in meeting.offers:  # where it waits was not heard, or not saved
        return [prepare(state, job, one) for one in own]
    is_due = meeting.is_complete and event.node_id not in meeting.answers
    return [_meet(state, job, meeting, event.node_id)] if is_due else []


def ask_again(state: ClusterState, job: Job, placement: Placement) -> list[Command]:
    """Ask a node again that does not know its part; its earlier answer no longer counts."""
    if (meeting := state.meetings.get(job.id)) is not None:
        meeting.drop(placement.node_id)
    others = tuple(rank for rank in job.prepared if rank != placement.rank)
    if others == job.prepared:
        return [prepare(state, job, placement)]
    in_scratch = tuple(rank for rank in job.in_scratch if rank != placement.rank)
    job = books.move(state, job, state_=JobState.STARTING, prepared=others, in_scratch=in_scratch)
    return [SaveJob(job), prepare(state, job, placement)]


def give_up_late(state: ClusterState, at: float) -> list[Command]:
    """Send back to the queue the jobs for which some node did not answer in time."""
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
        silent = tuple(
            dict.fromkeys(
                placement.node_id for placement in job.placements if placement.rank not in job.prepared
            )
        )
        text = (
            f"{', '.join(silent)} did not answer within {state.policy.prepare_of(job.spec):g} s whether "
            f"it can start."
        )
        job = books.move(
            state,
            job,
            state_=JobState.STARTING,
            failed_nodes=_with(job.failed_nodes, silent),
        )
        commands += attempts.stop_attempt(state, job, StopCause.REQUEUE, Reason("not-prepared", text), at=at)
    return commands


def _give_up_meeting(state: ClusterState, job: Job, meeting: Meeting, at: float) -> list[Command]:
    """Send back a job whose meeting some node did not report on; what others found out is kept."""
    if pairs := meeting.apart():
        return _keep_apart(state, job, pairs, at)
    silent = meeting.silent()
    text = (
        f"{', '.join(silent)} did not answer within {state.policy.meet_s + ANSWER_S:g} s whether it "
        f"reaches the others."
    )
    job = books.move(state, job, state_=JobState.STARTING, failed_nodes=_with(job.failed_nodes, silent))
    return attempts.stop_attempt(state, job, StopCause.REQUEUE, Reason("not-met", text), at=at)


def _with(nodes: tuple[NodeId, ...], more: Iterable[NodeId]) -> tuple[NodeId, ...]:
    return tuple(dict.fromkeys((*nodes, *more)))


def _current(state: ClusterState, key: AttemptKey) -> Job | None:
    """Return the job whose current attempt this is."""
    job = state.jobs.get(key.job_id)
    return job if job is not None and job.attempt_key == key and job.state is not JobState.QUEUED else None


def _let_go(state: ClusterState, node_id: NodeId, key: AttemptKey) -> StopTask:
    return StopTask(node_id, key, state.policy.kill_grace_s, LET_GO)
