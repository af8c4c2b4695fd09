"""When a waiting job is expected to start: the very same pass, in virtual time, on a copy of the state. Bounded in effort.

Everybody is expected to run as long as is planned for them, to succeed, nothing else to arrive, and nodes that are away to stay away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.model.explanations import Forecast
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import books, waits
from mgpu_jupyter.scheduler.explain.snapshot import try_pass
from mgpu_jupyter.scheduler.placement.fit import Found
from mgpu_jupyter.scheduler.placement.pool import FOREVER
from mgpu_jupyter.scheduler.planning.plan import promised_start
from mgpu_jupyter.scheduler.state import ClusterState

MAX_STARTS = 2_000
MAX_LOOKS = 2_000_000
"""So many waiting jobs and nodes are looked at for one job, in all passes together."""
MIN_PASSES = 20


Note = Callable[[Mapping[JobId, Found]], None]
"""Told of those who start at each moment, while the state stands there."""


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
    """Yield who starts at each moment to come, while the state stands there; ends when nothing is planned any more, or at its bounds."""
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
    waits.settle(state)
    state.wants_pass = True
