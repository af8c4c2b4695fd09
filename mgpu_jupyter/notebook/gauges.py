"""What the header of a job shows beyond the job itself: its place in the queue, and the load of its GPUs.
Sends no request for a reading.

All headers and panels of a kernel share one live mirror of the cluster (`client/live.py`). The cost of a
reading depends on the job's GPUs, not on the size of cluster and queue.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from mgpu_jupyter.api import models
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.live import LiveState, Reader, View, mirror_of
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.header_text import Load, Waits
from mgpu_jupyter.notebook.style import POINTS

MIB = 1024 * 1024
EVERY_S = 0.9
"""Readings come once a second; more often would draw the same one twice."""


class Gauges(Protocol):
    """Figures about one job."""

    def waits(self, job: models.Job) -> Waits:
        """Return its place in the queue."""

    def load(self, job: models.Job) -> Load:
        """Return the recent load of its GPUs."""

    def close(self) -> None:
        """Release the resources."""


class NoGauges:
    """What the job itself tells."""

    def waits(self, job: models.Job) -> Waits:
        """Return what was true when the job changed."""
        return Waits(place=job.place, reason=job.reason, expected_at=job.expected_start_at)

    def load(self, job: models.Job) -> Load:  # noqa: ARG002 - nothing is known
        """Return that nothing is known."""
        return Load()

    def close(self) -> None:
        """Do nothing."""


class LiveGauges:
    """What the live mirror of the cluster tells; until it is live, what the job itself tells."""

    def __init__(
        self, open_reader: Callable[[], Reader], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open_reader = open_reader
        self._clock = clock
        self._reader: Reader | None = None
        self._at = 0.0
        self._attempt = 0
        self._busy: deque[float | None] = deque(maxlen=POINTS)
        self._memory: deque[float | None] = deque(maxlen=POINTS)
        self._total = 0

    @property
    def _view(self) -> View:
        if self._reader is None:
            self._reader = self._open_reader()
        return self._reader.view

    def waits(self, job: models.Job) -> Waits:
        """Return its present place; while the mirror does not know the job, what the job itself tells."""
        now = self._view.waiting(job.id)
        if now is None:
            return NoGauges().waits(job)
        return Waits(
            place=now.place or job.place,
            of=now.of or None,
            reason=now.reason or job.reason,
            expected_at=now.expected_at or job.expected_start_at,
        )

    def load(self, job: models.Job) -> Load:
        """Return the recent load of its GPUs, one reading a second since the first call."""
        now = self._clock()
        if job.attempt != self._attempt:
            self._attempt = job.attempt
            self._busy.clear()
            self._memory.clear()
        if job.state is JobState.RUNNING and now - self._at >= EVERY_S:
            view = self._view
            if view.state is LiveState.LIVE:
                self._at = now
                self._take(job, view)
        return Load(busy=tuple(self._busy), memory=tuple(self._memory), memory_total=self._total)

    def close(self) -> None:
        """Release the mirror; the last reader stops it."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _take(self, job: models.Job, view: View) -> None:
        busy: list[float] = []
        used: list[float] = []
        wanted: dict[str, set[int]] = {}
        for placement in job.placements:
            wanted.setdefault(placement.node, set()).update(placement.gpu_indices)
        for node, indices in wanted.items():
            told = view.reading(node).gpus
            for read in filter(None, (told.get(str(index)) for index in indices)):
                if read[0] is not None:
                    busy.append(read[0])
                if read[1] is not None:
                    used.append(read[1] * MIB)
        if not self._total and job.nodes:
            known = view.nodes.get(job.nodes[0])
            mine = wanted.get(job.nodes[0], set())
            self._total = (
                next((gpu.memory_bytes for gpu in known.gpus if gpu.index in mine), 0)
                if known is not None
                else 0
            )
        self._busy.append(sum(busy) / len(busy) if busy else None)
        self._memory.append(sum(used) / len(used) if used else None)


def gauges_of(client: Client) -> LiveGauges:
    """Return the gauges of one job of this client; no request is sent before they are used."""
    return LiveGauges(lambda: mirror_of(client).reader())
