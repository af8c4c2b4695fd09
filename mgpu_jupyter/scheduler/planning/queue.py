"""Waiting jobs in the order of their priority, and what jobs of one shape have in common. Knows nothing of
nodes.

Theory of operation. A priority is a sum of terms in hours of waiting. All jobs age alike, so time alone
changes no order: the sort key (`base`) leaves the age out. Only fair share moves jobs against each other;
then `reorder` sorts again. Jobs of one shape share a *lane*. Within one pass resources only shrink, so what
one job of a lane could not have, no later one that ends no sooner can have: `until` is the end time from
which on there is nothing for this lane. Its jobs are kept by priority and by duration, so that short enough
ones are found without looking at the others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from operator import attrgetter

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.scheduler.placement.shape import Shape

_key = attrgetter("key")
_length = attrgetter("length")
ANY_TIME = float("inf")
NOTHING = -float("inf")
STEP = 0.25
"""Hours of waiting: a share that changed by less moves no job."""


class Lane:
    """What waiting jobs of one shape have in common."""

    __slots__ = ("asks", "by_duration", "gpus", "is_in_order", "members", "shape", "until")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.gpus = shape.gpus
        self.asks = [(group.need.gpus, group.count) for group in shape.groups]
        """GPUs on each of how many nodes, group by group."""
        self.until = ANY_TIME
        self.members: list[Entry] = []
        self.by_duration: list[Entry] = []
        self.is_in_order = True
        """False when priorities changed since its members were sorted; most lanes need no order until then.
        """

    def add(self, entry: Entry) -> None:
        """Add a job."""
        insort(self.in_order(), entry, key=_key)
        insort(self.by_duration, entry, key=_length)

    def remove(self, entry: Entry) -> None:
        """Remove a job."""
        del self.members[bisect_left(self.in_order(), entry.key, key=_key)]
        del self.by_duration[bisect_left(self.by_duration, entry.length, key=_length)]

    def in_order(self) -> list[Entry]:
        """Return the jobs by priority."""
        if not self.is_in_order:
            self.members.sort(key=_key)
            self.is_in_order = True
        return self.members

    def asks_more_than(self, at_least: list[int]) -> bool:
        """Tell whether too few nodes have enough free GPUs; `at_least` counts the nodes with so many or
        more.
        """
        return any(gpus >= len(at_least) or at_least[gpus] < nodes for gpus, nodes in self.asks)

    def wanted(self, now: float) -> Iterator[Entry]:
        """Yield, by priority, the jobs that end in time for what is left for this lane, even as that
        shrinks.
        """
        after: tuple[float, int] = (NOTHING, 0)
        until = NOTHING
        while until != self.until:
            until = self.until
            for entry in self._in_time(until - now, after):
                after = entry.key
                yield entry
                if self.until != until:
                    break

    def _in_time(self, seconds: float, after: tuple[float, int]) -> list[Entry]:
        if seconds == ANY_TIME:
            return self.members[bisect_right(self.in_order(), after, key=_key) :]
        short = self.by_duration[: bisect_left(self.by_duration, (seconds, 0), key=_length)]
        return sorted((entry for entry in short if entry.key > after), key=_key)


class Entry:
    """A waiting job as the queue sees it."""

    __slots__ = (
        "account",
        "array",
        "base",
        "duration",
        "gpus",
        "job_id",
        "key",
        "lane",
        "length",
        "number",
        "qos",
        "user",
        "who",
    )

    def __init__(
        self,
        job_id: JobId,
        number: int,
        lane: Lane,
        *,
        base: float,
        duration: float,
        user: str,
        account: str,
        qos: str,
        array: str | None,
    ) -> None:
        self.job_id, self.number, self.lane = job_id, number, lane
        self.base = base
        """Priority without age and fair share."""
        self.duration = duration
        """How long it is expected to run, for planning."""
        self.user, self.account, self.qos, self.array = user, account, qos, array
        self.who = (user, account)
        self.gpus = lane.gpus
        self.key = (-base, number)
        self.length = (duration, number)

    def copy(self, lane: Lane, key: tuple[float, int]) -> Entry:
        """Return a copy for another queue, in the place given by `key`."""
        twin = Entry(
            self.job_id,
            self.number,
            lane,
            base=self.base,
            duration=self.duration,
            user=self.user,
            account=self.account,
            qos=self.qos,
            array=self.array,
        )
        twin.key = key
        return twin


class Queue:
    """All jobs that wait and may start, in order."""

    def __init__(self) -> None:
        self.order: list[Entry] = []
        self.lanes: dict[Shape, Lane] = {}
        self._entries: dict[JobId, Entry] = {}
        self._by_who: dict[tuple[str, str], dict[JobId, Entry]] = {}
        self._bonuses: dict[tuple[str, str], float] = {}
        """What the share of each user and account added at the last sorting."""

    def __len__(self) -> int:
        return len(self.order)

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._entries

    def __iter__(self) -> Iterator[JobId]:
        return (entry.job_id for entry in self.order)

    def lane(self, shape: Shape) -> Lane:
        """Return the lane of a shape."""
        found = self.lanes.get(shape)
        if found is None:
            found = self.lanes[shape] = Lane(shape)
        return found

    def add(self, entry: Entry, bonus: Callable[[str, str], float]) -> None:
        """Put a job in its place; `bonus` returns what its user's share adds."""
        if entry.who not in self._bonuses:
            self._bonuses[entry.who] = bonus(*entry.who)
        entry.key = (-(entry.base + self._bonuses[entry.who]), entry.number)
        entry.lane.add(entry)
        self._by_who.setdefault(entry.who, {})[entry.job_id] = entry
        self._entries[entry.job_id] = entry
        insort(self.order, entry, key=_key)

    def without_jobs(self) -> Queue:
        """Return an empty queue that orders as this one does."""
        twin = Queue()
        twin._bonuses = dict(self._bonuses)
        return twin

    def fill(self, entries: list[Entry]) -> None:
        """Add jobs that are in order already."""
        self.order = entries
        for entry in entries:
            entry.lane.members.append(entry)
            entry.lane.by_duration.append(entry)
            self._by_who.setdefault(entry.who, {})[entry.job_id] = entry
            self._entries[entry.job_id] = entry
        for lane in self.lanes.values():
            lane.by_duration.sort(key=_length)

    def remove(self, job_id: JobId) -> Entry:
        """Take a job out."""
        entry = self._entries.pop(job_id)
        del self.order[bisect_left(self.order, entry.key, key=_key)]
        del self._by_who[entry.who][entry.job_id]
        entry.lane.remove(entry)
        if not entry.lane.members:
            del self.lanes[entry.lane.shape]
        return entry

    def entry(self, job_id: JobId) -> Entry | None:
        """Return a job's entry."""
        return self._entries.get(job_id)

    def place_of(self, job_id: JobId) -> int:
        """Return 1 for the next job, 2 for the one after it."""
        return bisect_left(self.order, self._entries[job_id].key, key=_key) + 1

    def reorder(self, bonus: Callable[[str, str], float]) -> None:
        """Sort again by what each user's share adds now; a change of less than `STEP` moves no job."""
        moved: dict[tuple[str, str], float] = {}
        for who, before in self._bonuses.items():
            now = bonus(*who)
            if abs(now - before) >= STEP:
                moved[who] = now
        if not moved:
            return
        self._bonuses.update(moved)
        for who, new in moved.items():
            for entry in self._by_who.get(who, {}).values():
                entry.key = (-(entry.base + new), entry.number)
                entry.lane.is_in_order = False
        self.order.sort(key=_key)
