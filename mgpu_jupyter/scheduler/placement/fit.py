"""All units of a job on nodes, or none of them: candidates by filters, preferences and strategy. Changes nothing by itself.

Theory of operation. Units that need the same are a group, and a group takes its nodes at once, so nothing must be undone when the
last unit finds none: `find` only returns what it would take. Groups come largest first; a node serves one unit of a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.units import Group, Need
from mgpu_jupyter.scheduler.placement import strategies
from mgpu_jupyter.scheduler.placement.filters import room
from mgpu_jupyter.scheduler.placement.gpus import pick
from mgpu_jupyter.scheduler.placement.pool import FOREVER, Pool
from mgpu_jupyter.scheduler.placement.shape import Shape
from mgpu_jupyter.scheduler.placement.slots import Hold, Slot
from mgpu_jupyter.scheduler.placement.strategies import FILL_FIRST, ROUND_ROBIN, SPREAD, TOPOLOGY, Strategy, Wanted

FIRST_TRIED = 8
"""So many nodes are tried as the first of those that must talk with each other."""
Found = list[tuple[Slot, Hold]]
"""What each unit would get, in the order of the units."""


class Finder:
    """Looks for nodes in a pool, at one moment."""

    def __init__(self, pool: Pool, own: Mapping[str, Strategy], last_turn: str = "") -> None:
        self._pool = pool
        self._own = own
        self.last_turn = last_turn
        """The node that `round_robin` took last."""
        self.is_held_back = False
        """Whether the last search left a node out for a promise: one who ends sooner might have it."""

    def find(self, shape: Shape, end: float = FOREVER) -> Found | None:
        """Return what every unit would get if the job ran from now to `end`, or None; promises are kept."""
        self.is_held_back = False
        found: Found = []
        taken: set[NodeId] = set()
        if not self.may_fit(shape):
            return None
        if self._pool.counted is not None and not self._pool.counted.lets(shape.gpus, end):
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
        """Tell whether enough nodes have enough free GPUs; it takes a look at none of them."""
        at_least = self._pool.at_least()
        return all(group.need.gpus < len(at_least) and at_least[group.need.gpus] >= group.count for group in shape.groups)

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
        return able_to_talk(self._pool, ranked, group.count, taken) if looks_at_pairs else ranked[: group.count]

    def _choose_tightest(self, shape: Shape, group: Group, capable: frozenset[NodeId], taken: set[NodeId], end: float) -> list[Slot]:
        """Do the same straight from the index, which costs no look at nodes that are too full."""
        need, rules = group.need, shape.rules
        everywhere = len(capable) == len(self._pool.slots)
        # The bucket alone answers for most requests.
        is_simple = everywhere and not (need.cpus or need.mem_bytes or need.gpu_ids or rules.gpu_type or rules.gpu_mem_bytes)
        chosen: list[Slot] = []
        if is_simple and need.gpus and not taken and not self._pool.promised:
            for bucket in self._pool.buckets[need.gpus :]:
                chosen += map(self._pool.slots.__getitem__, bucket[: group.count - len(chosen)])
            return chosen
        for slot in self._by_bucket(need, end):
            if taken and slot.id in taken:
                continue
            if not is_simple and not ((everywhere or slot.id in capable) and room(slot, need, rules) >= 0):
                continue
            if slot.promises and not self._is_let(slot, need, end):
                continue
            chosen.append(slot)
            if len(chosen) == group.count:
                break
        return chosen

    def _is_let(self, slot: Slot, need: Need, end: float) -> bool:
        if slot.promises and not slot.lets(need, end):
            self.is_held_back = True
            return False
        return True

    def _by_bucket(self, need: Need, end: float) -> Iterator[Slot]:
        """Yield the tightest first; who ends in time goes to promised nodes before others."""
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
        """Return the nodes sorted by strategy, and before that by preferences."""
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
            return strategies.by_own(slots, self._own[name], Wanted(group.count, need.gpus, need.cpus, need.mem_bytes))
        return strategies.by_fill(slots)


def able_to_talk(pool: Pool, slots: list[Slot], count: int, taken: Iterable[NodeId]) -> list[Slot]:
    """Return the first so many nodes that can talk with each other and with those that are taken; as many as there are."""
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
    return Hold(mask, need.cpus, need.mem_bytes)
