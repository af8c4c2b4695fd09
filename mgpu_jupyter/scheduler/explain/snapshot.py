"""The state at one moment, and copies of it to try things on. Cheap enough to take in the master's own
thread.

What it reads of the live state afterwards never changes: values, and what queue and pool replace instead of
modifying.
"""

from __future__ import annotations

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.passing import run_pass
from mgpu_jupyter.scheduler.placement.fit import Found
from mgpu_jupyter.scheduler.planning.queue import Entry, Lane
from mgpu_jupyter.scheduler.state import ClusterState


class StateSnapshot:
    """All that decisions are made from, at one moment."""

    def __init__(self, state: ClusterState, at: float) -> None:
        self._still = _shallow(state)
        self._still.now = max(state.now, at)
        self._still.pool = state.pool.copy()
        self._still.queue = state.queue.without_jobs()
        self._order = [(entry, entry.key) for entry in state.queue.order]
        self._lanes = [(lane, lane.until) for lane in state.queue.lanes.values()]
        self._planner = state.planner.copy(state.queue, state.pool)
        self.away = {
            node.id: (node.away_since, node.link_reason)
            for node in state.nodes.values()
            if node.away_since is not None
        }
        """The nodes that are away: since when, and why."""

    @property
    def now(self) -> float:
        """The moment of the snapshot."""
        return self._still.now

    @property
    def size(self) -> int:
        """How much there is to copy: nodes and waiting jobs."""
        return len(self._still.pool.slots) + len(self._order)

    def state(self) -> ClusterState:
        """Return a copy that may be changed."""
        twin = _shallow(self._still)
        twin.pool, twin.queue = self._still.pool.copy(), self._still.queue.without_jobs()
        lanes: dict[Lane, Lane] = {}
        for lane, until in self._lanes:
            lanes[lane] = twin.queue.lane(lane.shape)
            lanes[lane].until = until
        twin.queue.fill([entry.copy(lanes[entry.lane], key) for entry, key in self._order])
        twin.planner = self._planner.copy(twin.queue, twin.pool)
        return twin


def try_pass(state: ClusterState) -> dict[JobId, Found]:
    """Make one pass on a copy of the state and return who started where."""
    started: dict[JobId, Found] = {}

    def start(entry: Entry, found: Found) -> None:
        job = state.jobs[entry.job_id]
        books.move(state, job, state_=JobState.STARTING, attempt=job.attempt + 1)
        started[entry.job_id] = found

    run_pass(state, start)
    return started


def _shallow(state: ClusterState) -> ClusterState:
    """Return a copy without nodes, pool and queue."""
    twin = ClusterState(state.policy, state.strategies)
    twin.jobs, twin.delayed = dict(state.jobs), list(state.delayed)
    twin.dependents = {job_id: dict(waiting) for job_id, waiting in state.dependents.items()}
    twin.quotas, twin.shares, twin.estimates = (
        state.quotas.copy(),
        state.shares.copy(),
        state.estimates.copy(),
    )
    twin.now, twin.ordered_at, twin.last_turn = state.now, state.ordered_at, state.last_turn
    twin.epoch, twin.number, twin.wants_pass = state.epoch, state.number, state.wants_pass
    return twin
