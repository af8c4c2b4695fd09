"""All nodes as placement sees them, indexed by free GPUs; the books keep it up to date, so that no pass has
to build it.

Theory of operation. A slot that takes work stands in the bucket of its free GPUs, sorted by id; the tightest
node for a unit is the first in the lowest bucket that is large enough. Which nodes could *ever* serve a need
is remembered until a node changes. `held` knows for each job what it has and until when it is expected to;
`ends` is sorted by that time, for promises.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.model.units import Need
from mgpu_jupyter.scheduler.model import Node
from mgpu_jupyter.scheduler.placement.filters import is_fit, never
from mgpu_jupyter.scheduler.placement.shape import Rules
from mgpu_jupyter.scheduler.placement.slots import Hold, Promised, Slot

FOREVER = float("inf")
MAX_REMEMBERED = 2_000
"""Requests for which the nodes that could ever serve them are remembered."""
OVERRUN = 4.0
"""A job that outlived its time is expected to run this many times as long as it did."""
OVERRUN_S = 30.0


class Held:
    """A job that holds resources, and until when it is expected to."""

    __slots__ = ("begun", "end", "gpus", "holds", "taken")

    def __init__(self, begun: float, end: float, holds: list[tuple[Slot, Hold]]) -> None:
        self.begun, self.end, self.holds = begun, end, holds
        self.gpus = sum(hold.gpus for _, hold in holds)
        self.taken = sum(hold.taken.bit_count() for _, hold in holds)
        """GPUs that nobody else gets meanwhile."""


class Counted:
    """A promise of many nodes that are all alike: kept as a number, since it does not matter which."""

    __slots__ = ("at", "spare")

    def __init__(self, at: float, spare: int) -> None:
        self.at = at
        self.spare = spare
        """How many GPUs it leaves to others at that moment."""

    def lets(self, gpus: int, end: float) -> bool:
        """Tell whether a job that starts now and ends then takes nothing from it."""
        return end <= self.at or gpus <= self.spare


class Apart(NamedTuple):
    """Two nodes that get no job together whose processes must find each other."""

    until: float
    text: str


class Pool:
    """The nodes, what is free, and who holds the rest until when."""

    def __init__(self) -> None:
        self.slots: dict[NodeId, Slot] = {}
        self.buckets: list[list[NodeId]] = [[]]
        self.without_gpus: list[NodeId] = []
        """Nodes that take work and have no GPU at all, by id."""
        self.held: dict[JobId, Held] = {}
        self.ends: list[tuple[float, JobId]] = []
        self.version = 0
        """Counts changes of the nodes themselves, not of what is free on them."""
        self.homes: Counter[str] = Counter()
        """Host names of nodes."""
        self._restricted = 0
        self._placed = 0
        self._capable: dict[tuple[Rules, Need], frozenset[NodeId]] = {}
        self._kinds: list[tuple[Slot, frozenset[NodeId]]] | None = None
        self._promised: set[NodeId] = set()
        self.counted: Counted | None = None
        self._alike = 0
        """How many nodes take work and have one GPU, and that one usable."""
        self.first_promise = -FOREVER
        """When the first promise begins; minus infinity without one, so that nobody looks for promised nodes.
        """

        self.apart: dict[frozenset[NodeId], Apart] = {}

    # --- nodes ----------------------------------------------------------------------------------

    def put(self, node: Node, partitions: frozenset[str]) -> Slot:
        """Add a node that is new or said Hello again; the caller then adds who holds what on it."""
        self._drop(node.id)
        slot = self.slots[node.id] = Slot(node, partitions)
        self.homes[slot.host] += 1
        self._restricted += bool(slot.lists)
        self._placed += bool(slot.rack or slot.switch)
        self._changed()
        self._list(slot)
        return slot

    def refresh(self, node: Node) -> None:
        """Update a node's state, lists, load or blocked GPUs."""
        slot = self.slots[node.id]
        lists = slot.lists
        self._unlist(slot)
        slot.refresh(node)
        self._list(slot)
        if slot.lists != lists:
            self._restricted += bool(slot.lists) - bool(lists)
            self._changed()

    def remove(self, node_id: NodeId) -> None:
        """Forget a node that holds nothing."""
        self._drop(node_id)
        self._changed()

    @property
    def is_restricted(self) -> bool:
        """Tell whether some node excludes somebody."""
        return self._restricted > 0

    @property
    def has_places(self) -> bool:
        """Tell whether some node says in which rack or on which switch it is."""
        return self._placed > 0

    def at_least(self) -> list[int]:
        """Return, for each number of GPUs, how many nodes have that many free or more."""
        return list(accumulate(map(len, reversed(self.buckets))))[::-1]

    @property
    def is_uniform(self) -> bool:
        """Tell whether all nodes take work and have one GPU each."""
        return self._alike == len(self.slots)

    @property
    def widest(self) -> int:
        """The most GPUs that one node has."""
        return len(self.buckets) - 1

    def capable(self, rules: Rules, need: Need) -> frozenset[NodeId]:
        """Return the nodes that could serve this need if nobody else used them."""
        key = (rules, need)
        found = self._capable.get(key)
        if found is None:
            if len(self._capable) >= MAX_REMEMBERED:
                self._capable.clear()
            found = self._capable[key] = self._find_capable(rules, need)
        return found

    def _find_capable(self, rules: Rules, need: Need) -> frozenset[NodeId]:
        if rules.nodelist or need.node or rules.home:
            names = (NodeId(name) for name in rules.nodelist) if rules.nodelist else self.slots
            near = (self.slots[name] for name in names if name in self.slots)
            return frozenset(slot.id for slot in near if never(slot, need, rules, self.homes) is None)
        # The answer of one node holds for all of its kind.
        fit = [ids for slot, ids in self._by_kind() if is_fit(slot, need, rules, self.homes)]
        found = fit[0] if len(fit) == 1 else frozenset().union(*fit)
        return found.difference(rules.exclude) if rules.exclude else found

    def _by_kind(self) -> list[tuple[Slot, frozenset[NodeId]]]:
        """Return one node of each kind, with the names of all of that kind."""
        if self._kinds is None:
            groups: dict[object, list[Slot]] = {}
            for slot in self.slots.values():
                groups.setdefault((slot.kind, slot.lists), []).append(slot)
            self._kinds = [(group[0], frozenset(slot.id for slot in group)) for group in groups.values()]
        return self._kinds

    # --- jobs -----------------------------------------------------------------------------------

    def take(self, job_id: JobId, begun: float, end: float, holds: list[tuple[Slot, Hold]]) -> None:
        """Give a job what was found for it."""
        for slot, hold in holds:
            slot.take(job_id, hold, end)
            if slot.bucket >= 0 and hold.taken:
                self._relist(slot)
        held = self.held[job_id] = Held(begun, end, holds)
        insort(self.ends, (end, job_id))
        if self.counted is not None and end > self.counted.at:
            self.counted.spare -= held.taken

    def give(self, job_id: JobId) -> None:
        """Free all that a job holds."""
        held = self.held.pop(job_id)
        del self.ends[bisect_left(self.ends, (held.end, job_id))]
        if self.counted is not None and held.end > self.counted.at:
            self.counted.spare += held.taken
        for slot, hold in held.holds:
            if self.slots.get(slot.id) is slot and job_id in slot.holds:
                slot.give(job_id, held.end)
                if slot.bucket >= 0 and hold.taken:
                    self._relist(slot)

    def expect_end(self, job_id: JobId, end: float) -> None:
        """Change until when a job is expected to hold its resources."""
        held = self.held[job_id]
        del self.ends[bisect_left(self.ends, (held.end, job_id))]
        held.end = end
        insort(self.ends, (end, job_id))

    def extend_overdue(self, at: float) -> None:
        """Expect jobs that outlived their time to run four times as long as they did."""
        while self.ends and self.ends[0][0] <= at:
            _, job_id = self.ends[0]
            begun = self.held[job_id].begun
            self.expect_end(job_id, begun + OVERRUN * max(at - begun, OVERRUN_S))

    def copy(self) -> Pool:
        """Return a copy to try things on; changes to it do not show here."""
        twin = Pool()
        twin.slots = {node_id: slot.copy() for node_id, slot in self.slots.items()}
        twin.buckets = [list(bucket) for bucket in self.buckets]
        twin.without_gpus = list(self.without_gpus)
        for job_id, held in self.held.items():
            holds = [(twin.slots.get(slot.id, slot), hold) for slot, hold in held.holds]
            twin.held[job_id] = Held(held.begun, held.end, holds)
        twin.ends = list(self.ends)
        twin.version, twin.homes = self.version, Counter(self.homes)
        twin._restricted, twin._capable, twin._promised = (
            self._restricted,
            dict(self._capable),
            set(self._promised),
        )
        twin.first_promise, twin._placed = self.first_promise, self._placed
        twin.apart = dict(self.apart)
        twin._alike = self._alike
        twin.counted = Counted(self.counted.at, self.counted.spare) if self.counted is not None else None
        return twin

    # --- nodes that cannot talk -----------------------------------------------------------------

    def keep_apart(self, one: NodeId, other: NodeId, until: float, text: str) -> None:
        """Give these two no job together until then, if its processes must find each other."""
        self.apart[frozenset((one, other))] = Apart(until, text)

    def bring_together(self, at: float) -> bool:
        """Lift the separations whose time is over; tell whether there were any."""
        over = [pair for pair, apart in self.apart.items() if apart.until <= at]
        for pair in over:
            del self.apart[pair]
        return bool(over)

    def is_apart(self, node_id: NodeId, others: Iterable[NodeId]) -> bool:
        """Tell whether a node must not be given to a job with one of these."""
        return any(frozenset((node_id, other)) in self.apart for other in others)

    # --- promises -------------------------------------------------------------------------------

    def promise(self, slot: Slot, promised: Promised) -> None:
        """Keep something free on a node from some time on."""
        slot.promises.append(promised)
        self._promised.add(slot.id)
        self.first_promise = (
            promised.at if self.first_promise == -FOREVER else min(self.first_promise, promised.at)
        )

    def clear_promises(self) -> None:
        """Forget all promises; each pass makes them anew."""
        for node_id in self._promised:
            if node_id in self.slots:
                self.slots[node_id].promises = []
        self._promised = set()
        self.counted = None
        self.first_promise = -FOREVER

    @property
    def promised(self) -> list[Slot]:
        """Nodes on which something is promised."""
        return [self.slots[node_id] for node_id in sorted(self._promised) if node_id in self.slots]

    def promised_in(self, bucket: int) -> list[NodeId]:
        """Return nodes of a bucket on which something is promised, by id."""
        return sorted(
            node_id
            for node_id in self._promised
            if node_id in self.slots and self.slots[node_id].bucket == bucket
        )

    # --- the index ------------------------------------------------------------------------------

    def _changed(self) -> None:
        self.version += 1
        self._capable.clear()
        self._kinds = None

    def _drop(self, node_id: NodeId) -> None:
        slot = self.slots.pop(node_id, None)
        if slot is not None:
            self._unlist(slot)
            self._restricted -= bool(slot.lists)
            self._placed -= bool(slot.rack or slot.switch)
            self.homes[slot.host] -= 1
            if not self.homes[slot.host]:
                del self.homes[slot.host]

    def _list(self, slot: Slot) -> None:
        if not slot.up:
            return
        while self.widest < len(slot.gpus):
            self.buckets.append([])
        slot.bucket = slot.free
        insort(self.buckets[slot.free], slot.id)
        self._alike += slot.usable == slot.full_mask == 1
        if not slot.gpus:
            insort(self.without_gpus, slot.id)

    def _unlist(self, slot: Slot) -> None:
        if slot.bucket < 0:
            return
        bucket = self.buckets[slot.bucket]
        del bucket[bisect_left(bucket, slot.id)]
        slot.bucket = -1
        self._alike -= slot.usable == slot.full_mask == 1
        if not slot.gpus:
            del self.without_gpus[bisect_left(self.without_gpus, slot.id)]

    def _relist(self, slot: Slot) -> None:
        bucket = self.buckets[slot.bucket]
        del bucket[bisect_left(bucket, slot.id)]
        slot.bucket = slot.free
        insort(self.buckets[slot.free], slot.id)
