"""All units of a job on nodes, or none of them: candidates by filters, preferences and strategy. Changes
nothing by itself.

Theory of operation. Units that need the same are a group, and a group takes its nodes at once, so nothing
must be undone when the last unit finds none: `find` only returns what it would take. Groups come largest
first; a node serves one unit of a job. Of the GPUs of a node a unit gets those that NVLink joins best, else
the lowest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.units import Group, Need
from mgpu_jupyter.scheduler.placement import strategies
from mgpu_jupyter.scheduler.placement.filters import room
from mgpu_jupyter.scheduler.placement.pool import FOREVER, Pool
from mgpu_jupyter.scheduler.placement.shape import Shape
from mgpu_jupyter.scheduler.placement.slots import Hold, Slot
from mgpu_jupyter.scheduler.placement.strategies import (
    FILL_FIRST,
    ROUND_ROBIN,
    SPREAD,
    TOPOLOGY,
    Strategy,
    Wanted,
)

MAX_TRIED = 5_000  # there are 12,870 ways to take 8 of 16: beyond this, grow a group from each GPU instead


def pick(slot: Slot, free: int, wanted: int) -> int:
    """Return `wanted` of the `free` GPUs, as bits."""
    if wanted == 1:
        return free & -free
    bits = [bit for bit in range(len(slot.gpus)) if free >> bit & 1]
    if wanted >= len(bits):
        return free
    if wanted > 1 and any(slot.gpus[bit].nvlinks for bit in bits):
        bits = _best_linked(slot, bits, wanted)
    return sum(1 << bit for bit in bits[:wanted])


def _best_linked(slot: Slot, bits: list[int], wanted: int) -> list[int]:
    """Return the group with the most links within; of equals, the one that leaves the most links among the
    rest; then the lowest.
    """
    links = _links(slot)
    ways = 1
    for step in range(wanted):
        ways = ways * (len(bits) - step) // (step + 1)
    groups: list[tuple[int, ...]] = [_grown(links, first, bits, wanted) for first in bits]
    if ways <= MAX_TRIED:
        groups = list(combinations(bits, wanted))

    worth = [
        (_within(links, group), _within(links, [bit for bit in bits if bit not in group])) for group in groups
    ]
    return list(groups[worth.index(max(worth))])


def _grown(links: dict[tuple[int, int], int], first: int, bits: list[int], wanted: int) -> tuple[int, ...]:
    group = [first]
    while len(group) < wanted:
        rest = [bit for bit in bits if bit not in group]
        group.append(max(rest, key=lambda bit: (sum(links.get((bit, other), 0) for other in group), -bit)))
    return tuple(sorted(group))


def _within(links: dict[tuple[int, int], int], group: Sequence[int]) -> int:
    return sum(links.get(pair, 0) for pair in combinations(group, 2))


def _links(slot: Slot) -> dict[tuple[int, int], int]:
    place = {gpu.uuid: bit for bit, gpu in enumerate(slot.gpus)}
    return {
        (bit, place[uuid]): number
        for bit, gpu in enumerate(slot.gpus)
        for uuid, number in gpu.nvlinks.items()
        if uuid in place
    }


FIRST_TRIED = 8
"""How many nodes are tried as the first of those that must reach each other."""
Found = list[tuple[Slot, Hold]]
"""What each unit would get, in the order of the units."""


class Finder:
    """Searches for nodes in a pool, at one moment."""

    def __init__(self, pool: Pool, own: Mapping[str, Strategy], last_turn: str = "") -> None:
        self._pool = pool
        self._own = own
        self.last_turn = last_turn
        """The node that `round_robin` took last."""
        self.is_held_back = False
        """Whether the last search left a node out for a promise: a job that ends sooner might get it."""

    def find(self, shape: Shape, end: float = FOREVER) -> Found | None:
        """Return what every unit would get if the job ran from now to `end`, or None; promises are kept."""
        self.is_held_back = False
        found: Found = []
        taken: set[NodeId] = set()
        if not self.may_fit(shape):
            return None
        if self._pool.counted is not None and not self._pool.counted.lets(shape.taken_gpus, end):
            self.is_held_back = True
            return None
        for group in shape.groups:
            slots = self._choose(shape, group, taken, end)
            if len(slots) < group.count:
                return None
            for slot in slots:
                taken.add(slot.id)
                found.append((slot, _hold(slot, group.need, room(slot, group.need, shape.rules))))
        if shape.strategy == ROUND_ROBIN:
            self.last_turn = found[-1][0].id
        return found

    def may_fit(self, shape: Shape) -> bool:
        """Tell whether enough nodes have enough free GPUs, without looking at any of them."""
        at_least = self._pool.at_least()
        return all(
            group.need.gpus < len(at_least) and at_least[group.need.gpus] >= group.count
            for group in shape.groups
        )

    def missing(self, shape: Shape, end: float = FOREVER) -> list[int]:
        """Return, for each group, how many of its units find no node; every unit is tried."""
        missing = []
        taken: set[NodeId] = set()
        for group in shape.groups:
            slots = self._choose(shape, group, taken, end)
            taken.update(slot.id for slot in slots)
            missing.append(group.count - len(slots))
        return missing

    def _choose(self, shape: Shape, group: Group, taken: set[NodeId], end: float) -> list[Slot]:
        """Return nodes for the units of a group, best first; too few when there are too few."""
        need, rules = group.need, shape.rules
        capable = self._pool.capable(rules, need)
        looks_at_pairs = shape.meets and bool(self._pool.apart)
        is_plain = not (shape.prefer or shape.failed_nodes or rules.nodelist or need.node or looks_at_pairs)
        if is_plain and shape.strategy == FILL_FIRST:
            return self._choose_tightest(shape, group, capable, taken, end)
        slots = []
        for node_id in capable:
            slot = self._pool.slots[node_id]
            if node_id not in taken and room(slot, need, rules) >= 0 and self._is_let(slot, need, end):
                slots.append(slot)
        ranked = self._ranked(shape, group, slots)
        return (
            able_to_talk(self._pool, ranked, group.count, taken) if looks_at_pairs else ranked[: group.count]
        )

    def _choose_tightest(
        self, shape: Shape, group: Group, capable: frozenset[NodeId], taken: set[NodeId], end: float
    ) -> list[Slot]:
        """Do the same straight from the index, without looking at nodes that are too full."""
        need, rules = group.need, shape.rules
        everywhere = len(capable) == len(self._pool.slots)
        # The bucket alone answers for most requests.
        is_simple = (
            everywhere
            and need.gpus > 0
            and not (need.cpus or need.mem_bytes or need.gpu_ids or need.exclusive)
            and not (rules.gpu_type or rules.gpu_mem_bytes)
        )
        looks_at_places = self._pool.has_places and (group.count > 1 or bool(taken))
        chosen: list[Slot] = []
        if is_simple and not taken and not self._pool.promised and not looks_at_places:
            for bucket in self._pool.buckets[need.gpus :]:
                chosen += map(self._pool.slots.__getitem__, bucket[: group.count - len(chosen)])
            return chosen
        equal: list[Slot] = []
        for slot in self._by_bucket(need, end):
            if taken and slot.id in taken:
                continue
            if not is_simple and not ((everywhere or slot.id in capable) and room(slot, need, rules) >= 0):
                continue
            if slot.promises and not self._is_let(slot, need, end):
                continue
            if not looks_at_places:
                chosen.append(slot)
                if len(chosen) == group.count:
                    break
            elif equal and self._is_looser(slot, equal[0], end):
                if len(chosen) + len(equal) >= group.count:
                    break
                chosen += equal
                equal = [slot]
            else:
                equal.append(slot)
        if equal:
            beside = [*(self._pool.slots[node_id] for node_id in taken), *chosen]
            left = group.count - len(chosen)
            chosen += strategies.by_place(equal, left, beside)[:left]
        return chosen

    def _is_looser(self, slot: Slot, than: Slot, end: float) -> bool:
        """Tell whether a node comes after another one for more than its name and place."""
        if end <= self._pool.first_promise and bool(slot.promises) != bool(than.promises):
            return True
        return (bool(slot.gpus), slot.free) != (bool(than.gpus), than.free)

    def _is_let(self, slot: Slot, need: Need, end: float) -> bool:
        if slot.promises and not slot.lets(need, end):
            self.is_held_back = True
            return False
        return True

    def _by_bucket(self, need: Need, end: float) -> Iterator[Slot]:
        """Yield the tightest first; a job that ends in time gets promised nodes before others."""
        slots = self._pool.slots
        if not need.gpus:
            yield from map(slots.__getitem__, self._pool.without_gpus)
        for bucket in range(need.gpus, len(self._pool.buckets)):
            ids = self._pool.buckets[bucket]
            if ids and end <= self._pool.first_promise:
                promised = self._pool.promised_in(bucket)
                yield from map(slots.__getitem__, promised)
                ids = [node_id for node_id in ids if not slots[node_id].promises] if promised else ids
            for node_id in ids:
                slot = slots[node_id]
                if need.gpus or slot.gpus:
                    yield slot

    def _ranked(self, shape: Shape, group: Group, slots: list[Slot]) -> list[Slot]:
        """Return the nodes sorted by preferences, then by strategy."""
        ranked = self._by_strategy(shape.strategy, slots, group)
        if not group.need.gpus:
            ranked.sort(key=lambda slot: bool(slot.gpus))
        if shape.prefer:
            ranked.sort(key=lambda slot: slot.id not in shape.prefer)
        if shape.failed_nodes:
            ranked.sort(key=lambda slot: slot.id in shape.failed_nodes)
        return ranked

    def _by_strategy(self, name: str, slots: list[Slot], group: Group) -> list[Slot]:
        if name == SPREAD:
            return strategies.by_spread(slots)
        if name == TOPOLOGY:
            return strategies.by_topology(slots, group.count)
        if name == ROUND_ROBIN:
            return strategies.by_turn(slots, self.last_turn)
        if name in self._own:
            need = group.need
            return strategies.by_own(
                slots, self._own[name], Wanted(group.count, need.gpus, need.cpus, need.mem_bytes)
            )
        if self._pool.has_places:
            return strategies.by_fill_and_place(slots, group.count)
        return strategies.by_fill(slots)


def able_to_talk(pool: Pool, slots: list[Slot], count: int, taken: Iterable[NodeId]) -> list[Slot]:
    """Return the first `count` nodes that can reach each other and those that are taken; fewer if there are
    not enough.
    """
    best: list[Slot] = []
    for first in range(min(len(slots), FIRST_TRIED)):
        chosen: list[Slot] = []
        names = set(taken)
        for slot in (slots[first], *slots[:first], *slots[first + 1 :]):
            if not pool.is_apart(slot.id, names):
                chosen.append(slot)
                names.add(slot.id)
                if len(chosen) == count:
                    return chosen
        best = max(best, chosen, key=len)
    return best


def _hold(slot: Slot, need: Need, free: int) -> Hold:
    mask = free if need.gpu_ids else pick(slot, free, need.gpus)
    return Hold(mask, need.cpus, need.mem_bytes, whole=slot.full_mask if need.exclusive else None)
