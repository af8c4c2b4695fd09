"""Bodies about a job's past: its whole trace (when, where, by whom, what it waited for) and a summary.

Values only.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.model.job import JobState

StepName = Literal["submitted", "queued", "planned", "prepared", "started", "output", "ended", "collected"]
CheckName = Literal["node", "host", "address", "gpus", "pid", "ports"]


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A time in the queue, and why."""

    since: float
    until: float | None
    """None while it goes on."""
    seconds: float
    code: str
    text: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step, in the order of time."""

    step: StepName
    at: float
    seconds: float
    """Since the step before it."""
    text: str = ""
    rank: int | None = None
    """The rank of the step, where ranks have their own."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank was assigned, or where it ran. A node is named by its key, a host by what runs there."""

    node: str
    host: str
    address: str
    gpus: tuple[GpuUuid, ...] = ()
    pid: int | None = None


class RankTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of an attempt."""

    rank: int
    assigned: Place
    actual: Place | None = None
    """As its node reported; null until it started."""
    gpu_indices: tuple[int, ...] = ()
    cwd: str = ""
    python: str = ""
    """The interpreter of a cell."""
    note: str = ""
    prepared_at: float | None = None
    started_at: float | None = None
    output_at: float | None = None
    """When its first output reached the master."""
    ended_at: float | None = None
    collected_at: float | None = None
    """When all its output was safe on the master's disk."""
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""


class AttemptTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at running it; the last one may still wait for its nodes."""

    attempt: int
    epoch: int
    queued_at: float
    planned_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    """Why it ended, or why it waits."""
    waits: tuple[Wait, ...] = ()
    steps: tuple[Step, ...] = ()
    ranks: tuple[RankTrace, ...] = ()


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What was assigned to a rank, compared with what is there."""

    rank: int
    what: CheckName
    assigned: str
    actual: str
    ok: bool
    text: str = ""
    """Where the actual value is from, or why it is not available."""


class NodePing(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a node's agent through its link."""

    node_id: str
    seconds: float
    """The round-trip time."""
    host: str
    address: str
    agent_version: str
    master_version: str
    python: str
    pid: int
    started_at: float
    clock_skew_s: float
    """How far its clock is ahead of the master's, as exact as the round-trip time allows."""
    link: str
    """The address at which it found the master."""
    warnings: tuple[str, ...] = ()
    """What is not as it should be: another version, another name or host than it joined with."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The whole trace of a job."""

    job_id: JobId
    name: str
    user: str
    command: str
    state: JobState
    submitted_at: float
    now: float
    """The master's clock at the time of this answer."""
    attempts: tuple[AttemptTrace, ...]
    """Oldest first."""
    left_out: int = 0
    """Earlier attempts that are not kept any more."""
    ok: bool = True
    """False when anything ran differently from what was assigned."""
    mismatches: tuple[str, ...] = ()
    """What ran differently from what was assigned, in sentences."""
    checks: tuple[Check, ...] = ()
    """Only on request: each rank of the last attempt, checked on its node now."""


class RankSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What one process did."""

    rank: int
    node: NodeId
    gpus: int
    started_at: float
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None


class NodeUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a job had on one node, and what it used of that; None where its GPUs do not report it."""

    node: NodeId
    gpus: int
    gpu_indices: tuple[int, ...] = ()
    gpu_memory_peak_bytes: int | None = None
    gpu_utilisation_percent: float | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A job on one page."""

    job_id: JobId
    name: str
    user: str
    state: JobState
    attempt: int
    exit_code: int | None
    reason: str
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    waited_s: float | None
    ran_s: float | None
    gpus_requested: int
    nodes_requested: int
    time_limit_s: float | None
    time_used_percent: float | None
    """How much of its time limit it used."""
    gpu_memory_requested_bytes: int
    """What it asked for on each GPU."""
    gpu_memory_peak_bytes: int | None
    """The most that its GPUs had in use at once on any node."""
    gpu_utilisation_percent: float | None
    """Mean over its nodes, while it ran."""
    gpu_s: float
    """GPUs times seconds."""
    nodes: tuple[NodeUse, ...] = ()
    ranks: tuple[RankSummary, ...] = ()
