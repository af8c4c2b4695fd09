"""Which running jobs are ended so that a waiting one can start: with as little lost work as can be found.
Leaves everything unchanged.

Theory of operation. It tries on the pool itself: victims give back what they have, the finder searches, and
all is taken again. Two methods are tried and the cheaper result is kept: the cheapest victims wherever they
are, and node by node, where the cheapest set of victims that frees enough GPUs of a node is exact. Victims
that turn out not to be needed are left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.scheduler.placement.fit import Finder
from mgpu_jupyter.scheduler.placement.pool import Held, Pool
from mgpu_jupyter.scheduler.placement.shape import Shape
from mgpu_jupyter.scheduler.placement.slots import Slot


class Victim(msgspec.Struct, frozen=True):
    """A job that may be ended, and the work lost by that."""

    job_id: JobId
    cost: float
    """GPU-seconds; a job on several nodes counts once."""
    ran_s: float = 0.0
    """Decides among those that cost the same: the youngest is ended."""


def choose(
    pool: Pool, finder: Finder, shape: Shape, *, victims: Iterable[Victim], ending: Iterable[JobId]
) -> list[JobId]:
    """Return the jobs to end so that `shape` finds its nodes; none when that is impossible, or when those
    that are already ending are enough.
    """
    trial = _Trial(pool, finder, shape)
    by_cost = sorted(victims, key=lambda one: (one.cost, one.ran_s, one.job_id))
    try:
        trial.give(ending)
        if trial.fits():
            return []
        ways = [_enough(trial, by_cost), _enough(trial, _by_node(pool, shape, by_cost))]
    finally:
        trial.undo()
    found = [way for way in ways if way]
    best = min(found, key=lambda way: (sum(one.cost for one in way), len(way)), default=[])
    return [one.job_id for one in best]


class _Trial:
    """The pool without some jobs, for a moment."""

    def __init__(self, pool: Pool, finder: Finder, shape: Shape) -> None:
        self._pool, self._finder, self._shape = pool, finder, shape
        self._given: dict[JobId, Held] = {}

    def fits(self) -> bool:
        return self._finder.find(self._shape) is not None

    def give(self, job_ids: Iterable[JobId]) -> None:
        for job_id in job_ids:
            self._given[job_id] = self._pool.held[job_id]
            self._pool.give(job_id)

    def take(self, job_id: JobId) -> None:
        held = self._given.pop(job_id)
        self._pool.take(job_id, held.begun, held.end, held.holds)

    def undo(self) -> None:
        for job_id in list(self._given):
            self.take(job_id)


def _enough(trial: _Trial, victims: Iterable[Victim]) -> list[Victim]:
    """Return the first victims that are enough, without needless ones; leaves the trial as it was."""
    chosen: list[Victim] = []
    for victim in victims:
        chosen.append(victim)
        trial.give([victim.job_id])
        if trial.fits():
            break
    else:
        for victim in chosen:
            trial.take(victim.job_id)
        return []
    for victim in sorted(chosen, key=lambda one: -one.cost):
        trial.take(victim.job_id)
        if trial.fits():
            chosen.remove(victim)
        else:
            trial.give([victim.job_id])
    for victim in chosen:
        trial.take(victim.job_id)
    return chosen


def _by_node(pool: Pool, shape: Shape, victims: list[Victim]) -> list[Victim]:
    """Return victims node by node, first the node on which the least is lost; nodes that cannot be freed
    enough are left out.
    """
    need = shape.groups[0].need
    on_node: dict[Slot, list[Victim]] = {}
    for victim in victims:
        for slot, _ in pool.held[victim.job_id].holds:
            if slot.up and slot.id in pool.capable(shape.rules, need):
                on_node.setdefault(slot, []).append(victim)
    sets = []
    for slot, those in on_node.items():
        wanted = slot.usable.bit_count() if need.exclusive else need.gpus
        cheapest = _cheapest(slot, those, wanted - slot.free)
        if cheapest is not None:
            sets.append((sum(one.cost for one in cheapest), slot.id, cheapest))
    order = {one.job_id: one for _, _, cheapest in sorted(sets, key=lambda one: one[:2]) for one in cheapest}
    return list(order.values())


def _cheapest(slot: Slot, victims: list[Victim], gpus: int) -> list[Victim] | None:
    """Return the victims on a node that free this many GPUs at the least cost, or None when all of them are
    not enough.
    """
    best: dict[int, tuple[float, list[Victim]]] = {0: (0.0, [])}
    for victim in victims:
        freed = (slot.holds[victim.job_id].taken & slot.usable).bit_count()
        for had, (cost, those) in sorted(best.items(), reverse=True):
            total = min(had + freed, max(gpus, 0))
            if total not in best or cost + victim.cost < best[total][0]:
                best[total] = (cost + victim.cost, [*those, victim])
    return best[max(gpus, 0)][1] if max(gpus, 0) in best else None
