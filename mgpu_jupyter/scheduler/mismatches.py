"""Differences between what ran and what was assigned: each is a sentence that stays with the job. Part of the
machine.

A node's name is the one that its key is bound to; its host's name is what the process that ran there reports.
The two are never mixed up. A difference ends no job: it is reported visibly, and people decide.
"""

from __future__ import annotations

from msgspec.structs import replace

from mgpu_agent.protocol.model import TaskStatus
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import Command, ReportMismatch, SaveJob, SaveNode
from mgpu_jupyter.scheduler.events import NodeMisnamed
from mgpu_jupyter.scheduler.model import Job, Placement
from mgpu_jupyter.scheduler.state import ClusterState

KEPT = 8
"""The most sentences kept for one job; more tell nothing new."""


def differences(job: Job, placement: Placement, status: TaskStatus) -> list[str]:
    """Return how one rank ran differently from what was assigned."""
    who = f"Rank {status.rank} of job {job.id} (attempt {job.attempt})"
    found: list[str] = []
    if status.gpus != placement.gpus:
        found.append(
            f"{who} ran with {_list(status.gpus)} on {status.node_id}, but was assigned "
            f"{_list(placement.gpus)}."
        )
    if placement.host and status.host != placement.host:
        found.append(
            f"{who} ran on host {status.host}, but was assigned to {placement.node_id}, which said that it "
            f"is host {placement.host}."
        )
    if placement.address and status.address != placement.address:
        found.append(
            f"{who} ran at {status.address}, but was assigned to {placement.node_id}, which said that it is "
            f"at {placement.address}."
        )
    return found


def noted(job: Job, texts: list[str]) -> tuple[Job, list[Command]]:
    """Return the job with the sentences that are new to it, and the commands that report them."""
    new = [text for text in texts if text not in job.mismatches][: max(0, KEPT - len(job.mismatches))]
    if not new:
        return job, []
    job = replace(job, mismatches=(*job.mismatches, *new))
    return job, [ReportMismatch(job, text) for text in new]


def blame(state: ClusterState, job: Job, text: str) -> list[Command]:
    """Keep a sentence with a job; change nothing else."""
    job, told = noted(job, [text])
    return [SaveJob(books.move(state, job, state_=job.state)), *told] if told else []


def on_misnamed(state: ClusterState, event: NodeMisnamed) -> list[Command]:
    """Note that the agent of a node called itself something else; its key decides what it is."""
    node = state.nodes.get(event.node_id)
    if node is None:
        return []
    text = f"The agent with the key of {event.node_id} said that it is {event.said}."
    commands: list[Command] = []
    if node.mismatch != text:
        node.mismatch = text
        commands.append(SaveNode(node.id))
    meant = (
        list(state.jobs.values()) if event.key is None else filter(None, [state.jobs.get(event.key.job_id)])
    )
    for job in meant:
        is_meant = event.key in (None, job.attempt_key)
        if is_meant and job.state is not JobState.QUEUED and job.open_ranks_on(event.node_id):
            commands += blame(state, job, f"Job {job.id} (attempt {job.attempt}): {text}")
    return commands


def _list(gpus: tuple[str, ...]) -> str:
    return ", ".join(gpus) or "no GPU"
