"""Warnings before a time limit: when which job gets which signal. Part of the machine; changes no job.

A warning may be sent again (after a restart, to a node that came back): it carries the deadline that it warns
of, and the node sends the signal once for each.
"""

from __future__ import annotations

from heapq import heappop, heappush

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.checks import parse_signal
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.commands import Command, WarnTask
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.scheduler.state import ClusterState


def watch(state: ClusterState, job: Job, deadline: float) -> None:
    """Schedule the warning before a job's deadline, if it asked for one."""
    warning = parse_signal(job.spec.signal)
    if warning is not None:
        state.deadline_of[job.id] = deadline
        heappush(state.warnings, (deadline - warning.before_s, job.id, job.epoch, deadline))


def due(state: ClusterState, at: float) -> list[Command]:
    """Return the warnings whose time has come."""
    commands: list[Command] = []
    if state.warnings and state.warnings[0][0] <= at:
        state.deadline_of = {
            job_id: deadline for job_id, deadline in state.deadline_of.items() if job_id in state.jobs
        }
    while state.warnings and state.warnings[0][0] <= at:
        _, job_id, epoch, deadline = heappop(state.warnings)
        job = state.jobs.get(job_id)
        if job is not None and job.epoch == epoch and state.deadline_of[job_id] == deadline:
            commands += _warn(job, deadline)
    return commands


def tell_again(state: ClusterState, node_id: NodeId) -> list[Command]:
    """Repeat the warnings that were due while a node was away."""
    commands: list[Command] = []
    for job_id, deadline in state.deadline_of.items():
        job = state.jobs.get(job_id)
        warning = None if job is None else parse_signal(job.spec.signal)
        if job is not None and warning is not None and deadline - warning.before_s <= state.now:
            commands += [command for command in _warn(job, deadline) if command.node_id == node_id]
    return commands


def _warn(job: Job, deadline: float) -> list[WarnTask]:
    warning = parse_signal(job.spec.signal)
    if warning is None or job.state is not JobState.RUNNING:
        return []
    nodes = dict.fromkeys(placement.node_id for placement in job.live_placements)
    return [WarnTask(node_id, job.attempt_key, warning.signal, deadline) for node_id in nodes]
