"""What the server may ask of the master: submit, cancel, look, write. Each runs inside a turn and is answered after its commit."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TypeVar

from mgpu_agent.protocol.errors import Conflict, Forbidden, MgpuError, NotFound
from mgpu_agent.protocol.ids import JOB_ID_ALPHABET, JOB_ID_LENGTH, JobId
from mgpu_jupyter.master.master import Call, Master
from mgpu_jupyter.master.ports import Store
from mgpu_jupyter.master.turn import Turn
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.scheduler.admission import Admission
from mgpu_jupyter.scheduler.events import CancelRequested, JobSubmitted
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.scheduler.state import ClusterState

_T = TypeVar("_T")
Answer = Callable[[_T | MgpuError], None]
"""Called with the result after the commit, or with the error."""


def submit(user: str, items: Sequence[tuple[JobSpec, str | None]], answer: Answer[list[Job]]) -> Call:
    """Return a call that admits all jobs or none."""

    def run(master: Master, turn: Turn) -> None:
        try:
            _check_all(master, turn, user, items)
            jobs = [_find(master, turn, user, key) or _admit(master, turn, user, spec, key) for spec, key in items]
        except MgpuError as error:
            refused = error
            turn.replies.append(lambda: answer(refused))
            return
        turn.replies.append(lambda: answer(jobs))

    return run


def cancel(job_id: JobId, by: str, *, is_admin: bool, answer: Answer[Job]) -> Call:
    """Return a call that cancels a job of `by`; an administrator may cancel all."""

    def run(master: Master, turn: Turn) -> None:
        try:
            job = _known_job(master, turn, job_id)
            if job.user != by and not is_admin:
                raise Forbidden("not-yours", f"Job {job_id} belongs to {job.user}: ask them, or an administrator.")
        except MgpuError as error:
            refused = error
            turn.replies.append(lambda: answer(refused))
            return
        master.apply(turn, CancelRequested(at=master.clock(), job_id=job_id, by=by))
        saved = turn.batch.jobs.get(job_id)
        after = saved.job if saved else job
        turn.replies.append(lambda: answer(after))

    return run


def ask(question: Callable[[ClusterState], _T], answer: Answer[_T]) -> Call:
    """Return a call that looks at the state and changes nothing."""

    def run(master: Master, turn: Turn) -> None:
        result = question(master.state)
        turn.replies.append(lambda: answer(result))

    return run


def write(change: Callable[[Store], _T], answer: Answer[_T]) -> Call:
    """Return a call that writes to the store beside the jobs, or is refused."""

    def run(master: Master, turn: Turn) -> None:
        try:
            result = change(master.store)
        except MgpuError as error:
            refused = error
            turn.replies.append(lambda: answer(refused))
            return
        turn.replies.append(lambda: answer(result))

    return run


def _check_all(master: Master, turn: Turn, user: str, items: Sequence[tuple[JobSpec, str | None]]) -> None:
    """Refuse before anything is admitted."""
    by_key: dict[str, JobSpec] = {}
    admission = Admission(master.state)
    for index, (spec, key) in enumerate(items):
        try:
            check(spec)
            known = _find(master, turn, user, key)
            if key is not None and by_key.setdefault(key, known.spec if known else spec) != spec:
                raise Conflict("key-used", f"The idempotency key {key[:50]!r} was used for another request: use a new key.")
            if known is None:
                admission.check(user, spec)
        except MgpuError as error:
            if len(items) == 1:
                raise
            message = f"Job {index + 1} of {len(items)}: {error.message} Nothing was submitted."
            raise type(error)(error.code, message, {**error.details, "index": index}) from error


def _find(master: Master, turn: Turn, user: str, key: str | None) -> Job | None:
    if key is None:
        return None
    return turn.keys.get((user, key)) or master.store.find_by_key(user, key)


def _admit(master: Master, turn: Turn, user: str, spec: JobSpec, key: str | None) -> Job:
    job_id = _new_job_id(master, turn)
    turn.added(job_id)
    master.apply(turn, JobSubmitted(at=master.clock(), job_id=job_id, user=user, spec=spec, key=key))
    job = turn.batch.jobs[job_id].job
    if key is not None:
        turn.keys[user, key] = job
    return job


def _new_job_id(master: Master, turn: Turn) -> JobId:
    while True:
        number = secrets.randbits(64)
        letters = []
        for _ in range(JOB_ID_LENGTH):
            number, letter = divmod(number, len(JOB_ID_ALPHABET))
            letters.append(JOB_ID_ALPHABET[letter])
        job_id = JobId("".join(letters))
        if job_id not in turn.batch.jobs and job_id not in master.state.jobs:
            return job_id


def _known_job(master: Master, turn: Turn, job_id: JobId) -> Job:
    if job_id in turn.batch.jobs:
        return turn.batch.jobs[job_id].job
    job = master.state.jobs.get(job_id)
    if job is None:
        job = master.store.find_job(job_id)
    if job is None:
        raise NotFound("no-such-job", f"There is no job {job_id}: see `mgpu_queue --all`.")
    return job
