"""The queue as rows: which there are and in which order. Pure; what a row shows is in `queue_columns`.

Jobs under way first, in the order of their start; then waiting ones by place; then those not in the queue
(held, delayed, waiting for other jobs). Waiting jobs of an array are one row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models
from mgpu_jupyter.model.job import JobState

UNDER_WAY = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
HELD = "held"


class Row(msgspec.Struct, frozen=True):
    """One job, or the waiting jobs of an array."""

    key: str
    """The id for orders."""
    job: models.Job
    count: int = 1
    place: int | None = None
    indices: tuple[int, ...] = ()
    """Numbers of the waiting jobs of an array."""


class Sections(NamedTuple):
    """The rows of a queue, under its three headings."""

    running: list[Row]
    waiting: list[Row]
    over: list[Row]


def sections_of(jobs: Iterable[models.Job], places: Mapping[JobId, int] | None = None) -> Sections:
    """Return the rows in order; `places` overrides the places in the jobs themselves."""
    running: list[models.Job] = []
    waiting: list[tuple[tuple[int, float], Row]] = []
    over: list[Row] = []
    arrays: dict[str, list[tuple[tuple[int, int], models.Job, int | None]]] = {}
    for job in jobs:
        if job.state.is_final:
            over.append(Row(job.id, job))
        elif job.state is not JobState.QUEUED:
            running.append(job)
        else:
            place = job.place if places is None else places.get(job.id)
            if job.array_id is None:
                waiting.append(((place or sys.maxsize, job.submitted_at), Row(job.id, job, 1, place)))
            else:
                order = (place or sys.maxsize, job.array_index or 0)
                arrays.setdefault(job.array_id, []).append((order, job, place))
    for array_id, members in arrays.items():
        order, first, place = min(members, key=lambda one: one[0])
        indices = tuple(sorted(job.array_index or 0 for _, job, _ in members))
        waiting.append(((order[0], first.submitted_at), Row(array_id, first, len(members), place, indices)))
    running.sort(key=lambda job: job.started_at or job.submitted_at)
    waiting.sort(key=lambda pair: pair[0])
    return Sections([Row(job.id, job) for job in running], [row for _, row in waiting], over)


class RowContext(Protocol):
    """What is known in addition to the jobs themselves."""

    @property
    def now(self) -> float:
        """When the queue is looked at."""

    def is_mine(self, job: models.Job) -> bool:
        """Tell whether it belongs to the user who looks, and need not be named."""

    def reason(self, job: models.Job) -> str:
        """Return why it waits."""

    def expected(self, job: models.Job) -> float | None:
        """Return when it is expected to start."""

    def start(self, job: models.Job) -> str:
        """Return the expected start in words, if it was asked for."""

    def busy(self, job: models.Job) -> float | None:
        """Return how busy its GPUs are, in percent, where they report it."""


class Listed:
    """What a list of the master tells about its jobs."""

    def __init__(self, now: float, starts: Mapping[str, str] | None = None) -> None:
        self.now = now
        self._starts = starts or {}

    def is_mine(self, job: models.Job) -> bool:  # noqa: ARG002 - a list names everybody
        """Return False: everybody is named."""
        return False

    def reason(self, job: models.Job) -> str:
        """Return why it waits."""
        return job.reason

    def expected(self, job: models.Job) -> float | None:
        """Return when it is expected to start."""
        return job.expected_start_at

    def start(self, job: models.Job) -> str:
        """Return the expected start in words, if it was asked for."""
        return self._starts.get(job.id, "")

    def busy(self, job: models.Job) -> float | None:  # noqa: ARG002 - a list has no readings
        """Return None: a list has no readings."""
        return None


def title(job: models.Job) -> str:
    """Return the title of a job: its name, else its command."""
    return job.name or job.command or job.id


def is_held(job: models.Job) -> bool:
    """Tell whether a job waits to be released."""
    return job.state is JobState.QUEUED and job.reason_code == HELD
