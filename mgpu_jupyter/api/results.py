"""Bodies about what jobs leave behind: files, and a summary of what they asked for, had and used. Values only."""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.model.job import JobState


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One file."""

    node: NodeId
    number: int
    path: str
    """As its job called it, relative to its directory."""
    size: int
    sha256: str
    mode: int
    problem: str = ""
    """Why it is not here; empty when it is, verified."""
    tries: int = 1
    """How often it was fetched until it was whole."""


class ResultList(msgspec.Struct, frozen=True, kw_only=True):
    """All files of the newest attempt."""

    job_id: JobId
    attempt: int
    complete: bool
    """True when nothing more is to come."""
    files: tuple[Result, ...] = ()
    problems: tuple[str, ...] = ()
    """What was meant and could not be read on its node."""


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
    """What a job had on one node, and what it used of that; None where its GPUs do not tell."""

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
