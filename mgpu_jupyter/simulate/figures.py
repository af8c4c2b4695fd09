"""The results of a replay in numbers: waiting, completion, slowdown, use. Computes only; prints nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, pairwise

import msgspec

from mgpu_jupyter.simulate.world import Replay

SHORTEST_RUN_S = 10.0
"""Shorter runs count as this long for the slowdown, so that a wait of a minute before a run of a second does
not dominate it.
"""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of `--json`."""

    n_jobs: int
    avg_wait_s: float
    p95_wait_s: float
    max_wait_s: float
    avg_jct_s: float
    """From submission to end."""
    avg_bsld: float
    """Bounded slowdown: how much longer than its run a job took, at least 1."""
    utilisation: float
    makespan_s: float
    wall_s: float
    jobs_per_s: float
    """Jobs replayed in a second of real time."""
    passes: int
    promised: int
    late: int
    too_large: int
    without_gpus: int
    nodes: int
    gpus_per_node: int


def figures_of(replay: Replay) -> Figures:
    """Return the figures of a replay."""
    works, starts, cluster = replay.works, replay.starts, replay.cluster
    jobs = len(works)
    waits = sorted(start - work.submit_s for work, start in zip(works, starts, strict=True))
    runs = sum(work.duration_s for work in works)
    slowdowns = (
        max(1.0, (start - work.submit_s + work.duration_s) / max(work.duration_s, SHORTEST_RUN_S))
        for work, start in zip(works, starts, strict=True)
    )
    makespan = (
        max(start + work.duration_s for work, start in zip(works, starts, strict=True)) - works[0].submit_s
    )
    used = sum(work.gpus * work.duration_s for work in works)
    return Figures(
        n_jobs=jobs,
        avg_wait_s=sum(waits) / jobs,
        p95_wait_s=waits[int(0.95 * (jobs - 1) + 0.5)],
        max_wait_s=waits[-1],
        avg_jct_s=(sum(waits) + runs) / jobs,
        avg_bsld=sum(slowdowns) / jobs,
        utilisation=used / (cluster.gpus * makespan) if makespan else 0.0,
        makespan_s=makespan,
        wall_s=replay.wall_s,
        jobs_per_s=jobs / replay.wall_s if replay.wall_s else 0.0,
        passes=replay.passes,
        promised=replay.promised,
        late=replay.late,
        too_large=replay.too_large,
        without_gpus=replay.without_gpus,
        nodes=cluster.nodes,
        gpus_per_node=cluster.gpus_per_node,
    )


Curve = tuple[list[float], list[float]]
"""Times, and the value from each of them on."""


def held_over_time(replay: Replay, user: str | None = None) -> Curve:
    """Return how many GPUs were held, by all or by one user."""
    steps: list[tuple[float, float]] = []
    for work, start in zip(replay.works, replay.starts, strict=True):
        if user is None or work.user == user:
            steps += [(start, work.gpus), (start + work.duration_s, -work.gpus)]
    return _curve(steps)


def waiting_over_time(replay: Replay) -> Curve:
    """Return how many jobs waited."""
    steps: list[tuple[float, float]] = []
    for work, start in zip(replay.works, replay.starts, strict=True):
        steps += [(work.submit_s, 1), (start, -1)]
    return _curve(steps)


def used_until(replay: Replay, user: str, at: float) -> float:
    """Return the GPU-seconds that a user had used by then."""
    return sum(
        work.gpus * max(0.0, min(at, start + work.duration_s) - start)
        for work, start in zip(replay.works, replay.starts, strict=True)
        if work.user == user
    )


def mean_over(curve: Curve, begin: float, end: float, parts: int) -> Curve:
    """Return the mean of a curve over each of `parts` equal spans of time."""
    times, values = curve
    areas = list(
        accumulate(
            (value * (after - at) for value, (at, after) in zip(values, pairwise(times), strict=False)),
            initial=0.0,
        )
    )

    def area(at: float) -> float:
        last = bisect_right(times, at) - 1
        return areas[last] + values[last] * (at - times[last]) if last >= 0 else 0.0

    width = (end - begin) / parts
    edges = [begin + part * width for part in range(parts + 1)]
    return edges[:-1], [(area(after) - area(at)) / width for at, after in pairwise(edges)]


def _curve(steps: Iterable[tuple[float, float]]) -> Curve:
    ordered = sorted(steps)
    return [at for at, _ in ordered], list(accumulate(change for _, change in ordered))
