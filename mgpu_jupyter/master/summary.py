"""A job on one page: what it asked for, had and used, made of what is saved with it. Pure."""

from __future__ import annotations

from mgpu_agent.protocol.model import TaskStatus
from mgpu_jupyter.api import results
from mgpu_jupyter.model.units import units_of
from mgpu_jupyter.scheduler.model import Job, Placement


def summary_of(job: Job, now: float) -> results.Summary:
    """Return the summary of a job's newest attempt; of one that runs, as far as it got."""
    units = units_of(job.spec)
    until = job.ended_at or now
    ran_s = None if job.started_at is None else max(0.0, until - job.started_at)
    nodes = tuple(_node(job, placement) for placement in job.placements)
    loads = [node.gpu_utilisation_percent for node in nodes if node.gpu_utilisation_percent is not None]
    limit = job.time_limit_s
    return results.Summary(
        job_id=job.id,
        name=job.spec.name,
        user=job.user,
        state=job.state,
        attempt=job.attempt,
        exit_code=job.exit_code,
        reason=job.reason.text if job.reason else "",
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        waited_s=None if job.started_at is None else max(0.0, job.started_at - job.submitted_at),
        ran_s=ran_s,
        gpus_requested=sum(unit.gpus for unit in units),
        nodes_requested=len(units),
        time_limit_s=limit,
        time_used_percent=None if limit is None or ran_s is None else round(100.0 * ran_s / limit, 1),
        gpu_memory_requested_bytes=job.spec.gpu_mem_bytes,
        gpu_memory_peak_bytes=max((node.gpu_memory_peak_bytes for node in nodes if node.gpu_memory_peak_bytes is not None), default=None),
        gpu_utilisation_percent=round(sum(loads) / len(loads), 1) if loads else None,
        gpu_s=round((ran_s or 0.0) * sum(node.gpus for node in nodes), 3),
        nodes=nodes,
        ranks=tuple(_rank(task) for task in job.tasks),
    )


def _node(job: Job, placement: Placement) -> results.NodeUse:
    tasks = [task for task in job.tasks if task.node_id == placement.node_id]
    peaks = [task.gpu_memory_peak_bytes for task in tasks if task.gpu_memory_peak_bytes is not None]
    loads = [task.gpu_utilisation_percent for task in tasks if task.gpu_utilisation_percent is not None]
    return results.NodeUse(
        node=placement.node_id,
        gpus=len(placement.gpus),
        gpu_indices=placement.gpu_indices,
        gpu_memory_peak_bytes=max(peaks, default=None),
        gpu_utilisation_percent=max(loads, default=None),
    )


def _rank(task: TaskStatus) -> results.RankSummary:
    return results.RankSummary(
        rank=task.rank,
        node=task.node_id,
        gpus=len(task.gpus),
        started_at=task.started_at,
        ended_at=task.ended_at,
        exit_code=task.exit_code,
        signal=task.signal,
    )
