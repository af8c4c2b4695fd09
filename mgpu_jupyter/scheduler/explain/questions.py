"""Builds the full answer, for a job and for a request that is not submitted. Works on a snapshot; may take
its time.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.wording import rounded
from mgpu_jupyter.model.explanations import Explanation, Forecast, NodeOutlook, Where
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.model.waits import parse_array, parse_dependency
from mgpu_jupyter.scheduler import books, dependencies
from mgpu_jupyter.scheduler.explain.diagnosis import ahead_of, diagnose, terms_of, where
from mgpu_jupyter.scheduler.explain.offers import TRIAL, AskedOffer, offers_for, submit_trial, trial_job
from mgpu_jupyter.scheduler.explain.outlook import Outlook, forecast, to_come
from mgpu_jupyter.scheduler.explain.snapshot import StateSnapshot, try_pass
from mgpu_jupyter.scheduler.explain.waiting import waiting
from mgpu_jupyter.scheduler.model import ArrayPart, Job, Reason
from mgpu_jupyter.scheduler.placement.fit import Found
from mgpu_jupyter.scheduler.planning.quotas import keys_of
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.scheduler.words import several

NODE_LOOKS = 200_000
"""A node's page asks again and again, so it looks less far ahead than the answer to "why?"."""


def explain_job(snapshot: StateSnapshot, job: Job) -> Explanation:
    """Return why a job waits and what would start it now; for one that does not wait, what became of it."""
    if job.state is not JobState.QUEUED:
        return _of_past(job, _away(snapshot, job))
    state = snapshot.state()
    if state.pass_is_due and (found := try_pass(state).get(job.id)) is not None:
        return _of_start(state, job, found, "It starts now")
    told = waiting(state, job.id, state.now)
    assert told is not None, "a queued job is in the books"
    asked = AskedOffer(
        user=job.user, spec=_as_it_is(job), after=job.after, array=job.array, instead_of=job.id
    )
    return _of_wait(snapshot, state, job, told.reason, asked)


def explain_request(snapshot: StateSnapshot, user: str, spec: JobSpec) -> Explanation:
    """Return the same for a valid request that is not submitted."""
    state = snapshot.state()
    asked = _asked(state, user, spec)
    try:
        submit_trial(state, asked)
    except MgpuError as error:
        job = trial_job(state, asked)
        # Too many waiting jobs: the one refusal that goes away by itself.
        one_more = Counter(keys_of(user, job.account, spec.qos))
        is_never = not state.quotas.why_not_queued(user, job.account, spec.qos, one_more)
        return _of_wait(snapshot, state, job, Reason(error.code, error.message, never=is_never), asked)
    job = state.jobs[TRIAL]
    if (found := try_pass(state).get(TRIAL)) is not None:
        return _of_start(state, job, found, "It would start now")
    told = waiting(state, TRIAL, state.now)
    assert told is not None, "it was just admitted"
    reason = Reason("held", "It would be held until it is released.") if spec.hold else told.reason
    return _of_wait(snapshot, state, job, reason, asked)


def explain_node(snapshot: StateSnapshot, node_id: NodeId) -> NodeOutlook:
    """Return who waits and is expected on a node."""
    state = snapshot.state()
    outlook = Outlook(state)
    outlook.started(try_pass(state) if state.pass_is_due else {})
    for started in to_come(state, NODE_LOOKS):
        outlook.started(started)
    return NodeOutlook(node=node_id, jobs=outlook.expected_on(node_id))


def _asked(state: ClusterState, user: str, spec: JobSpec) -> AskedOffer:
    """Return the request as a submit would see it; of an array, its first job."""
    after = tuple(
        one
        for one in parse_dependency(spec.dependency)
        if (other := state.jobs.get(JobId(one.job_id))) and not dependencies.is_met(one, other)
    )
    array = parse_array(spec.array)
    part = None if array is None else ArrayPart(TRIAL, array.indices[0], array.throttle)
    return AskedOffer(user=user, spec=spec, after=after, array=part)


def _as_it_is(job: Job) -> JobSpec:
    """Return a job's request with later changes; alone, if it is one of an array."""
    begin_at = job.not_before if job.failed_starts == 0 and job.attempt == 0 else 0.0
    return replace(
        job.spec,
        hold=job.held,
        priority=job.priority,
        time_limit_s=job.time_limit_s,
        begin_at=begin_at,
        array="",
        dependency="",
    )


def _away(snapshot: StateSnapshot, job: Job) -> str:
    """Return what happens to a job if one of its nodes stays silent."""
    away = next((one.node_id for one in job.placements if one.node_id in snapshot.away), None)
    if job.state.is_final or away is None:
        return ""
    since, reason = snapshot.away[away]
    why = f" Nothing is heard of {away} now ({reason.rstrip('.')})"
    if not job.fence_s:
        never = f"if it never comes, `mgpu node revoke {away}` lets the job run elsewhere."
        return f"{why}: the job is kept until {away} is back; {never}"
    left = rounded(max(0.0, since + job.fence_s - snapshot.now))
    then = "it runs elsewhere" if job.spec.requeue else "it fails"
    return f"{why}: if that stays so for another {left}, nothing of the job can be left there, and {then}."


def _of_past(job: Job, away: str) -> Explanation:
    places = tuple(Where(node=placement.node_id, gpus=placement.gpu_indices) for placement in job.placements)
    names = several([place.node for place in places])
    on = f" on {names}" if names else ""
    if not job.state.is_final:
        return Explanation(
            verdict="started",
            code=job.state.value,
            text=f"It is {job.state.value}{on}.{away}"
            if away
            else f"It does not wait: it is {job.state.value}{on}.",
            where=places,
        )
    why = f": {job.reason.text}" if job.reason else "."
    return Explanation(
        verdict="over", code=job.state.value, text=f"It is over; it {job.state.past}{on}{why}", where=places
    )


def _of_start(state: ClusterState, job: Job, found: Found, how: str) -> Explanation:
    places = where(found)
    told = [
        f"{place.node} (GPU {', '.join(map(str, place.gpus))})" if place.gpus else place.node
        for place in places
    ]
    terms = terms_of(state, job)
    return Explanation(
        verdict="now",
        code="now",
        text=f"{how} on {several(told)}.",
        where=places,
        terms=terms,
        priority=sum(term.points for term in terms),
        expected=Forecast(at=state.now),
    )


def _of_wait(
    snapshot: StateSnapshot, state: ClusterState, job: Job, reason: Reason, asked: AskedOffer
) -> Explanation:
    shape = books.shape(state, job)
    units = diagnose(state, shape, state.now + books.planned_s(state, job)) if state.pool.slots else ()
    place = state.queue.place_of(job.id) if job.id in state.queue else None
    terms = terms_of(state, job)
    told = Explanation(
        verdict="never" if reason.never else "not_now",
        code=reason.code,
        text=f"{'Never on the nodes that are known' if reason.never else 'Not now'}: {_lower(reason.text)}",
        units=units,
        place=place,
        ahead_count=place - 1 if place else 0,
        ahead=ahead_of(state, place) if place else (),
        terms=terms,
        priority=sum(term.points for term in terms),
        offers=offers_for(snapshot, asked),
    )
    if job.id not in state.jobs or reason.never:
        return told
    outlook = Outlook(state)
    expected = forecast(state, job.id, outlook.started)
    plan = [replace(one, job_id=JobId("")) if one.job_id == TRIAL else one for one in outlook.plan(job.id)]
    return replace(told, expected=expected, plan=tuple(plan))


def _lower(text: str) -> str:
    """Return a sentence as the second half of another, unless it begins with a name."""
    first, _, _ = text.partition(" ")
    return text[0].lower() + text[1:] if first in _BEGINNINGS else text


_BEGINNINGS = ("It", "Needs", "Waits", "No", "There", "Tries", "The", "This")
