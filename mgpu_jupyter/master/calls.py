"""The server's calls to the master: submit, cancel, change, read, write. Each runs inside a turn and is
answered after its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mgpu_agent.protocol.errors import Forbidden, MgpuError
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import Input, Resize
from mgpu_jupyter.api.frames import TypedInput
from mgpu_jupyter.master.intake import Admitted, Item, take_in, targets
from mgpu_jupyter.master.master import Call, Master
from mgpu_jupyter.master.node_link import PassInput
from mgpu_jupyter.master.ports import Store
from mgpu_jupyter.master.turn import Turn
from mgpu_jupyter.scheduler import job_orders
from mgpu_jupyter.scheduler.events import CancelRequested, Event, JobChanged, RequeueRequested
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.scheduler.state import ClusterState

_T = TypeVar("_T")
_E = TypeVar("_E", JobChanged, RequeueRequested)
Answer = Callable[[_T | MgpuError], None]
"""Called with the result after the commit, or with the error."""
Change = Callable[[float, JobId, str], JobChanged]
"""Makes the event of a change: when, which job, by whom."""


def submit(user: str, items: Sequence[Item], answer: Answer[list[Admitted]]) -> Call:
    """Return a call that admits all requests or none."""
    return answering(lambda master, turn: take_in(master, turn, user, items), answer)


def cancel(job_id: JobId, by: str, *, is_admin: bool, answer: Answer[list[Job]]) -> Call:
    """Return a call that cancels a job or array of `by`; an administrator may cancel all."""

    def run(master: Master, turn: Turn) -> list[Job]:
        jobs = _own(master, turn, job_id, by, is_admin=is_admin)
        return [
            _ordered(master, turn, job, CancelRequested(at=master.clock(), job_id=job.id, by=by))
            for job in jobs
        ]

    return answering(run, answer)


def change(job_id: JobId, by: str, wanted: Change, *, is_admin: bool, answer: Answer[list[Job]]) -> Call:
    """Return a call that changes a job or array of `by`, as far as that is still possible."""

    def run(master: Master, turn: Turn) -> list[Job]:
        jobs = _own(master, turn, job_id, by, is_admin=is_admin)
        events = [(job, wanted(master.clock(), job.id, by)) for job in jobs]
        fit = _those_that_may(
            events, lambda job, event: job_orders.check_change(master.state, job, event, is_admin=is_admin)
        )
        return [_ordered(master, turn, job, event) for job, event in fit]

    return answering(run, answer)


def requeue(job_id: JobId, by: str, *, is_admin: bool, answer: Answer[list[Job]]) -> Call:
    """Return a call that ends what runs of a job or array of `by`, and queues it again."""

    def run(master: Master, turn: Turn) -> list[Job]:
        jobs = _own(master, turn, job_id, by, is_admin=is_admin)
        events = [(job, RequeueRequested(at=master.clock(), job_id=job.id, by=by)) for job in jobs]
        fit = _those_that_may(events, lambda job, _: job_orders.check_requeue(job))
        return [_ordered(master, turn, job, event) for job, event in fit]

    return answering(run, answer)


def type_in(job_id: JobId, typed: TypedInput, answer: Answer[bool]) -> Call:
    """Return a call that passes typed input on to the attempt that was meant; an attempt that is over gets
    none.
    """

    def run(master: Master, turn: Turn) -> bool:
        found = _first_process(master, job_id)
        if found is None or found[1].attempt != typed.attempt:
            return False
        node_id, key = found
        message = Input(
            key=key, rank=0, writer=typed.writer, offset=typed.offset, data=typed.data, eof=typed.eof
        )
        turn.sends.append(PassInput(node_id, message))
        return True

    return answering(run, answer)


def resize(job_id: JobId, rows: int, columns: int, answer: Answer[bool]) -> Call:
    """Return a call that tells a job the size of the terminal that shows it."""

    def run(master: Master, turn: Turn) -> bool:
        found = _first_process(master, job_id)
        if found is not None:
            turn.sends.append(PassInput(found[0], Resize(key=found[1], rank=0, rows=rows, columns=columns)))
        return found is not None

    return answering(run, answer)


def _first_process(master: Master, job_id: JobId) -> tuple[NodeId, AttemptKey] | None:
    """Return where rank 0 of a job runs now."""
    job = master.state.jobs.get(job_id)
    if job is None:
        return None
    nodes = (task.node_id for task in job.tasks if task.rank == 0 and task.ended_at is None)
    node_id = next(nodes, None)
    return None if node_id is None else (node_id, job.attempt_key)


def ask(question: Callable[[ClusterState], _T], answer: Answer[_T]) -> Call:
    """Return a call that reads the state as the turn leaves it and changes nothing."""

    def look(state: ClusterState, turn: Turn) -> None:
        result = question(state)
        turn.replies.append(lambda: answer(result))

    def run(_: Master, turn: Turn) -> None:
        turn.questions.append(look)

    return run


def write(change: Callable[[Store], _T], answer: Answer[_T]) -> Call:
    """Return a call that writes to the store, apart from the jobs; it may be refused."""
    return answering(lambda master, _: change(master.store), answer)


def forget(job_ids: Sequence[JobId], answer: Answer[int]) -> Call:
    """Return a call that deletes all records of jobs that are over; the answer is how many."""

    def run(master: Master, _: Turn) -> int:
        master.store.forget_jobs(job_ids)
        master.note_gone(jobs=tuple(job_ids))
        return len(job_ids)

    return answering(run, answer)


def answering(run: Callable[[Master, Turn], _T], answer: Answer[_T]) -> Call:
    """Return a call whose result, or error, is returned after the commit."""

    def call(master: Master, turn: Turn) -> None:
        result: _T | MgpuError
        try:
            result = run(master, turn)
        except MgpuError as error:
            result = error
        turn.replies.append(lambda: answer(result))

    return call


def _own(master: Master, turn: Turn, job_id: JobId, by: str, *, is_admin: bool) -> list[Job]:
    """Return the job, or the jobs of the array, that this user may give orders about."""
    jobs = targets(master, turn, job_id)
    if jobs[0].user != by and not is_admin:
        raise Forbidden(
            "not-yours", f"Job {job_id} belongs to {jobs[0].user}: ask them, or an administrator."
        )
    return jobs


def _those_that_may(events: list[tuple[Job, _E]], may: Callable[[Job, _E], None]) -> list[tuple[Job, _E]]:
    """Return those that pass the check; if none of an array does, raise the error of the first."""
    fit: list[tuple[Job, _E]] = []
    refusals: list[MgpuError] = []
    for job, event in events:
        try:
            may(job, event)
        except MgpuError as error:
            refusals.append(error)
        else:
            fit.append((job, event))
    if not fit:
        raise refusals[0]
    return fit


def _ordered(master: Master, turn: Turn, job: Job, event: Event) -> Job:
    """Let the scheduler handle an order, and return the job afterwards."""
    master.apply(turn, event)
    saved = turn.batch.jobs.get(job.id)
    return saved.job if saved else job
