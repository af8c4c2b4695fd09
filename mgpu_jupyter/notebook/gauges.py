"""What the header of a job knows beyond the job itself: its place in the queue, and what its GPUs do. Asks for nothing each time.

A reading costs as much as the job has GPUs, however large cluster and queue are.
"""

from __future__ import annotations

from typing import Protocol

from mgpu_jupyter.api import models
from mgpu_jupyter.notebook.header import Load, Waits


class Gauges(Protocol):
    """Figures about one job."""

    def waits(self, job: models.Job) -> Waits:
        """Return where it stands in the queue."""

    def load(self, job: models.Job) -> Load:
        """Return what its GPUs did lately."""

    def close(self) -> None:
        """Need nothing more."""


class NoGauges:
    """What the job itself tells."""

    def waits(self, job: models.Job) -> Waits:
        """Return what was true when the job changed."""
        return Waits(place=job.place, reason=job.reason, expected_at=job.expected_start_at)

    def load(self, job: models.Job) -> Load:  # noqa: ARG002 - nothing is known
        """Return nothing."""
        return Load()

    def close(self) -> None:
        """Do nothing."""
