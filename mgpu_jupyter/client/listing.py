"""The queue as plain text, with the headings and lines that scripts written for the earlier tool look for. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId
from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api import models
from mgpu_jupyter.client.words import ending, numbers
from mgpu_jupyter.model.job import JobState


def as_text(jobs: Sequence[models.Job], nodes: Sequence[models.Node], starts: Mapping[str, str] | None = None) -> str:
    """Return the sections as text; running jobs in the order of their start, waiting ones in their place, with `starts` if given."""
    starts = starts or {}
    running, queued = run_order(jobs), queue_order(jobs)
    over = [job for job in jobs if job.state.is_final]
    lines = ["--- Running Jobs ---"]
    lines += [line for job in running for line in _job_lines(job)] or ["No running jobs"]
    lines += ["--- Queue ---"]
    lines += [line for job in queued for line in _job_lines(job, starts.get(job.id, ""))] or ["No queued jobs"]
    if over:
        lines += ["--- Finished Jobs ---", *(line for job in over for line in _job_lines(job))]
    lines += ["--- Cluster Status ---"]
    lines += [
        f"Node {printable(node.id)}: {printable(node.state)}{f' ({printable(node.reason)})' if node.reason else ''}" for node in nodes
    ] or ["No node information available"]
    return "\n".join(lines)


def run_order(jobs: Sequence[models.Job]) -> list[models.Job]:
    """Return the jobs that are under way, in the order of their start."""
    return sorted((job for job in jobs if _is_under_way(job)), key=lambda job: job.started_at or job.submitted_at)


def queue_order(jobs: Sequence[models.Job]) -> list[models.Job]:
    """Return the jobs that wait, in their place, those of an array as one."""
    waiting = (job for job in folded(jobs) if job.state is JobState.QUEUED)
    return sorted(waiting, key=lambda job: (job.place or sys.maxsize, job.submitted_at))


def folded(jobs: Sequence[models.Job]) -> list[models.Job]:
    """Return the jobs with those of an array that wait as one, since thousands of lines that say the same help nobody."""
    waiting: dict[str, list[models.Job]] = {}
    for job in jobs:
        if job.array_id is not None and job.state is JobState.QUEUED:
            waiting.setdefault(job.array_id, []).append(job)
    many = {array_id: those for array_id, those in waiting.items() if len(those) > 1}
    rest = [job for job in jobs if job.state is not JobState.QUEUED or job.array_id not in many]
    return rest + [_as_one(array_id, those) for array_id, those in many.items()]


def _as_one(array_id: str, jobs: list[models.Job]) -> models.Job:
    first = min(jobs, key=lambda job: (job.place or sys.maxsize, job.array_index or 0))
    indices = sorted(job.array_index or 0 for job in jobs)
    reason = f"{len(jobs)} jobs of the array wait; the first of them: {first.reason}".rstrip(": ")
    return replace(first, id=JobId(f"{array_id}[{numbers(indices)}]"), array_id=None, array_index=None, reason=reason)


def _is_under_way(job: models.Job) -> bool:
    return job.state in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


def _job_lines(job: models.Job, start: str = "") -> list[str]:
    kind = "single" if job.nodes_wanted <= 1 else "multinode"
    queued = job.state is JobState.QUEUED
    lines = [
        f"ID: {job.id} | User: {printable(job.user)} | GPUs: {job.gpus} | Type: {kind}{f' | Priority: {job.priority}' if queued else ''}"
    ]
    if job.name:
        lines.append(f"  Name: {printable(job.name)}")
    if job.array_id is not None:
        lines.append(f"  Array: {job.array_id}[{job.array_index}]")
    lines += [f"  Nodes: {printable(', '.join(job.nodes)) or 'none yet'}", f"  CMD: {printable(job.command)}", f"  Status: {job.state}"]
    if job.state.is_final:
        lines.append(f"  End: {printable(ending(job))}")
    elif job.reason or queued:
        lines.append(f"  Reason: {printable(job.reason) or 'it is the next to be looked at'}")
    return [*lines, *([f"  Start: {start}"] if start else []), ""]
