"""One pass: which jobs start now, and which are promised a start. Pure; takes resources in the pool, and
changes nothing else.

Theory of operation. Jobs are looked at in the order of the queue. One that fits starts. The first that do not
get a *promise*: the earliest start that the expected ends of what runs allow, on certain nodes. Whoever comes
later may start only if it delays no promise (EASY with one promise, conservative with many). A pass after
arrivals alone looks only at the arrivals: nothing became free, so the others still cannot start.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import merge
from math import nextafter
from operator import attrgetter

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.model.settings import Planning
from mgpu_jupyter.scheduler.placement.fit import Finder, Found
from mgpu_jupyter.scheduler.placement.pool import Pool
from mgpu_jupyter.scheduler.planning.promises import Promise, keep, look_ahead
from mgpu_jupyter.scheduler.planning.queue import ANY_TIME, NOTHING, Entry, Lane, Queue

_NOBODY = (NOTHING, 0)
_key = attrgetter("key")

Gate = Callable[[Entry], bool]
"""Tells whether quotas and throttles let a job start now."""
Start = Callable[[Entry, Found], None]
"""Called for each job that starts, after its resources were taken."""


class Planner:
    """Holds the promises of the last pass and makes the next pass."""

    def __init__(self, queue: Queue, pool: Pool, planning: Planning) -> None:
        self._queue, self._pool, self._planning = queue, pool, planning
        self.promises: list[Promise] = []
        self.ahead: dict[JobId, float] = {}
        """Jobs for which others were preempted: they come first, and until then no other job is preempted for
        them.
        """
        self.fresh: list[Entry] = []
        """Arrived since the last pass."""
        self._last_order = _NOBODY
        """A job that arrives before this in the order may take a promise from another: needs a whole pass."""

    def copy(self, queue: Queue, pool: Pool) -> Planner:
        """Return a planner that continues from here with copies of queue and pool."""
        twin = Planner(queue, pool, self._planning)
        twin.promises, twin._last_order = list(self.promises), self._last_order
        twin.ahead = dict(self.ahead)
        twin.fresh = [entry for one in self.fresh if (entry := queue.entry(one.job_id)) is not None]
        return twin

    def arrived(self, entry: Entry) -> None:
        """Remember a job that the next pass must look at."""
        self.fresh.append(entry)

    def run(self, now: float, finder: Finder, gate: Gate, start: Start, *, whole: bool) -> None:
        """Make one pass."""
        fresh, self.fresh = self.fresh, []
        fresh = [entry for entry in fresh if self._queue.entry(entry.job_id) is entry]
        is_whole = whole or any(entry.key < self._last_order for entry in fresh)
        if is_whole:
            self._begin(now)
            order = self._order()
        elif self._is_closed:
            return
        else:
            order = sorted(fresh, key=lambda entry: entry.key)
        _Pass(self, now, finder, gate, start, is_whole=is_whole).walk(order)

    def lanes(self) -> list[Lane]:
        """Return the lanes of all that wait."""
        return list(self._queue.lanes.values())

    @property
    def _is_closed(self) -> bool:
        """Tell whether the head waits and nobody may overtake it."""
        return not self._planning.overtake and self._last_order != _NOBODY

    def _begin(self, now: float) -> None:
        self._pool.extend_overdue(now)
        self._pool.clear_promises()
        for lane in self._queue.lanes.values():
            lane.until = ANY_TIME
        self._last_order = _NOBODY

    def _order(self) -> list[Entry]:
        order = list(self._queue.order)
        promised = [
            entry for promise in self.promises if (entry := self._queue.entry(promise.job_id)) is not None
        ]
        self.promises = []
        if self.ahead:
            # Those preempted for it may be ahead of it in the order; they must not take the resources that it
            # was given.
            self.ahead = {job_id: until for job_id, until in self.ahead.items() if job_id in self._queue}
        if not self._planning.sticky:
            promised = [entry for entry in promised if entry.job_id in self.ahead]
        if promised:
            order = promised + [entry for entry in order if entry not in promised]
        return order


class _Pass:
    def __init__(
        self, planner: Planner, now: float, finder: Finder, gate: Gate, start: Start, *, is_whole: bool
    ) -> None:
        self._planner, self._now, self._finder, self._gate, self._start = planner, now, finder, gate, start
        self._pool, self._planning = planner._pool, planner._planning  # noqa: SLF001 - one thing in two parts
        self._is_whole = is_whole
        # By time alone: with one GPU on each node there is no difference, and the rule for spare nodes is
        # exact.
        self._by_time = not self._planning.spare and self._pool.widest > 1
        self._latest_end = (
            min((promise.at for promise in planner.promises), default=ANY_TIME) if self._by_time else ANY_TIME
        )

    def walk(self, order: list[Entry]) -> None:
        position = 0
        while position < len(order) and self._may_promise:
            if not self._at_head(order[position]):
                return
            position += 1
        if self._is_whole:
            self._by_lane()
            return
        for entry in order[position:]:
            self._offer(entry)

    def _by_lane(self) -> None:
        """Look at all that wait, but in each lane only at those that can still get something."""
        counted, at_least = self._pool.counted, self._pool.at_least()
        for lane in self._planner.lanes():
            if lane.asks_more_than(at_least):
                lane.until = NOTHING
            elif counted is not None and lane.gpus > counted.spare:
                lane.until = min(lane.until, nextafter(counted.at, ANY_TIME))
        lanes = [lane for lane in self._planner.lanes() if lane.until != NOTHING]
        smallest = min((gpus for lane in lanes for gpus, _ in lane.asks), default=0)
        for entry in merge(*(lane.wanted(self._now) for lane in lanes), key=_key):
            if entry.lane.asks_more_than(at_least):
                entry.lane.until = NOTHING
            elif self._offer(entry):
                at_least = self._pool.at_least()
                if not at_least[smallest]:
                    return

    def _offer(self, entry: Entry) -> bool:
        end = self._now + entry.duration
        return (
            end < entry.lane.until and end <= self._latest_end and self._gate(entry) and self._try(entry, end)
        )

    @property
    def _may_promise(self) -> bool:
        return len(self._planner.promises) < self._planning.reservations or not self._planning.overtake

    def _at_head(self, entry: Entry) -> bool:
        """Look at a job that may be promised a start; False ends the pass."""
        if not self._gate(entry):
            return True
        end = self._now + entry.duration
        if end < entry.lane.until and end <= self._latest_end and self._try(entry, end):
            return True
        if not self._planning.overtake:
            self._planner._last_order = entry.key  # noqa: SLF001 - one thing in two parts
            return not self._can_ever(entry.lane)
        self._promise(entry)
        return True

    def _try(self, entry: Entry, end: float) -> bool:
        lane = entry.lane
        found = self._finder.find(lane.shape, end)
        if found is None:
            lane.until = end if self._finder.is_held_back else NOTHING
            return False
        self._pool.take(entry.job_id, self._now, end, found)
        self._start(entry, found)
        return True

    def _promise(self, entry: Entry) -> None:
        promise = look_ahead(self._pool, entry.job_id, entry.lane.shape, self._now, entry.duration)
        if promise is None:
            return  # its nodes are away: no start can be foreseen
        keep(self._pool, promise, entry.lane.shape.rules, self._now)
        planner = self._planner
        planner.promises.append(promise)
        planner._last_order = max(planner._last_order, entry.key)  # noqa: SLF001 - one thing in two parts
        if self._by_time:
            self._latest_end = min(self._latest_end, promise.at)

    def _can_ever(self, lane: Lane) -> bool:
        return all(
            len(self._pool.capable(lane.shape.rules, group.need)) >= group.count
            for group in lane.shape.groups
        )


def promised_start(planner: Planner, job_id: JobId) -> float | None:
    """Return the promised start of a job, if it has one."""
    return next((promise.at for promise in planner.promises if promise.job_id == job_id), None)
