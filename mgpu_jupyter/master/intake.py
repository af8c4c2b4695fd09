"""How requests become jobs: all are checked before one is admitted, dependencies are looked up, arrays become
one job per number.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.errors import Conflict, InvalidRequest, MgpuError, NotFound
from mgpu_agent.protocol.ids import JOB_ID_ALPHABET, JOB_ID_LENGTH, JobId
from mgpu_jupyter.master.master import Master
from mgpu_jupyter.master.turn import Turn
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.waits import Array, Dependency, parse_array, parse_dependency
from mgpu_jupyter.scheduler.admission import Admission
from mgpu_jupyter.scheduler.dependencies import is_met
from mgpu_jupyter.scheduler.events import JobSubmitted
from mgpu_jupyter.scheduler.model import ArrayPart, Job

Item = tuple[JobSpec, str | None]
"""A request and its idempotency key."""
Admitted = tuple[Job, ...]
"""The jobs of one request: one, or all of an array."""

MAX_ARRAY_BYTES = 64 * 1024 * 1024
"""Each job of an array keeps its own copy of the request on disk."""
MAX_WAITS = 100_000
"""The most dependencies of all jobs of one submit; each is kept with its job."""


class _Plan(msgspec.Struct):
    """The jobs that a request will make, or has made before."""

    spec: JobSpec
    key: str | None
    known: Admitted = ()
    array: Array | None = None
    after: tuple[Dependency, ...] = ()


def take_in(master: Master, turn: Turn, user: str, items: Sequence[Item]) -> list[Admitted]:
    """Admit all requests or none; a known key returns the same jobs as before."""
    plans = _check_all(master, turn, user, items)
    return [
        plan.known or _known(master, turn, user, plan.key) or _admit(master, turn, user, plan)
        for plan in plans
    ]


def targets(master: Master, turn: Turn, job_id: JobId) -> list[Job]:
    """Return the job of this id, or all jobs of the array of this id."""
    if job_id in turn.batch.jobs:
        return [turn.batch.jobs[job_id].job]
    job = master.state.jobs.get(job_id) or master.store.find_job(job_id)
    if job is not None:
        return [job]
    members = _members(master, turn, job_id)
    if not members:
        raise NotFound("no-such-job", f"There is no job {job_id}: see `mgpu_queue --all`.")
    return members


def _members(master: Master, turn: Turn, array_id: str) -> list[Job]:
    """Return the jobs of an array as they are now, including those of this turn."""
    found = {job.id: master.state.jobs.get(job.id, job) for job in master.store.find_array(array_id)}
    found |= {
        saved.job.id: saved.job
        for saved in turn.batch.jobs.values()
        if saved.job.array and saved.job.array.id == array_id
    }
    return sorted(found.values(), key=lambda job: job.number)


def _check_all(master: Master, turn: Turn, user: str, items: Sequence[Item]) -> list[_Plan]:
    """Check all requests, so that errors are raised before anything is admitted."""
    by_key: dict[str, JobSpec] = {}
    admission = Admission(master.state)
    plans: list[_Plan] = []
    for index, (spec, key) in enumerate(items):
        try:
            check(spec)
            known = _known(master, turn, user, key)
            if key is not None and not _is_same(
                by_key.setdefault(key, known[0].spec if known else spec), spec
            ):
                raise Conflict(
                    "key-used",
                    f"The idempotency key {key[:50]!r} was used for another request: use a new key.",
                )
            plans.append(
                _Plan(spec, key, known) if known else _plan(master, turn, user, _Plan(spec, key), admission)
            )
        except MgpuError as error:
            if len(items) == 1:
                raise
            message = f"Job {index + 1} of {len(items)}: {error.message} Nothing was submitted."
            raise type(error)(error.code, message, {**error.details, "index": index}) from error
    return plans


def _is_same(before: JobSpec, now: JobSpec) -> bool:
    """Tell whether a request is the same as before; its `--env` values may have been dropped since."""
    return before == now or before == replace(
        now, env={name: before.env.get(name, "") and value for name, value in now.env.items()}
    )


def _plan(master: Master, turn: Turn, user: str, plan: _Plan, admission: Admission) -> _Plan:
    plan.array = parse_array(plan.spec.array)
    jobs = len(plan.array.indices) if plan.array else 1
    if jobs > 1 and jobs * len(msgspec.json.encode(plan.spec)) > MAX_ARRAY_BYTES:
        raise InvalidRequest(
            "array-too-large", f"{jobs} copies of so long a request are too much: put the script into a file."
        )
    plan.after = _open_waits(master, turn, plan.spec)
    if len(plan.after) * jobs > MAX_WAITS:
        text = (
            f"{jobs} jobs that each wait for {len(plan.after)} are too much: let one job wait for those, "
            f"and these for that one."
        )
        raise InvalidRequest("too-many-waits", text)
    admission.check(user, plan.spec, jobs)
    return plan


def _open_waits(master: Master, turn: Turn, spec: JobSpec) -> tuple[Dependency, ...]:
    """Return the open dependencies, by job id. Only existing jobs can be named, so there are no cycles."""
    waits: dict[Dependency, None] = {}
    for named in parse_dependency(spec.dependency):
        for other in targets(master, turn, JobId(named.job_id)):
            wait = Dependency(named.kind, other.id)
            met = is_met(wait, other)
            if met is False:
                text = (
                    f"--dependency {named.kind}:{named.job_id} can never hold, since job {other.id} "
                    f"{other.state.past}: leave it out."
                )
                raise Conflict("dependency-never", text)
            if met is None:
                waits[wait] = None
    return tuple(waits)


def _known(master: Master, turn: Turn, user: str, key: str | None) -> Admitted:
    if key is None:
        return ()
    first = turn.keys.get((user, key)) or master.store.find_by_key(user, key)
    if first is None:
        return ()
    return tuple(_members(master, turn, first.array.id)) if first.array else (first,)


def _admit(master: Master, turn: Turn, user: str, plan: _Plan) -> Admitted:
    parts: list[ArrayPart | None] = [None]
    if plan.array is not None:
        indices, array_id = plan.array.indices, _new_id(master, turn)
        parts = [
            ArrayPart(array_id, index, plan.array.throttle, len(indices), indices[0], indices[-1])
            for index in indices
        ]
    # The key belongs to the first of an array; a key may be in the store only once.
    jobs = tuple(
        _admit_one(master, turn, user, plan, part, plan.key if number == 0 else None)
        for number, part in enumerate(parts)
    )
    if plan.key is not None:
        turn.keys[user, plan.key] = jobs[0]
    return jobs


def _admit_one(  # noqa: PLR0917
    master: Master, turn: Turn, user: str, plan: _Plan, part: ArrayPart | None, key: str | None
) -> Job:
    job_id = _new_id(master, turn)
    turn.added(job_id)
    event = JobSubmitted(
        at=master.clock(), job_id=job_id, user=user, spec=plan.spec, key=key, after=plan.after, array=part
    )
    master.apply(turn, event)
    return turn.batch.jobs[job_id].job


def _new_id(master: Master, turn: Turn) -> JobId:
    while True:
        number = secrets.randbits(64)
        letters = []
        for _ in range(JOB_ID_LENGTH):
            number, letter = divmod(number, len(JOB_ID_ALPHABET))
            letters.append(JOB_ID_ALPHABET[letter])
        job_id = JobId("".join(letters))
        if job_id not in turn.batch.jobs and job_id not in master.state.jobs:
            return job_id
