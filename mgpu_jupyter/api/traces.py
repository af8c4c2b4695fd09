"""The whole way of a job, as the API tells it: when, where, by whom, and what it waited for. Values only."""

from __future__ import annotations

from typing import Literal

import msgspec

from mgpu_agent.protocol.ids import GpuUuid, JobId
from mgpu_jupyter.model.job import JobState

StepName = Literal["submitted", "queued", "planned", "prepared", "started", "output", "ended", "collected"]
CheckName = Literal["node", "host", "address", "gpus", "pid", "ports"]


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A while in the queue, and why."""

    since: float
    until: float | None
    """None while it goes on."""
    seconds: float
    code: str
    text: str


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened, in the order of time."""

    step: StepName
    at: float
    seconds: float
    """Since the step before it."""
    text: str = ""
    rank: int | None = None
    """Whose step it is, where ranks have their own."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank belongs, or where it ran. A node is named by its key, a host by what runs there."""

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
    """As its node told; null until it started."""
    gpu_indices: tuple[int, ...] = ()
    cwd: str = ""
    python: str = ""
    """The interpreter of a cell."""
    note: str = ""
    prepared_at: float | None = None
    started_at: float | None = None
    output_at: float | None = None
    """When its first output came to the master."""
    ended_at: float | None = None
    collected_at: float | None = None
    """When all its output was safe on the master's disk."""
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""


class AttemptTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One try at running it; the last one may still wait for its nodes."""

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
    """What was assigned to a rank, against what is there."""

    rank: int
    what: CheckName
    assigned: str
    actual: str
    ok: bool
    text: str = ""
    """Where the actual value is from, or why it could not be had."""


class NodePing(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's agent answered through its link."""

    node_id: str
    seconds: float
    """There and back."""
    host: str
    address: str
    agent_version: str
    master_version: str
    python: str
    pid: int
    started_at: float
    clock_skew_s: float
    """How far its clock is ahead of the master's, give or take the way."""
    link: str
    """Where it found the master."""
    warnings: tuple[str, ...] = ()
    """What is not as it should be: another version, another name or host than it joined with."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The whole way of a job."""

    job_id: JobId
    name: str
    user: str
    command: str
    state: JobState
    submitted_at: float
    now: float
    """The master's clock when this was told."""
    attempts: tuple[AttemptTrace, ...]
    """Oldest first."""
    left_out: int = 0
    """Earlier attempts that are not kept any more."""
    ok: bool = True
    """False when anything ran otherwise than was assigned."""
    mismatches: tuple[str, ...] = ()
    """What ran otherwise than was assigned, in sentences."""
    checks: tuple[Check, ...] = ()
    """Made when asked for: each rank of the last attempt, looked at now where it runs."""
