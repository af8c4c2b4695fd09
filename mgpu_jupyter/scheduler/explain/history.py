"""The history of answers: what waiting jobs are told is recorded when it changes, so that "why did it wait?" has an answer later.

Theory of operation. Jobs of one shape get one answer, so it is recorded once for all of them, under the shape's digest; what is a
job's own (held, delayed, promised) goes under its id, and what a quota says under those whom it limits. After each pass, lanes
for which the pass came to another result are looked at in full, a few of them; when there are none, the next few in turn, for
changes that the pass does not see. An answer counts as changed when its code or the checks that fail are others, not when the
numbers in its sentence are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec
from msgspec.structs import replace

from mgpu_jupyter.model.explanations import Record, UnitAnswer
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import RecordAnswer
from mgpu_jupyter.scheduler.explain.diagnosis import diagnose
from mgpu_jupyter.scheduler.explain.notes import ClaimKey
from mgpu_jupyter.scheduler.explain.waiting import aside, quota_reason, why
from mgpu_jupyter.scheduler.model import Job, Reason
from mgpu_jupyter.scheduler.placement.pool import FOREVER
from mgpu_jupyter.scheduler.placement.shape import Shape
from mgpu_jupyter.scheduler.planning.queue import ANY_TIME, NOTHING, Lane
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.scheduler.words import several, span

KEPT = 50
"""Answers that are kept of one job."""
LOOKS = 1_000
"""Nodes that are looked at after one pass, at most; a cluster that is larger looks at one lane."""
LOOKS_PER_S = 200.0
"""And so many in each second, so that history costs next to nothing whatever the rate of passes."""
SAME_S = 60.0
"""A promise that moved by less is the same."""
WITHIN_QUOTA = "Its quota lets it start again."


def record_aside(state: ClusterState) -> list[RecordAnswer]:
    """Record why jobs that went aside with this event cannot start by themselves."""
    jobs, state.notes.aside = state.notes.aside, []
    return [_record(job.id, state.now, aside(job, state.now)) for job in jobs]


def record_pass(state: ClusterState, *, whole: bool) -> list[RecordAnswer]:
    """Record what a pass changed in the answers of those who still wait."""
    return [*_promises(state), *_quotas(state, whole=whole), *_lanes(state)]


def keys_of(state: ClusterState, job: Job) -> tuple[str, ...]:
    """Return under which names a job's answers are; its shape may have changed with failed starts, or with who may use what."""
    shape = books.shape(state, job)
    shapes = {
        replace(shape, failed_nodes=failed, rules=replace(shape.rules, user=user, account=account))
        for failed in ((), job.failed_nodes)
        for user, account in (("", ""), (job.user, job.account))
    }
    claim = (job.user, job.account, job.spec.qos, job.array.id if job.array else None, shape.gpus)
    return (job.id, _claim_key(claim), *sorted(map(shape_key, shapes)))


def merged(records: Iterable[Record], since: float, until: float) -> tuple[Record, ...]:
    """Return the last changes of a job's answer, oldest first, from what was recorded under all its names."""
    before: Record | None = None
    changes: list[Record] = []
    for record in sorted(records, key=lambda one: one.at):
        if record.at <= since:
            before = replace(record, at=since)
        elif record.at <= until:
            changes.append(record)
    told = [before, *changes] if before is not None else changes
    kept = [one for index, one in enumerate(told) if index == 0 or signature(one) != signature(told[index - 1])]
    return tuple(kept[-KEPT:])


def signature(record: Record) -> tuple[object, ...]:
    """Return what must differ for an answer to be another one."""
    return (record.code, *_sign(record.units), record.text if not record.units else "")


def shape_key(shape: Shape) -> str:
    """Return the name under which answers for all jobs of a shape are recorded."""
    return f"shape {hashlib.sha256(msgspec.msgpack.encode(shape)).hexdigest()[:24]}"


def _sign(units: tuple[UnitAnswer, ...]) -> tuple[object, ...]:
    return tuple((unit.first, unit.missing, *(out.check for out in unit.excluded)) for unit in units)


def _claim_key(claim: ClaimKey) -> str:
    return f"claim {hashlib.sha256(msgspec.msgpack.encode(claim)).hexdigest()[:24]}"


def _record(key: str, at: float, reason: Reason, units: tuple[UnitAnswer, ...] = ()) -> RecordAnswer:
    return RecordAnswer(key, Record(at=at, code=reason.code, text=reason.text, never=reason.never, units=units))


def _promises(state: ClusterState) -> Iterator[RecordAnswer]:
    before, state.notes.promised = state.notes.promised, {}
    for promise in state.planner.promises:
        last = before.get(promise.job_id)
        if last is not None and abs(last - promise.at) < SAME_S:
            state.notes.promised[promise.job_id] = last
            continue
        state.notes.promised[promise.job_id] = promise.at
        nodes = several([slot.id for slot, _ in promise.units]) or "nodes that are all alike"
        text = f"It is promised to start in {span(promise.at - state.now)} on {nodes}."
        yield _record(promise.job_id, state.now, Reason("promised-start", text))


def _quotas(state: ClusterState, *, whole: bool) -> Iterator[RecordAnswer]:
    refused, state.quotas.refused = state.quotas.refused, {}
    known = state.notes.refused
    for claim in refused:
        if claim not in known:
            known[claim] = None
            # A pass only takes, so what it refused is refused still.
            yield _record(_claim_key(claim), state.now, quota_reason(state, claim) or Reason("quota", ""))
    if whole:
        for claim in [claim for claim in known if claim not in refused]:
            del known[claim]
            yield _record(_claim_key(claim), state.now, Reason("quota-free", WITHIN_QUOTA))


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
    if len(notes.lanes) > 2 * len(lanes):
        live = set(lanes.values())
        notes.lanes = {lane: told for lane, told in notes.lanes.items() if lane in live}


def _lanes_to_look_at(state: ClusterState) -> int:
    notes, nodes = state.notes, len(state.pool.slots) + 1
    notes.looks = min(max(LOOKS, nodes), notes.looks + LOOKS_PER_S * (state.now - notes.looked_at))
    notes.looked_at = state.now
    return int(notes.looks // nodes)


_NEW: tuple[float, object] = (0.0, None)


def _kind(lane: Lane) -> float:
    """Return what the pass found: nothing at all, nothing for those who run too long, or that it did not look."""
    return lane.until if lane.until in (NOTHING, ANY_TIME) else 1.0


def _look(state: ClusterState, lane: Lane) -> Record:
    reason = why(state, lane.shape, FOREVER)
    units = diagnose(state, lane.shape, FOREVER) if state.pool.slots else ()
    return Record(at=state.now, code=reason.code, text=reason.text, never=reason.never, units=units)
