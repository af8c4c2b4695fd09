"""The trace of a job, built from its record, earlier attempts, marks and the history of answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import TaskStatus
from mgpu_jupyter.api import traces as api
from mgpu_jupyter.master.ports import Mark
from mgpu_jupyter.master.ports import MarkedStep as Noted
from mgpu_jupyter.master.views import command_line
from mgpu_jupyter.model.explanations import Record
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.explain.history import merged
from mgpu_jupyter.scheduler.model import Job, Placement

NEXT_PASS = ("next-pass", "It waited for the next pass over the queue.")
WITH_START = "with the start, since one node needs no other's word"


class TraceSources(msgspec.Struct, frozen=True, kw_only=True):
    """All records about the steps of a job."""

    job: Job
    earlier: Sequence[Job] = ()
    marks: Sequence[Mark] = ()
    own: Sequence[Record] = ()
    """What it was told that is its own."""
    shared: Sequence[Sequence[Record]] = ()
    """What it was told with others, under each name that they share."""


def trace_of(sources: TraceSources, now: float) -> api.Trace:
    """Return the whole trace of a job."""
    job = sources.job
    tries = [one for one in sources.earlier if one.attempt < job.attempt or job.state is JobState.QUEUED]
    attempts: list[api.AttemptTrace] = []
    queued_at = job.submitted_at
    for one in tries:
        attempts.append(_attempt(sources, one, queued_at, now))
        queued_at = one.ended_at or queued_at
    if job.state is JobState.QUEUED or not job.placements:
        attempts.append(_waiting(sources, queued_at, now))
    else:
        attempts.append(_attempt(sources, job, queued_at, now))
    return api.Trace(
        job_id=job.id,
        name=job.spec.name,
        user=job.user,
        command=command_line(job.spec),
        state=job.state,
        submitted_at=job.submitted_at,
        now=now,
        attempts=tuple(attempts),
        left_out=max(0, (tries[0].attempt if tries else attempts[0].attempt) - 1),
        ok=not job.mismatches,
        mismatches=job.mismatches,
    )


def _attempt(sources: TraceSources, job: Job, queued_at: float, now: float) -> api.AttemptTrace:
    """Return the trace of one attempt that was given nodes."""
    marks = {(mark.step, mark.who): mark.at for mark in sources.marks if mark.attempt == job.attempt}
    ranks = tuple(
        _rank(job, placement, rank, marks) for placement in job.placements for rank in placement.ranks
    )
    waits = waits_of(sources, queued_at, job.placed_at, now)
    return api.AttemptTrace(
        attempt=job.attempt,
        epoch=job.epoch,
        queued_at=queued_at,
        planned_at=job.placed_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        reason=job.reason.text if job.reason else "",
        waits=waits,
        steps=_steps(job, ranks, waits, queued_at),
        ranks=ranks,
    )


def _waiting(sources: TraceSources, queued_at: float, now: float) -> api.AttemptTrace:
    """Return the trace of an attempt that has no nodes yet, or of a job that ended without one."""
    job = sources.job
    waits = waits_of(sources, queued_at, job.ended_at, now)
    steps = _first_steps(job, queued_at, waits, job.attempt + 1)
    if job.ended_at is not None:
        steps.append(("ended", job.ended_at, job.reason.text if job.reason else "", None))
    return api.AttemptTrace(
        attempt=job.attempt + 1,
        epoch=0,
        queued_at=queued_at,
        ended_at=job.ended_at,
        reason=(job.reason.text if job.reason else "") or (waits[-1].text if waits else ""),
        waits=waits,
        steps=_timed(steps),
    )


def waits_of(sources: TraceSources, since: float, until: float | None, now: float) -> tuple[api.Wait, ...]:
    """Return why it was in the queue, one entry for each answer that it was told meanwhile."""
    end = now if until is None else until
    records = merged(sources.own, sources.shared, since, until)
    told = [(record.at, record.code, record.text) for record in records]
    if not told or told[0][0] > since:
        told.insert(0, (since, *NEXT_PASS))
    waits = []
    for (at, code, text), after in zip(told, [*(one[0] for one in told[1:]), until], strict=True):
        waits.append(
            api.Wait(
                since=at,
                until=after,
                seconds=max(0.0, (end if after is None else after) - at),
                code=code,
                text=text,
            )
        )
    return tuple(waits)


def _rank(job: Job, placement: Placement, number: int, marks: dict[tuple[str, str], float]) -> api.RankTrace:
    assigned = api.Place(
        node=placement.node_id, host=placement.host, address=placement.address, gpus=placement.gpus
    )
    task = next((task for task in job.tasks if task.rank == number), None)
    gone = next((one for one in job.given_up if number in one.ranks), None)
    rank = api.RankTrace(
        rank=number,
        assigned=assigned,
        gpu_indices=placement.gpu_indices,
        prepared_at=marks.get((Noted.PREPARED, placement.node_id)),
        output_at=marks.get((Noted.OUTPUT, str(number))),
        collected_at=marks.get((Noted.COLLECTED, str(number))),
    )
    if task is not None:
        rank = _with_task(rank, task)
    if gone is None:
        return rank
    return msgspec.structs.replace(rank, ended_at=gone.at, reason=gone.text)


def _with_task(rank: api.RankTrace, task: TaskStatus) -> api.RankTrace:
    return msgspec.structs.replace(
        rank,
        actual=api.Place(
            node=task.node_id, host=task.host, address=task.address, gpus=task.gpus, pid=task.pid
        ),
        cwd=task.cwd,
        python=task.python,
        note=task.note,
        started_at=task.started_at,
        ended_at=task.ended_at,
        exit_code=task.exit_code,
        signal=task.signal,
        reason=task.reason,
    )


_Raw = tuple[api.StepName, float, str, int | None]


def _first_steps(job: Job, queued_at: float, waits: Sequence[api.Wait], attempt: int) -> list[_Raw]:
    steps: list[_Raw] = [("submitted", job.submitted_at, f"by {job.user}", None)] if attempt == 1 else []
    return [*steps, ("queued", queued_at, waits[-1].text if waits else "", None)]


def _steps(
    job: Job, ranks: Sequence[api.RankTrace], waits: Sequence[api.Wait], queued_at: float
) -> tuple[api.Step, ...]:
    several = len(ranks) > 1
    steps = _first_steps(job, queued_at, waits, job.attempt)
    nodes = ", ".join(f"{one.node_id}{_gpus(one.gpu_indices)}" for one in job.placements)
    steps.append(("planned", job.placed_at, f"on {nodes}", None))
    later: list[_Raw] = []
    for rank in ranks:
        number = rank.rank if several else None
        if rank.prepared_at is not None:
            later.append(("prepared", rank.prepared_at, rank.assigned.node, number))
        elif rank.started_at is not None and len(job.placements) == 1:
            later.append(("prepared", rank.started_at, f"{rank.assigned.node}, {WITH_START}", number))
        if rank.actual is not None and rank.started_at is not None:
            later.append(("started", rank.started_at, _where(rank.actual, rank), number))
        if rank.output_at is not None:
            later.append(("output", rank.output_at, "its first output came", number))
        if rank.ended_at is not None:
            later.append(("ended", rank.ended_at, _ending(rank), number))
        if rank.collected_at is not None:
            later.append(("collected", rank.collected_at, "all its output is kept", number))
    if job.ended_at is not None and not any(step == "ended" for step, *_ in later):
        later.append(("ended", job.ended_at, job.reason.text if job.reason else "", None))
    order = list(api.StepName.__args__)  # type: ignore[attr-defined]
    return _timed([*steps, *sorted(later, key=lambda step: (step[1], order.index(step[0]), step[3] or 0))])


def _timed(steps: Sequence[_Raw]) -> tuple[api.Step, ...]:
    """Return steps with the time since the one before, never negative even if a node's clock is behind."""
    timed: list[api.Step] = []
    before = steps[0][1]
    for step, at, text, rank in steps:
        timed.append(api.Step(step=step, at=at, seconds=max(0.0, at - before), text=text, rank=rank))
        before = max(before, at)
    return tuple(timed)


def _where(actual: api.Place, rank: api.RankTrace) -> str:
    gpus = f", {_uuids(actual.gpus)}" if actual.gpus else ""
    python = f", {rank.python}" if rank.python else ""
    return (
        f"node {actual.node}, host {actual.host}, address {actual.address}, pid {actual.pid}{gpus}, in "
        f"{rank.cwd}{python}"
    )


def _ending(rank: api.RankTrace) -> str:
    if rank.signal is None and rank.exit_code is None:
        what = f"lost on {rank.assigned.node}" if rank.actual else f"not started on {rank.assigned.node}"
        return f"{what}: {rank.reason}"
    how = f"signal {rank.signal}" if rank.signal is not None else f"exit code {rank.exit_code}"
    return f"{how} ({rank.reason})" if rank.reason else how


def _gpus(indices: Sequence[int]) -> str:
    return f" (GPU {', '.join(map(str, indices))})" if indices else ""


def _uuids(gpus: Sequence[GpuUuid]) -> str:
    return f"GPU {' '.join(gpus)}"
