"""One pass over the state: recompute priorities when due, then decide who starts. Used by the machine and, in
virtual time, by the simulator.
"""

from __future__ import annotations

from mgpu_jupyter.scheduler.placement.fit import Finder
from mgpu_jupyter.scheduler.planning.plan import Start
from mgpu_jupyter.scheduler.state import ClusterState


def run_pass(state: ClusterState, start: Start) -> None:
    """Start all jobs that can start; `start` moves each of them on, after its resources were taken."""
    whole, state.wants_pass = state.wants_pass, False
    if whole:
        _reorder(state)
    finder = Finder(state.pool, state.site.own, state.last_turn)
    state.planner.run(state.now, finder, state.quotas.may_start, start, whole=whole)
    state.last_turn = finder.last_turn


def _reorder(state: ClusterState) -> None:
    settings = state.policy.scheduling
    if settings.planning.weights.fair_share and state.now - state.ordered_at >= settings.reorder_s:
        state.ordered_at = state.now
        state.queue.reorder(lambda user, account: state.shares.bonus(user, account, state.now))
