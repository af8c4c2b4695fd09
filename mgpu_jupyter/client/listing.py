"""The queue as plain text, with the headings and lines that scripts written for the earlier tool look for. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from mgpu_jupyter.api import models
from mgpu_jupyter.client.words import ending, printable
from mgpu_jupyter.model.job import JobState


def as_text(jobs: Sequence[models.Job], nodes: Sequence[models.Node], starts: Mapping[str, str] | None = None) -> str:
    """Return the sections as text; running jobs in the order of their start, waiting ones in their place, with `starts` if given."""
    starts = starts or {}
    running = sorted((job for job in jobs if _is_under_way(job)), key=lambda job: job.started_at or job.submitted_at)
    queued = sorted((job for job in jobs if job.state is JobState.QUEUED), key=lambda job: (job.place or sys.maxsize, job.submitted_at))
    over = [job for job in jobs if job.state.is_final]
    lines = ["--- Running Jobs ---"]
    lines += [line for job in running for line in _job_lines(job)] or ["No running jobs"]
    lines += ["--- Queue ---"]
    lines += [line for job in queued for line in _job_lines(job, starts.get(job.id, ""))] or ["No queued jobs"]
    if over:
        lines += ["--- Finished Jobs ---", *(line for job in over for line in _job_lines(job))]
    lines += ["--- Cluster Status ---"]
    lines += [f"Node {node.id}: {node.state}{f' ({printable(node.reason)})' if node.reason else ''}" for node in nodes] or [
        "No node information available"
    ]
    return "\n".join(lines)


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
    lines += [f"  Nodes: {', '.join(job.nodes) or 'none yet'}", f"  CMD: {printable(job.command)}", f"  Status: {job.state}"]
    if job.state.is_final:
        lines.append(f"  End: {printable(ending(job))}")
    elif job.reason or queued:
        lines.append(f"  Reason: {printable(job.reason) or 'it is the next to be looked at'}")
    return [*lines, *([f"  Start: {start}"] if start else []), ""]
