"""Bodies of what moves: frames of the events' WebSocket, and histories of GPUs, jobs and the cluster. Values only.

Histories are columns: all lists of one answer are as long as its `times`, and null means that nothing was told at that time.
"""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api.models import JobFrame, NodeFrame, PingFrame, ReadyFrame
from mgpu_jupyter.model.job import JobState

MAX_POINTS = 2_000
LEAST_SPAN_S = 10
MAX_SPAN_S = 30 * 86_400

GpuReading = tuple[int | None, int | None, int | None, int | None]
"""Busy in percent, memory used in MiB, temperature in °C, power in W; whole numbers, null where the GPU does not tell."""


# --- frames -----------------------------------------------------------------------------------------


class NodeReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changed of one node's readings; what is left out is as before."""

    cpu: int | None = None
    """CPUs busy, in percent."""
    memory_available_mib: int | None = None
    gpus: dict[str, GpuReading] = {}
    """By the index of the GPU, which JSON writes as text."""


class SamplesFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="samples"):
    """Readings that changed since the last such frame; the first after a connect has all. At most one a second."""

    at: float
    nodes: dict[NodeId, NodeReading]


class Why(msgspec.Struct, frozen=True, array_like=True):
    """Why jobs wait, as `[code, text]`."""

    code: str
    text: str


class QueueFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="queue", omit_defaults=True):
    """How the queue changed since the version `base`; all of it when there is no `base`.

    To apply: take `removed` out, then put each of `inserted` in at its index, in the order given (a job that moved is in both);
    forget all jobs of `removed` that are not inserted again in `why` and `expected`, then set what is named.
    """

    version: int
    """Say it as `queue` when you connect again, and only what changed since comes."""
    base: int | None = None
    removed: tuple[JobId, ...] = ()
    inserted: tuple[tuple[int, tuple[JobId, ...]], ...] = ()
    """Index in the queue (0 is next) and the jobs that stand there from then on."""
    reasons: dict[str, Why] = {}
    """By number: new ones, and those whose words changed; many jobs share one."""
    why: dict[JobId, int] = {}
    """The number of the reason of each job for which it is another one."""
    expected: dict[JobId, float | None] = {}
    """When a job is to start (seconds since 1970), where that changed; null when it is not known any more."""


class GoneFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="gone", omit_defaults=True):
    """These were removed or purged, and nothing will be heard of them again."""

    seq: int
    nodes: tuple[NodeId, ...] = ()
    jobs: tuple[JobId, ...] = ()


class ResetFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reset"):
    """What happened since `since` cannot be told in full: ask for cluster, nodes and jobs again. The connection goes on from `seq`."""

    seq: int
    message: str


EventFrame = JobFrame | NodeFrame | SamplesFrame | QueueFrame | GoneFrame | ResetFrame | ReadyFrame | PingFrame


# --- histories --------------------------------------------------------------------------------------


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
    """Each point is the mean over so long."""
    times: tuple[float, ...]
    """Start of each point; times without a reading are left out."""
    cpu: tuple[int | None, ...]
    memory_available_mib: tuple[int | None, ...]
    gpus: tuple[GpuHistory, ...]
    message: str = ""
    """Why there is nothing, or less than was asked for."""


class GpuUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a job made of one of its GPUs."""

    node: NodeId
    index: int
    uuid: GpuUuid
    rank: int | None = None
    """The process that it is for, where that follows from their numbers."""
    busy_mean: float | None = None
    """In percent, over all readings."""
    busy_max: float | None = None
    memory_peak_mib: int | None = None
    memory_mib: int = 0
    """What it has."""
    idle: bool = False
    """It was never really busy."""
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
    """GPUs that were busy, in the mean: 1.3 of 4."""
    energy_wh: float | None = None
    """What its GPUs drew, in watt-hours, as far as they tell."""
    hint: str = ""
    """What would have done, in a sentence; empty when there is nothing to say."""
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
    """The cluster over a time. `ended` and the jobs are known over restarts, `gpus` and `busy` since this master started."""

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
