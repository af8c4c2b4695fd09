"""When jobs came, started and ended, in a few numbers each, so that the past can be drawn. Knows no readings.

At the start the newest jobs are read from the store, so that this survives a restart; from then on every
change is received. For a job that ran several times the last start counts.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api.histories import Waits
from mgpu_jupyter.model.job import FINAL_STATES, JobState
from mgpu_jupyter.model.units import units_of
from mgpu_jupyter.scheduler.model import Job

ENDED_KEPT = 20_000
SIZES: tuple[tuple[int, str], ...] = (
    (0, "0"),
    (1, "1"),
    (2, "2"),
    (4, "3-4"),
    (8, "5-8"),
    (16, "9-16"),
    (31, "17-31"),
)
LARGE = "32+"


class Life(NamedTuple):
    """The times of one job."""

    user: str
    gpus: int
    state: JobState
    submitted: float
    started: float | None
    ended: float | None


class Curves(NamedTuple):
    """Means over each step."""

    in_use: list[float]
    mine: list[float]
    waiting: list[float]
    wanted: list[float]
    ended: dict[str, list[int]]


class Chronicle:
    """All jobs that are not over, and the newest that are. Belongs to the server's loop."""

    def __init__(self) -> None:
        self._active: dict[JobId, Life] = {}
        self._ended: deque[Life] = deque(maxlen=ENDED_KEPT)

    def take(self, job: Job) -> None:
        """Take a new version of a job."""
        known = self._active.get(job.id)
        life = (
            life_of(job)
            if known is None
            else known._replace(state=job.state, started=job.started_at, ended=job.ended_at)
        )
        if job.state.is_final:
            self._active.pop(job.id, None)
            self._ended.append(life)
        else:
            self._active[job.id] = life

    def load(self, lives: Iterable[tuple[JobId, Life]]) -> None:
        """Take what the store had at the start, oldest first; what was received meanwhile is newer."""
        ended: list[Life] = []
        for job_id, life in lives:
            if life.state in FINAL_STATES:
                ended.append(life)
            else:
                self._active.setdefault(job_id, life)
        self._ended.extendleft(reversed(ended[-(ENDED_KEPT - len(self._ended)) or len(ended) :]))

    def lives(self) -> list[Life]:
        """Return a copy for another thread."""
        return [*self._ended, *self._active.values()]


def life_of(job: Job) -> Life:
    """Return the times of a job."""
    gpus = sum(unit.gpus for unit in units_of(job.spec))
    return Life(job.user, gpus, job.state, job.submitted_at, job.started_at, job.ended_at)


class _Steps:
    """The mean number over each step, computed from spans; a span of any length costs the same."""

    def __init__(self, since: float, step_s: float, count: int) -> None:
        self._since, self._step_s, self._count = since, step_s, count
        self._edges = [0.0] * count
        self._changes = [0.0] * (count + 1)

    def add(self, begin: float, end: float, weight: float) -> None:
        first = max(0.0, (begin - self._since) / self._step_s)
        last = min(float(self._count), (end - self._since) / self._step_s)
        if last <= first or not weight:
            return
        left, right = math.floor(first), math.floor(last)
        if left == right:
            self._edges[left] += weight * (last - first)
            return
        self._edges[left] += weight * (left + 1 - first)
        self._changes[left + 1] += weight
        self._changes[right] -= weight
        if right < self._count:
            self._edges[right] += weight * (last - right)

    def means(self) -> list[float]:
        found: list[float] = []
        level = 0.0
        for edge, change in zip(self._edges, self._changes, strict=False):
            level += change
            found.append(round(level + edge, 2))
        return found


def curves_of(lives: Sequence[Life], user: str, since: float, until: float, count: int) -> Curves:
    """Return what jobs held and asked for in this many steps."""
    step_s = (until - since) / count
    in_use, mine, waiting, wanted = (_Steps(since, step_s, count) for _ in range(4))
    ended = {str(state): [0] * count for state in sorted(FINAL_STATES)}
    for life in lives:
        if life.ended is not None and life.ended < since:
            continue
        over = until if life.ended is None else life.ended
        begun = over if life.started is None else life.started
        waiting.add(life.submitted, begun, 1.0)
        wanted.add(life.submitted, begun, life.gpus)
        if life.started is not None:
            in_use.add(life.started, over, life.gpus)
            mine.add(life.started, over, life.gpus if life.user == user else 0.0)
        if life.ended is not None and life.ended <= until:
            ended[life.state][min(count - 1, int((life.ended - since) / step_s))] += 1
    return Curves(in_use.means(), mine.means(), waiting.means(), wanted.means(), ended)


def waits_of(lives: Sequence[Life], since: float) -> tuple[tuple[Waits, ...], float | None, float | None]:
    """Return how long jobs waited that started since then: by size, and median and 95th percentile of all."""
    by_size: dict[str, list[float]] = {name: [] for _, name in (*SIZES, (0, LARGE))}
    for life in lives:
        if life.started is not None and life.started >= since:
            by_size[size_of(life.gpus)].append(max(0.0, life.started - life.submitted))
    every = sorted(wait for waits in by_size.values() for wait in waits)
    if not every:
        return (), None, None
    found = tuple(_box(name, sorted(waits)) for name, waits in by_size.items() if waits)
    return found, round(quantile(every, 0.5), 1), round(quantile(every, 0.95), 1)


def size_of(gpus: int) -> str:
    """Return the name of a size."""
    return next((name for most, name in SIZES if gpus <= most), LARGE)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of values is, interpolated between two values."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _box(name: str, waits: Sequence[float]) -> Waits:
    least, quarter, median, three, high = (
        round(quantile(waits, share), 1) for share in (0.0, 0.25, 0.5, 0.75, 0.95)
    )
    return Waits(
        gpus=name,
        jobs=len(waits),
        least_s=least,
        quarter_s=quarter,
        median_s=median,
        three_quarters_s=three,
        p95_s=high,
    )
