"""What happens until a waiting job starts: who holds its nodes until when, and who else is expected there; or who is, on one node.

It notes what the forecast sees on its way and plans nothing itself. Only a few nodes are told of: those that the job is expected on
first, then those of others who wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.model.explanations import Planned
from mgpu_jupyter.scheduler.placement.fit import Found
from mgpu_jupyter.scheduler.placement.pool import FOREVER
from mgpu_jupyter.scheduler.placement.slots import Slot
from mgpu_jupyter.scheduler.state import ClusterState

MOST_NODES = 8
MOST_JOBS = 64


class Outlook:
    """What is held and promised in a copy of the state, before the forecast uses it up; then what starts on the way."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._held = [_planned(other, None, held.end, _slots(held.holds)) for other, held in state.pool.held.items()]
        self._waiting = {
            promise.job_id: _planned(promise.job_id, promise.at, promise.end, [slot for slot, _ in promise.units])
            for promise in state.planner.promises
            if promise.units and promise.at != FOREVER
        }

    def started(self, starts: Mapping[JobId, Found]) -> None:
        """Note who would start at the moment that the copy has come to."""
        for job_id, found in starts.items():
            end = self._state.pool.held[job_id].end
            self._waiting[job_id] = _planned(job_id, self._state.now, end, _slots(found))

    def expected_on(self, node_id: NodeId) -> tuple[Planned, ...]:
        """Return who waits and gets something of this node, the next one first."""
        return tuple(sorted((one for one in self._waiting.values() if node_id in one.nodes), key=_start)[:MOST_JOBS])

    def plan(self, job_id: JobId) -> tuple[Planned, ...]:
        """Return who has or gets the nodes that matter, those that hold them now first; nothing when its own are not known."""
        own = self._waiting.get(job_id)
        if own is None:
            return ()
        latest = _start(own)
        others = sorted((one for one in self._waiting.values() if one is not own), key=_start)
        nodes = frozenset(list(dict.fromkeys(_nodes([own, *others])))[:MOST_NODES])
        near = [one for one in (*self._held, own, *others) if nodes.intersection(one.nodes)]
        # Of many small ones those count that are in its way.
        near.sort(key=lambda one: (one is not own, one.start_at is not None, one.end_at is not None and one.end_at > latest))
        return tuple(_on(one, nodes) for one in near[:MOST_JOBS])


def _planned(job_id: JobId, start_at: float | None, end_at: float, slots: Iterable[Slot]) -> Planned:
    return Planned(
        job_id=job_id,
        nodes=tuple(dict.fromkeys(slot.id for slot in slots)),
        start_at=start_at,
        end_at=None if end_at == FOREVER else end_at,
    )


def _slots(found: Found) -> list[Slot]:
    return [slot for slot, _ in found]


def _start(one: Planned) -> float:
    return one.start_at or 0.0


def _nodes(planned: Iterable[Planned]) -> Iterator[NodeId]:
    for one in planned:
        yield from one.nodes


def _on(one: Planned, nodes: frozenset[NodeId]) -> Planned:
    return Planned(job_id=one.job_id, nodes=tuple(node for node in one.nodes if node in nodes), start_at=one.start_at, end_at=one.end_at)
