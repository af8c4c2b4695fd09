"""The history of answers: what waiting jobs are told is recorded when it changes, so that "why did it wait?"
has an answer later.

Theory of operation. Jobs of one shape get one answer, so it is recorded once for all of them, under the
shape's digest; what is a job's own (held, delayed, promised) goes under its id, and what a quota says under
those whom it limits. After each pass, lanes for which the pass came to another result are looked at in full,
a few of them; when there are none, the next few in turn, for changes that the pass does not see. An answer
counts as changed when its code or the checks that fail are others, not when the numbers in its sentence are.
When nobody of a shape waits any more, that is recorded too: what was told before then is no answer to a job
that is submitted later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.wording import rounded
from mgpu_jupyter.model.explanations import Record, UnitAnswer
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import RecordAnswer
from mgpu_jupyter.scheduler.explain.diagnosis import diagnose
from mgpu_jupyter.scheduler.explain.waiting import aside, quota_reason, why
from mgpu_jupyter.scheduler.model import Job, Reason
from mgpu_jupyter.scheduler.placement.pool import FOREVER
from mgpu_jupyter.scheduler.placement.shape import Shape
from mgpu_jupyter.scheduler.planning.queue import ANY_TIME, NOTHING, Lane
from mgpu_jupyter.scheduler.state import ClaimKey, ClusterState
from mgpu_jupyter.scheduler.words import several

KEPT = 50
"""Answers that are kept of one job."""
LOOKS = 1_000
"""The most nodes that are examined after one pass; in a larger cluster, those of one lane."""
LOOKS_PER_S = 200.0
"""And so many in each second, so that history costs next to nothing whatever the rate of passes."""
SHORT_S = 1.0
"""A wait that is shorter is the next pass, whatever jobs of its kind were told before."""
SAME_S = 60.0
"""A promise that moved by less counts as unchanged."""
WITHIN_QUOTA = "Its quota lets it start again."
QUOTA_FREE = "quota-free"
NOBODY_WAITS = "nobody-waits"
"""Recorded under a shape when the last job of it left the queue; shown to nobody."""
_OVER = (NOBODY_WAITS, QUOTA_FREE)
"""After these what was told before holds no more."""


def record_aside(state: ClusterState) -> list[RecordAnswer]:
    """Record why jobs that left the queue with this event cannot start by themselves."""
    jobs, state.notes.aside = state.notes.aside, []
    return [_record(job.id, state.now, aside(job, state.now)) for job in jobs]


def record_left(state: ClusterState) -> list[RecordAnswer]:
    """Record which shapes nobody of waits any more, so that later jobs do not take over what was told."""
    lanes, state.notes.left = state.notes.left, []
    for lane in lanes:
        del state.notes.lanes[lane]
    return [_record(shape_key(lane.shape), state.now, Reason(NOBODY_WAITS, "")) for lane in lanes]


def recover(state: ClusterState) -> None:
    """Remember that a master before this one may have told those who wait something."""
    state.notes.lanes = dict.fromkeys(state.queue.lanes.values(), _EARLIER)


def record_pass(state: ClusterState, *, whole: bool) -> list[RecordAnswer]:
    """Record what a pass changed in the answers of those who still wait."""
    return [*_promises(state), *_quotas(state, whole=whole), *_lanes(state)]


def keys_of(state: ClusterState, job: Job) -> tuple[str, ...]:
    """Return the names under which a job's answers are recorded; its shape may have changed by failed starts
    or by settings.
    """
    shape = books.shape(state, job)
    shapes = {
        replace(shape, failed_nodes=failed, rules=replace(shape.rules, user=user, account=account))
        for failed in ((), job.failed_nodes)
        for user, account in (("", ""), (job.user, job.account))
    }
    claim = (job.user, job.account, job.spec.qos, job.array.id if job.array else None, shape.gpus)
    return (job.id, _claim_key(claim), *sorted(map(shape_key, shapes)))


def merged(
    own: Iterable[Record], shared: Sequence[Sequence[Record]], since: float, until: float | None
) -> tuple[Record, ...]:
    """Return what a job was told while it waited, oldest first: from `since`, before `until`, None while it
    waits.

    `own` was recorded under its id, and each of `shared` under another of its names. An answer from before is
    its own only where it still held at `since`: a job that is placed at once is told nothing.
    """
    end = FOREVER if until is None else until
    mine = [record for record in own if since <= record.at <= end]
    changes = [record for records in shared for record in records if since < record.at < end]
    told = sorted((*mine, *changes), key=lambda record: record.at)
    held = [record for records in shared if (record := _held(records, since)) is not None]
    if held and end - since >= SHORT_S and not (told and told[0].at == since):
        told.insert(0, replace(max(held, key=lambda record: record.at), at=since))
    told = [record for record in told if record.code != NOBODY_WAITS]
    kept = [
        one for index, one in enumerate(told) if index == 0 or signature(one) != signature(told[index - 1])
    ]
    return tuple(kept[-KEPT:])


def _held(records: Iterable[Record], at: float) -> Record | None:
    """Return what those of one name were told at that time; None when it was over."""
    told = sorted((record for record in records if record.at <= at), key=lambda record: record.at)
    return told[-1] if told and told[-1].code not in _OVER else None


def waits(job: Job, earlier: Iterable[Job]) -> Iterator[tuple[float, float | None]]:
    """Yield from when until when a job was in the queue, None while it is; `earlier` are its attempts that
    are over.
    """
    since = job.submitted_at
    for one in earlier:
        if one.attempt < job.attempt or job.state is JobState.QUEUED:
            yield since, one.placed_at
            since = one.ended_at or since
    yield since, job.placed_at if job.placements else job.ended_at


def signature(record: Record) -> tuple[object, ...]:
    """Return the part of an answer that must differ for it to be another one."""
    return (record.code, *_sign(record.units), record.text if not record.units else "")


def shape_key(shape: Shape) -> str:
    """Return the name under which answers for all jobs of a shape are recorded."""
    return f"shape {hashlib.sha256(msgspec.msgpack.encode(shape)).hexdigest()[:24]}"


def _sign(units: tuple[UnitAnswer, ...]) -> tuple[object, ...]:
    return tuple((unit.first, unit.missing, *(out.check for out in unit.excluded)) for unit in units)


def _claim_key(claim: ClaimKey) -> str:
    return f"claim {hashlib.sha256(msgspec.msgpack.encode(claim)).hexdigest()[:24]}"


def _record(key: str, at: float, reason: Reason, units: tuple[UnitAnswer, ...] = ()) -> RecordAnswer:
    return RecordAnswer(
        key, Record(at=at, code=reason.code, text=reason.text, never=reason.never, units=units)
    )


def _promises(state: ClusterState) -> Iterator[RecordAnswer]:
    before, state.notes.promised = state.notes.promised, {}
    for promise in state.planner.promises:
        last = before.get(promise.job_id)
        if last is not None and abs(last - promise.at) < SAME_S:
            state.notes.promised[promise.job_id] = last
            continue
        state.notes.promised[promise.job_id] = promise.at
        nodes = several([slot.id for slot, _ in promise.units]) or "nodes that are all alike"
        text = f"It is promised to start in {rounded(promise.at - state.now)} on {nodes}."
        yield _record(promise.job_id, state.now, Reason("promised-start", text))


def _quotas(state: ClusterState, *, whole: bool) -> Iterator[RecordAnswer]:
    refused, state.quotas.refused = state.quotas.refused, {}
    known = state.notes.refused
    for claim in refused:
        if claim not in known:
            known[claim] = None
            # A pass only takes resources, so what it refused is still refused.
            yield _record(_claim_key(claim), state.now, quota_reason(state, claim) or Reason("quota", ""))
    if whole:
        for claim in [claim for claim in known if claim not in refused]:
            del known[claim]
            yield _record(_claim_key(claim), state.now, Reason(QUOTA_FREE, WITHIN_QUOTA))


def _lanes(state: ClusterState) -> Iterator[RecordAnswer]:
    notes, lanes = state.notes, state.queue.lanes
    changed = [lane for lane in lanes.values() if notes.lanes.get(lane, _NEW)[0] != _kind(lane)]
    budget = _lanes_to_look_at(state)
    looked = changed[:budget]
    if not changed and budget and lanes:
        notes.turn = (notes.turn + budget) % len(lanes) if budget < len(lanes) else 0
        looked = list(islice(lanes.values(), notes.turn, notes.turn + budget))
    notes.looks -= len(looked) * len(state.pool.slots)
    for lane in looked:
        record = _look(state, lane)
        sign = signature(record)
        if notes.lanes.get(lane, _NEW)[1] != sign:
            yield RecordAnswer(shape_key(lane.shape), record)
        notes.lanes[lane] = (_kind(lane), sign)


def _lanes_to_look_at(state: ClusterState) -> int:
    notes, nodes = state.notes, len(state.pool.slots) + 1
    notes.looks = min(max(LOOKS, nodes), notes.looks + LOOKS_PER_S * (state.now - notes.looked_at))
    notes.looked_at = state.now
    return int(notes.looks // nodes)


_NEW: tuple[float, object] = (0.0, None)
_EARLIER: tuple[float, object] = (0.0, ())


def _kind(lane: Lane) -> float:
    """Return what the pass found: nothing at all, nothing for those who run too long, or that it did not
    look.
    """
    return lane.until if lane.until in (NOTHING, ANY_TIME) else 1.0


def _look(state: ClusterState, lane: Lane) -> Record:
    reason = why(state, lane.shape, FOREVER)
    units = diagnose(state, lane.shape, FOREVER) if state.pool.slots else ()
    return Record(at=state.now, code=reason.code, text=reason.text, never=reason.never, units=units)
