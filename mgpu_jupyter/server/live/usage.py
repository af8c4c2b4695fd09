"""How jobs use their GPUs: recorded while they run, kept beside their output. Decides nothing.

One file for each attempt that was read at least three times, deleted with the job's output. For shorter ones,
and those whose readings were lost with a master, only the means that agents report are known.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from pathlib import Path

import msgspec

from mgpu_agent.protocol.ids import GpuUuid, JobId
from mgpu_jupyter.api.histories import GpuUsage, JobUsage
from mgpu_jupyter.master.node_views import NodeView, ranks_by_gpu
from mgpu_jupyter.master.views import summary_of
from mgpu_jupyter.model.units import units_of
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.server.live.hints import hint_of, is_idle
from mgpu_jupyter.server.live.node_histories import in_mib, plain
from mgpu_jupyter.server.live.readings import whole_number
from mgpu_jupyter.server.live.rings import Growing, Points

log = logging.getLogger("mgpu.live")

STEP_S = 2.0
POINTS = 240
LEAST_READINGS = 3
SETTLE_S = 2.0
"""Readings this soon after the start may be of the job before."""
ENDED_KEPT = 64
"""How many ended jobs are known without their file, which is written a little later."""
GAP_S = 30.0
"""After this long without a reading the energy used meanwhile is unknown."""
LATE_S = 20.0
"""A first reading this long after the start means that earlier ones are lost."""


class _Column(msgspec.Struct):
    """One GPU of a job."""

    usage: GpuUsage
    busy_total: float = 0.0
    readings: int = 0
    busy_max: float | None = None
    memory_peak: float | None = None
    energy_wh: float | None = None
    power: tuple[float, float] | None = None
    """The last reading's time and power, in watts."""

    def take(self, busy: float | None, memory: float | None) -> None:
        if busy is not None:
            self.busy_total += busy
            self.readings += 1
            self.busy_max = busy if self.busy_max is None else max(busy, self.busy_max)
        if memory is not None:
            self.memory_peak = memory if self.memory_peak is None else max(memory, self.memory_peak)

    def draw(self, watts: float, at: float) -> None:
        """Add the energy since the last reading, by the mean of both readings."""
        before, power = self.power or (at, watts)
        known_s = at - before if at - before <= GAP_S else 0.0
        self.energy_wh = (self.energy_wh or 0.0) + (power + watts) / 2.0 * known_s / 3600.0
        self.power = (at, watts)


class UsageRecord:
    """One attempt of a job while it runs."""

    def __init__(self, job: Job, memory: dict[GpuUuid, int], at: float) -> None:
        self.attempt = job.attempt
        self._settles_at = at + SETTLE_S
        self.columns: dict[GpuUuid, _Column] = {}
        for placement in job.placements:
            ranks = ranks_by_gpu(placement)
            for uuid, index in zip(placement.gpus, placement.gpu_indices, strict=True):
                size = whole_number(in_mib(memory.get(uuid))) or 0
                usage = GpuUsage(
                    node=placement.node_id, index=index, uuid=uuid, rank=ranks.get(uuid), memory_mib=size
                )
                self.columns[uuid] = _Column(usage)
        self._order = {uuid: number for number, uuid in enumerate(self.columns)}
        self._points = Growing(STEP_S, POINTS, 2 * len(self.columns))

    def take(self, node: NodeView, held: list[GpuUuid], at: float) -> None:
        """Take the readings of those of its GPUs that are on this node."""
        if at < self._settles_at:
            return
        row: list[float | None] = [None] * (2 * len(self.columns))
        samples = {sample.uuid: sample for sample in node.samples}
        for uuid in held:
            sample, column = samples.get(uuid), self.columns.get(uuid)
            if sample is None or column is None:
                continue
            busy, memory = plain(sample.utilisation_percent), in_mib(sample.memory_used_bytes)
            column.take(busy, memory)
            if (watts := plain(sample.power_w)) is not None:
                column.draw(watts, at)
            place = 2 * self._order[uuid]
            row[place : place + 2] = (busy, memory)
        self._points.add(at, row)

    @property
    def readings(self) -> int:
        """How often its GPUs were read, at least one of them."""
        return max((column.readings for column in self.columns.values()), default=0)

    def usage(self, job: Job, points: int) -> JobUsage:
        """Return what was recorded so far."""
        found = self._points.read(points)
        gpus = tuple(
            self._gpu(column, found, 2 * number) for number, column in enumerate(self.columns.values())
        )
        means = [gpu.busy_mean for gpu in gpus if gpu.busy_mean is not None]
        energies = [column.energy_wh for column in self.columns.values() if column.energy_wh is not None]
        usage = JobUsage(
            job_id=job.id,
            state=job.state,
            attempt=self.attempt,
            asked=_asked(job),
            used=round(sum(means) / 100.0, 2) if means else None,
            energy_wh=round(sum(energies), 2) if energies else None,
            readings=self.readings,
            step_s=found.step_s,
            times=tuple(found.times),
            gpus=gpus,
            message=_late(job, found),
        )
        return msgspec.structs.replace(usage, hint=hint_of(usage))

    def _gpu(self, column: _Column, found: Points, first: int) -> GpuUsage:
        mean = column.busy_total / column.readings if column.readings else None
        return msgspec.structs.replace(
            column.usage,
            busy_mean=None if mean is None else round(mean, 1),
            busy_max=None if column.busy_max is None else round(column.busy_max, 1),
            memory_peak_mib=whole_number(column.memory_peak),
            idle=is_idle(column.busy_max, column.readings),
            busy=tuple(map(whole_number, found.columns[first])),
            memory=tuple(map(whole_number, found.columns[first + 1])),
        )


class Usages:
    """All jobs that hold GPUs. Belongs to the server's loop; writes no file itself."""

    def __init__(self, log_root: Path) -> None:
        self._root = log_root
        self._records: dict[JobId, UsageRecord] = {}
        self._ended: OrderedDict[JobId, JobUsage] = OrderedDict()

    def changed(self, job: Job, nodes: dict[str, NodeView], at: float) -> tuple[Path, bytes] | None:
        """Take a new version of a job; return the file to write when it ended."""
        record = self._records.get(job.id)
        if job.state.is_final:
            self._records.pop(job.id, None)
            if record is None or record.attempt != job.attempt or record.readings < LEAST_READINGS:
                return None
            self._ended[job.id] = usage = record.usage(job, POINTS)
            while len(self._ended) > ENDED_KEPT:
                self._ended.popitem(last=False)
            return usage_path(self._root, job), msgspec.json.encode(usage)
        if job.placements and any(placement.gpus for placement in job.placements):
            if record is None or record.attempt != job.attempt:
                views = [
                    nodes[placement.node_id] for placement in job.placements if placement.node_id in nodes
                ]
                memory = {gpu.uuid: gpu.memory_bytes for view in views for gpu in view.facts.gpus}
                self._records[job.id] = UsageRecord(job, memory, at)
        else:
            self._records.pop(job.id, None)
        return None

    def take(self, node: NodeView, at: float) -> None:
        """Take the newest readings of a node."""
        held: dict[JobId, list[GpuUuid]] = {}
        for uuid, job_id in node.holders.items():
            held.setdefault(job_id, []).append(uuid)
        for job_id, gpus in held.items():
            if (record := self._records.get(job_id)) is not None:
                record.take(node, gpus, at)

    def read(self, job: Job, points: int) -> JobUsage:
        """Return the usage of a job; for an ended one, what was kept."""
        record = self._records.get(job.id)
        if record is not None and record.attempt == job.attempt:
            return record.usage(job, points)
        kept = self._ended.get(job.id)
        if kept is None or kept.attempt != job.attempt:
            kept = _kept(usage_path(self._root, job))
        return (
            _means(job) if kept is None else thinned(msgspec.structs.replace(kept, state=job.state), points)
        )


def usage_path(root: Path, job: Job) -> Path:
    """Return where the usage of a job's newest attempt is kept."""
    return root / job.id[:2] / f"{job.id}.{job.attempt}.usage"


def write_usage(path: Path, data: bytes) -> None:
    """Write the record; a full disk costs the plot and nothing else."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        log.warning("the usage of a job was not kept: %s", error)


def thinned(usage: JobUsage, points: int) -> JobUsage:
    """Return the same in fewer points, each of them one of the original ones."""
    factor = max(1, -(-len(usage.times) // points))
    if factor == 1:
        return usage
    gpus = tuple(
        msgspec.structs.replace(gpu, busy=gpu.busy[::factor], memory=gpu.memory[::factor])
        for gpu in usage.gpus
    )
    return msgspec.structs.replace(
        usage, step_s=usage.step_s * factor, times=usage.times[::factor], gpus=gpus
    )


def _kept(path: Path) -> JobUsage | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=JobUsage)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s could not be read: %s", path.name, error)
        return None


def _means(job: Job) -> JobUsage:
    """Return the little that is known without readings."""
    nodes = summary_of(job, job.ended_at or 0.0).nodes
    loads = [
        (node.gpu_utilisation_percent, node.gpus)
        for node in nodes
        if node.gpu_utilisation_percent is not None
    ]
    if job.state.is_final and job.started_at is not None:
        message = (
            "Only means are known: it was too short to be read often, or its readings are lost."
            if loads
            else "Its GPUs told nothing."
        )
    else:
        message = "" if job.started_at is None else "Nothing was read yet."
    if not any(unit.gpus for unit in units_of(job.spec)):
        message = "It asked for no GPU."
    used = round(sum(load * gpus for load, gpus in loads) / 100.0, 2) if loads else None
    return JobUsage(
        job_id=job.id, state=job.state, attempt=job.attempt, asked=_asked(job), used=used, message=message
    )


def _asked(job: Job) -> int:
    return sum(unit.gpus for unit in units_of(job.spec))


def _late(job: Job, found: Points) -> str:
    if not found.times or job.started_at is None or found.times[0] - job.started_at < LATE_S:
        return ""
    return "Readings of its first part are not known: the master was away."
