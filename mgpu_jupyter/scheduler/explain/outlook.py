"""When a waiting job is expected to start, and what happens until then: who holds its nodes until when, and
who else is expected there; or who is expected on one node.

The forecast is the same pass in virtual time, on a copy of the state, with bounded effort. It assumes that
every job runs as long as planned and succeeds, that nothing else arrives, and that nodes that are away stay
away. The outlook notes what the forecast sees on its way and plans nothing itself. It covers only a few
nodes: those that the job is expected on first, then those of other waiting jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.model.explanations import Forecast, Planned
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import books, dependencies
from mgpu_jupyter.scheduler.explain.snapshot import try_pass
from mgpu_jupyter.scheduler.placement.fit import Found
from mgpu_jupyter.scheduler.placement.pool import FOREVER
from mgpu_jupyter.scheduler.placement.slots import Slot
from mgpu_jupyter.scheduler.planning.plan import promised_start
from mgpu_jupyter.scheduler.state import ClusterState

MAX_STARTS = 2_000
MAX_LOOKS = 2_000_000
"""The most waiting jobs and nodes examined for one job, in all passes together."""
MIN_PASSES = 20

Note = Callable[[Mapping[JobId, Found]], None]
"""Called with the jobs that start at each moment, while the state is at that moment."""


def forecast(state: ClusterState, job_id: JobId, note: Note = lambda _: None) -> Forecast:
    """Return when a job will start; the state is a copy after a pass, and is used up."""
    promised = promised_start(state.planner, job_id)
    if promised is not None:
        return Forecast() if promised == FOREVER else Forecast(at=promised, promised=True)
    job = state.jobs[job_id]
    if job.held:
        return Forecast()
    for started in to_come(state, MAX_LOOKS):
        note(started)
        if job_id in started:
            return Forecast(at=state.now)
    return Forecast() if _next_moment(state) is None else Forecast(later_than=state.now)


def to_come(state: ClusterState, looks: int) -> Iterator[Mapping[JobId, Found]]:
    """Yield the jobs that start at each future moment, while the state is at that moment; ends when nothing
    more is planned, or at its bounds.
    """
    state.pool.extend_overdue(state.now)
    passes = max(MIN_PASSES, looks // (len(state.queue) + len(state.pool.slots) + 1))
    starts = 0
    while passes > 0 and starts <= MAX_STARTS and (moment := _next_moment(state)) is not None:
        passes -= 1
        _advance(state, moment)
        started = try_pass(state)
        yield started
        starts += len(started)


def _next_moment(state: ClusterState) -> float | None:
    moments = [state.pool.ends[0][0]] if state.pool.ends else []
    moments += [state.delayed[0][0]] if state.delayed else []
    moment = min(moments, default=FOREVER)
    return None if moment == FOREVER else moment


def _advance(state: ClusterState, moment: float) -> None:
    state.now = max(state.now, moment)
    while state.pool.ends and state.pool.ends[0][0] <= moment:
        _, job_id = state.pool.ends[0]
        books.move(state, state.jobs[job_id], state_=JobState.COMPLETED)
    books.release_delayed(state, state.now)
    dependencies.settle(state)
    state.wants_pass = True


MOST_NODES = 8
MOST_JOBS = 64


class Outlook:
    """What is held and promised in a copy of the state before the forecast uses it up; then what starts on
    the way.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._held = [
            _planned(other, None, held.end, _slots(held.holds)) for other, held in state.pool.held.items()
        ]
        self._waiting = {
            promise.job_id: _planned(
                promise.job_id, promise.at, promise.end, [slot for slot, _ in promise.units]
            )
            for promise in state.planner.promises
            if promise.units and promise.at != FOREVER
        }

    def started(self, starts: Mapping[JobId, Found]) -> None:
        """Note the jobs that would start at the present moment of the copy."""
        for job_id, found in starts.items():
            end = self._state.pool.held[job_id].end
            self._waiting[job_id] = _planned(job_id, self._state.now, end, _slots(found))

    def expected_on(self, node_id: NodeId) -> tuple[Planned, ...]:
        """Return the waiting jobs that get something of this node, the next one first."""
        return tuple(
            sorted((one for one in self._waiting.values() if node_id in one.nodes), key=_start)[:MOST_JOBS]
        )

    def plan(self, job_id: JobId) -> tuple[Planned, ...]:
        """Return who has or gets the nodes that matter, present holders first; empty when the job's own nodes
        are not known.
        """
        own = self._waiting.get(job_id)
        if own is None:
            return ()
        latest = _start(own)
        others = sorted((one for one in self._waiting.values() if one is not own), key=_start)
        nodes = frozenset(list(dict.fromkeys(_nodes([own, *others])))[:MOST_NODES])
        near = [one for one in (*self._held, own, *others) if nodes.intersection(one.nodes)]
        # Of many small jobs those are shown that are in its way.
        near.sort(
            key=lambda one: (
                one is not own,
                one.start_at is not None,
                one.end_at is not None and one.end_at > latest,
            )
        )
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
    return Planned(
        job_id=one.job_id,
        nodes=tuple(node for node in one.nodes if node in nodes),
        start_at=one.start_at,
        end_at=one.end_at,
    )
