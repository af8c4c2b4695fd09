"""Bodies about the past: histories of GPUs, jobs and the cluster. Values only.

Histories are columns: all lists of one answer are as long as its `times`, and null means that there was no
reading at that time.
"""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.model.job import JobState

MAX_POINTS = 2_000
LEAST_SPAN_S = 10
MAX_SPAN_S = 30 * 86_400


class GpuHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The readings of one GPU."""

    index: int
    uuid: GpuUuid
    busy: tuple[int | None, ...]
    """In percent."""
    memory_mib: tuple[int | None, ...]
    temperature: tuple[int | None, ...]
    power: tuple[int | None, ...]


class NodeHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The readings of one node over a time; the older, the coarser."""

    node: NodeId
    step_s: float
    """Each point is the mean over this many seconds."""
    times: tuple[float, ...]
    """Start of each point; times without a reading are left out."""
    cpu: tuple[int | None, ...]
    memory_available_mib: tuple[int | None, ...]
    gpus: tuple[GpuHistory, ...]
    message: str = ""
    """Why there is nothing, or less than was asked for."""


class GpuUsage(msgspec.Struct, frozen=True, kw_only=True):
    """How a job used one of its GPUs."""

    node: NodeId
    index: int
    uuid: GpuUuid
    rank: int | None = None
    """The rank that it belongs to, where that follows from their numbers."""
    busy_mean: float | None = None
    """In percent, over all readings."""
    busy_max: float | None = None
    memory_peak_mib: int | None = None
    memory_mib: int = 0
    """The memory that it has."""
    idle: bool = False
    """Whether it was never really busy."""
    busy: tuple[int | None, ...] = ()
    memory: tuple[int | None, ...] = ()
    """Used, in MiB."""


class JobUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asked for and what it used, over the run time of its newest attempt."""

    job_id: JobId
    state: JobState
    attempt: int
    asked: int
    """GPUs."""
    used: float | None = None
    """GPUs that were busy, on average: 1.3 of 4."""
    energy_wh: float | None = None
    """The energy that its GPUs used, in watt-hours, where they report it."""
    hint: str = ""
    """What would have been enough, in a sentence; empty when there is nothing to say."""
    readings: int = 0
    step_s: float = 0.0
    times: tuple[float, ...] = ()
    gpus: tuple[GpuUsage, ...] = ()
    message: str = ""
    """Why there is nothing, or less than the whole run."""


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """How long jobs of one size waited until they started."""

    gpus: str
    """What they asked for: `0`, `1`, `2`, `3-4`, `5-8`, `9-16`, `17-31` or `32+`."""
    jobs: int
    least_s: float
    quarter_s: float
    median_s: float
    three_quarters_s: float
    p95_s: float


class ClusterHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of the cluster. `ended` and the jobs survive restarts, `gpus` and `busy` begin with this
    master.
    """

    step_s: float
    times: tuple[float, ...]
    gpus: tuple[int | None, ...]
    """On nodes that are online."""
    in_use: tuple[float, ...]
    """GPUs that jobs hold."""
    mine: tuple[float, ...]
    """Those of them that are yours."""
    busy: tuple[float | None, ...]
    """GPUs that compute: 4.2 of 8."""
    waiting: tuple[float, ...]
    """Jobs."""
    wanted: tuple[float, ...]
    """GPUs that waiting jobs ask for."""
    ended: dict[str, tuple[int, ...]]
    """Jobs that ended, by state."""
    waits: tuple[Waits, ...] = ()
    """Of jobs that started in this time, smallest first; sizes without jobs are left out."""
    median_wait_s: float | None = None
    p95_wait_s: float | None = None
    ended_total: int = 0
    succeeded_percent: float | None = None
    """Of those that ended without being cancelled."""
    busy_mean_percent: float | None = None
    message: str = ""
