"""When a job that cannot start now will be able to, on which nodes, if all others end as expected. Changes
nothing by itself.

Theory of operation. Walk through the expected ends of what runs; keep, for each node that something ended on,
what would be free. A node satisfies a need from some moment on and stays so, unless something is promised on
it, in which case it is looked at anew at each moment. The first moment at which every group finds its nodes
is the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, groupby

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.model.units import Need
from mgpu_jupyter.scheduler.placement.filters import room
from mgpu_jupyter.scheduler.placement.fit import able_to_talk
from mgpu_jupyter.scheduler.placement.pool import Counted, Pool
from mgpu_jupyter.scheduler.placement.shape import Rules, Shape
from mgpu_jupyter.scheduler.placement.slots import Promised, Slot, seats_of

COUNTED_FROM = 16
"""A promise of fewer nodes names them, so that people see which."""
ONE_GPU = Need(1)


class Promise:
    """A start at a time on certain nodes."""

    __slots__ = ("at", "counted", "end", "job_id", "units")

    def __init__(
        self,
        job_id: JobId,
        at: float,
        end: float,
        units: list[tuple[Slot, Need]],
        counted: Counted | None = None,
    ) -> None:
        self.job_id, self.at, self.end, self.units = job_id, at, end, units
        self.counted = counted
        """Set in place of units when the nodes are many and all alike."""


def look_ahead(pool: Pool, job_id: JobId, shape: Shape, now: float, duration: float) -> Promise | None:
    """Return the earliest start of a job, or None when the nodes that are up never suffice."""
    if _is_counted(pool, shape):
        return _count_ahead(pool, job_id, shape.nodes, now, duration)
    view = _View(pool, shape, now, duration)
    if (units := view.units(now)) is not None:
        return Promise(job_id, now, now + duration, units)
    for moment, ended in _moments(pool, now):
        for ended_id in ended:
            view.end(ended_id)
        if view.may_fit and (units := view.units(moment)) is not None:
            return Promise(job_id, moment, moment + duration, units)
    return None


def keep(pool: Pool, promise: Promise, rules: Rules, now: float) -> None:
    """Note a promise on its nodes."""
    if promise.counted is not None:
        pool.counted = promise.counted
        return
    any_gpu = not rules.gpu_type and not rules.gpu_mem_bytes
    for slot, need in promise.units:
        exact = bool(need.gpu_ids) or not (
            any_gpu or slot.eligible(rules.gpu_type, rules.gpu_mem_bytes) == slot.full_mask
        )
        gpus, cpus, mem, seats = free_at(pool, slot, promise.at, now)
        spare = (gpus - need.gpus, cpus - need.cpus, mem - need.mem_bytes, seats - seats_of(need))
        for other in slot.promises:
            if promise.at <= other.at < promise.end:
                other.lose(need.gpus, need.cpus, need.mem_bytes, seats_of(need))
        pool.promise(slot, Promised(need, promise.at, promise.end, spare, exact=exact))


def _is_counted(pool: Pool, shape: Shape) -> bool:
    need = shape.groups[0].need
    return (
        shape.nodes >= COUNTED_FROM
        and len(shape.groups) == 1
        and need == ONE_GPU
        and not (shape.meets and pool.apart)
        and pool.is_uniform
        and pool.counted is None
        and not pool.promised
        and len(pool.capable(shape.rules, need)) == len(pool.slots)
    )


def _count_ahead(pool: Pool, job_id: JobId, wanted: int, now: float, duration: float) -> Promise | None:
    free = len(pool.buckets[1])
    moments = chain([(now, list[JobId]())], _moments(pool, now))
    for moment, ended in moments:
        free += sum(pool.held[ended_id].taken for ended_id in ended)
        if free >= wanted:
            return Promise(job_id, moment, moment + duration, [], Counted(moment, free - wanted))
    return None


def free_at(pool: Pool, slot: Slot, moment: float, now: float) -> tuple[int, int, int, int]:
    """Return the GPUs, CPUs, memory and seats of a node that are neither held nor promised at a moment, if
    all end as expected.
    """
    mask, cpus, mem, seats = slot.free_mask, slot.free_cpus, slot.free_mem, slot.seats
    if moment > now:
        for job_id, hold in slot.holds.items():
            if pool.held[job_id].end <= moment:
                mask |= hold.taken & slot.usable
                cpus += hold.cpus
                mem += hold.mem_bytes
                seats += hold.seats
    gpus = mask.bit_count()
    for promised in slot.promises:
        if promised.at <= moment < promised.end:
            gpus -= promised.need.gpus
            cpus -= promised.need.cpus
            mem -= promised.need.mem_bytes
            seats -= seats_of(promised.need)
    return gpus, cpus, mem, seats


def _moments(pool: Pool, now: float) -> Iterator[tuple[float, list[JobId]]]:
    """Yield each moment at which something becomes free, with the jobs that end then; what is overdue may
    end at any moment.
    """
    over: list[tuple[float, JobId | None]] = [
        (promised.end, None) for slot in pool.promised for promised in slot.promises if promised.end > now
    ]
    steps: Iterable[tuple[float, JobId | None]] = pool.ends
    if over:
        steps = merge(pool.ends, sorted(over, key=_time), key=_time)
    for moment, together in groupby(steps, key=lambda step: max(step[0], now)):
        yield moment, [job_id for _, job_id in together if job_id is not None]


def _time(step: tuple[float, JobId | None]) -> float:
    return step[0]


class _View:
    """What would be free at the present point of the walk."""

    def __init__(self, pool: Pool, shape: Shape, now: float, duration: float) -> None:
        self._pool, self._shape, self._now, self._duration = pool, shape, now, duration
        self._rules = shape.rules
        self._capable = [pool.capable(shape.rules, group.need) for group in shape.groups]
        self._free: dict[NodeId, tuple[int, int, int, int]] = {}
        # For each group, the nodes that satisfy it by what is free; promises are looked at later.
        self._good: list[dict[NodeId, Slot]] = []
        for group, capable in zip(shape.groups, self._capable, strict=True):
            near = self._near(capable, group.need)
            self._good.append({slot.id: slot for slot in near if room(slot, group.need, shape.rules) >= 0})

    @property
    def may_fit(self) -> bool:
        return all(
            len(good) >= group.count for good, group in zip(self._good, self._shape.groups, strict=True)
        )

    def end(self, job_id: JobId) -> None:
        for slot, hold in self._pool.held[job_id].holds:
            if not slot.up:
                continue
            mask, cpus, mem, seats = self._free.get(slot.id) or (
                slot.free_mask,
                slot.free_cpus,
                slot.free_mem,
                slot.seats,
            )
            free = (
                mask | hold.taken & slot.usable,
                cpus + hold.cpus,
                mem + hold.mem_bytes,
                seats + hold.seats,
            )
            self._free[slot.id] = free
            for index, group in enumerate(self._shape.groups):
                good = self._good[index]
                if (
                    slot.id not in good
                    and slot.id in self._capable[index]
                    and self._satisfies(slot, group.need, free)
                ):
                    good[slot.id] = slot

    def units(self, moment: float) -> list[tuple[Slot, Need]] | None:
        if not self.may_fit:
            return None
        units: list[tuple[Slot, Need]] = []
        taken: set[NodeId] = set()
        for group, good in zip(self._shape.groups, self._good, strict=True):
            chosen = self._choose(list(good.values()), group.need, group.count, taken, moment)
            if len(chosen) < group.count:
                return None
            taken.update(slot.id for slot in chosen)
            units += [(slot, group.need) for slot in chosen]
        return units

    def _choose(
        self, slots: list[Slot], need: Need, count: int, taken: set[NodeId], moment: float
    ) -> list[Slot]:
        # The fullest first: what is free now stays free for jobs that can use it now.
        chosen: list[Slot] = []
        looks_at_pairs = self._shape.meets and bool(self._pool.apart)
        for slot in sorted(slots, key=lambda slot: (slot.free, slot.id)):
            if slot.id in taken or (slot.promises and not self._fits(slot, need, moment)):
                continue
            chosen.append(slot)
            if len(chosen) == count and not looks_at_pairs:
                break
        return able_to_talk(self._pool, chosen, count, taken) if looks_at_pairs else chosen

    def _fits(self, slot: Slot, need: Need, moment: float) -> bool:
        """Tell whether this touches nothing promised on the node; a promise only reduces what is free."""
        end = moment + self._duration
        beside = [promised for promised in slot.promises if promised.at < end and moment < promised.end]
        if any(need.gpu_ids or promised.exact for promised in beside):
            return False
        for then in (moment, *(promised.at for promised in beside if moment < promised.at)):
            gpus, cpus, mem, seats = free_at(self._pool, slot, then, self._now)
            if need.gpus > gpus or need.cpus > cpus or need.mem_bytes > mem or seats_of(need) > seats:
                return False
        return True

    def _satisfies(self, slot: Slot, need: Need, free: tuple[int, int, int, int]) -> bool:
        mask, cpus, mem, seats = free
        if need.cpus > cpus or need.mem_bytes > mem or seats_of(need) > seats:
            return False
        if self._rules.gpu_type or self._rules.gpu_mem_bytes:
            mask &= slot.eligible(self._rules.gpu_type, self._rules.gpu_mem_bytes)
        if need.gpu_ids:
            wanted = slot.mask_of(need.gpu_ids)
            return wanted & mask == wanted
        return mask.bit_count() >= need.gpus

    def _near(self, capable: frozenset[NodeId], need: Need) -> Iterator[Slot]:
        """Yield capable nodes with enough free GPUs, from the index where that is shorter."""
        if len(capable) < len(self._pool.slots):
            yield from map(self._pool.slots.__getitem__, capable)
            return
        for bucket in self._pool.buckets[need.gpus :]:
            yield from map(self._pool.slots.__getitem__, bucket)
