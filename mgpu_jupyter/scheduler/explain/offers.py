"""Counter-offers: the smallest changes of a request with which it would start now, found by trying them on
copies of the state.

Theory of operation. Changes come in the order of what they lose. A quick check (is there room at all, does a
quota forbid it) excludes most; each that is left is submitted to a fresh copy of the state and offered only
if the very next pass starts it. For a job that waits already, the changed request takes its place: the job is
cancelled on the copy first. Pairs of changes are tried only when no single one works. Both kinds of tries are
bounded, so that large clusters answer in time, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.explanations import Offer
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.model.waits import Dependency
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.admission import Admission
from mgpu_jupyter.scheduler.explain.changes import applied, changes_of
from mgpu_jupyter.scheduler.explain.diagnosis import where
from mgpu_jupyter.scheduler.explain.size_changes import Change
from mgpu_jupyter.scheduler.explain.snapshot import StateSnapshot, try_pass
from mgpu_jupyter.scheduler.model import ArrayPart, Job
from mgpu_jupyter.scheduler.placement.fit import Finder, Found
from mgpu_jupyter.scheduler.state import ClusterState

MAX_OFFERS = 5
TRIAL = JobId("········")
"""The name of a request that is only tried; no job can have it."""
LOOKS = 400_000
"""The most nodes examined in all quick checks together."""
COPIES = 60_000
"""The most nodes and waiting jobs copied for all exact tries together."""


class AskedOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The request, its user, and the waiting job that it would replace."""

    user: str
    spec: JobSpec
    after: tuple[Dependency, ...] = ()
    array: ArrayPart | None = None
    instead_of: JobId | None = None


def offers_for(snapshot: StateSnapshot, asked: AskedOffer) -> tuple[Offer, ...]:
    """Return the few smallest changes with which it would start now, the smallest first."""
    search = _Search(snapshot, asked)
    changes = changes_of(search.base, asked.spec, search.planned_s)
    singles = [change for change in changes if change.flags == 1]
    doubles = [(change,) for change in changes if change.flags > 1]
    return tuple(search.offers((change,) for change in singles) or search.offers(_pairs(singles, doubles)))


def submit_trial(state: ClusterState, asked: AskedOffer) -> None:
    """Submit the request to a copy of the state; raises the error that refuses it."""
    _make_way(state, asked)
    check(asked.spec)
    Admission(state).check(asked.user, asked.spec)
    books.admit(state, trial_job(state, asked))


def trial_job(state: ClusterState, asked: AskedOffer) -> Job:
    """Return the request as the job that it would be."""
    spec = asked.spec
    return Job(
        id=TRIAL,
        number=state.number + 1,
        user=asked.user,
        spec=spec,
        submitted_at=state.now,
        account=state.site.account_of(asked.user, spec),
        held=spec.hold,
        not_before=spec.begin_at,
        after=asked.after,
        array=asked.array,
    )


def _make_way(state: ClusterState, asked: AskedOffer) -> None:
    if asked.instead_of is not None:
        books.move(state, state.jobs[asked.instead_of], state_=JobState.CANCELLED)


def _pairs(singles: list[Change], doubles: Sequence[tuple[Change, ...]]) -> Iterator[tuple[Change, ...]]:
    """Yield pairs of changes that do not contradict each other, the least loss first."""
    pairs: list[tuple[Change, ...]] = [
        *doubles,
        *(pair for pair in combinations(singles, 2) if _agree(*pair)),
    ]
    return iter(sorted(pairs, key=lambda pair: sum(change.loss for change in pair)))


def _agree(one: Change, other: Change) -> bool:
    return one.family != other.family and all(
        other.patch.get(field, value) == value for field, value in one.patch.items()
    )


class _Search:
    """Tries changes until there are enough offers or the budget is spent."""

    def __init__(self, snapshot: StateSnapshot, asked: AskedOffer) -> None:
        self._snapshot, self._asked = snapshot, asked
        self.base = snapshot.state()
        """The state without the job itself and without promises, which a changed request might not have to
        keep; read only.
        """
        self.planned_s = books.planned_s(self.base, trial_job(self.base, asked))
        _make_way(self.base, asked)
        self.base.pool.clear_promises()
        probe = snapshot.state()
        _make_way(probe, asked)
        if probe.pass_is_due:
            try_pass(probe)
        self.base.planner.promises = probe.planner.promises
        self._looks = max(40, LOOKS // (len(self.base.pool.slots) + 1))
        self._copies = max(12, COPIES // (snapshot.size + 1))

    def offers(self, candidates: Iterator[tuple[Change, ...]]) -> list[Offer]:
        """Return offers for the first candidates that work, one for each set of families."""
        offers: list[Offer] = []
        families: set[frozenset[str]] = set()
        for changes in candidates:
            if len(offers) == MAX_OFFERS or self._looks <= 0 or self._copies <= 0:
                break
            family = frozenset(change.family for change in changes)
            if family in families:
                continue
            asked = msgspec.structs.replace(self._asked, spec=applied(self._asked.spec, changes))
            found = self._try(asked)
            if found is not None:
                families.add(family)
                offers.append(_offer(changes, found))
        return offers

    def _try(self, asked: AskedOffer) -> Found | None:
        self._looks -= 1
        try:
            if not self._has_room(asked):
                return None
            self._copies -= 1
            state = self._snapshot.state()
            submit_trial(state, asked)
        except MgpuError:
            return None  # a refused request is no offer
        return try_pass(state).get(TRIAL)

    def _has_room(self, asked: AskedOffer) -> bool:
        base = self.base
        check(asked.spec)
        job = trial_job(base, asked)
        if not job.may_line_up(base.now):
            return False
        shape = books.shape(base, job)
        if base.quotas.why_not(
            job.user, job.account, job.spec.qos, job.array.id if job.array else None, shape.gpus
        ):
            return False
        return Finder(base.pool, base.site.own, base.last_turn).find(shape) is not None


def _offer(changes: tuple[Change, ...], found: Found) -> Offer:
    texts = [change.text for change in changes]
    patch = {field: value for change in changes for field, value in change.patch.items()}
    return Offer(
        text=" and ".join(texts),
        flags=tuple(change.flag for change in changes),
        patch=patch,
        where=where(found),
    )
