"""What the scheduler knows: jobs, nodes, and the cluster as a whole. Values and the state that holds them."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, JobId, NodeId
from mgpu_agent.protocol.model import GpuTrouble, NodeFacts, TaskStatus
from mgpu_jupyter.model.job import JobSpec, JobState, NodeState
from mgpu_jupyter.scheduler.queue import Queue


class Reason(msgspec.Struct, frozen=True):
    """Why a job waits or failed: a stable code and a sentence."""

    code: str
    text: str
    never: bool = False
    """True when no change of load can help, only another request or another node."""


class StopCause(StrEnum):
    """Why the processes of an attempt are being ended; it decides what the job becomes."""

    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    RANK_FAILED = "rank_failed"
    REQUEUE = "requeue"


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """What one node gives to one unit of an attempt."""

    node_id: NodeId
    incarnation: str
    """The node's incarnation when the launch was decided; the launch is void in any other."""
    rank: int
    gpus: tuple[GpuUuid, ...] = ()
    gpu_indices: tuple[int, ...] = ()
    cpus: int = 0
    simulated: bool = False
    """Whether its GPUs are simulated ones."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job and its current attempt."""

    id: JobId
    number: int
    """Order of submission."""
    user: str
    spec: JobSpec
    submitted_at: float
    state: JobState = JobState.QUEUED
    key: str | None = None
    """The submitter's idempotency key."""
    attempt: int = 0
    epoch: int = 0
    placements: tuple[Placement, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()
    """What really ran, one entry for each rank that was heard of."""
    refused: tuple[int, ...] = ()
    """Ranks of this attempt that will never start."""
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    reason: Reason | None = None
    not_before: float = 0.0
    failed_starts: int = 0
    failed_nodes: tuple[NodeId, ...] = ()
    """Nodes where an attempt failed to start; they come last."""
    stop: StopCause | None = None

    @property
    def attempt_key(self) -> AttemptKey:
        """The name of the current attempt."""
        return AttemptKey(self.id, self.attempt, self.epoch)

    @property
    def live_ranks(self) -> tuple[Placement, ...]:
        """Placements whose process may still run."""
        over = {task.rank for task in self.tasks if task.ended_at is not None} | set(self.refused)
        return tuple(placement for placement in self.placements if placement.rank not in over)


class Node(msgspec.Struct, kw_only=True):
    """A node and what is taken on it. Owned by the state; changed only by the machine."""

    id: NodeId
    facts: NodeFacts
    state: NodeState
    reason: str = ""
    holders: dict[GpuUuid, JobId] = {}
    blocked: dict[GpuUuid, GpuTrouble] = {}
    """GPUs that must not be handed out now, and why."""
    cpus_taken: int = 0

    @property
    def takes_work(self) -> bool:
        """Tell whether something may be placed here now."""
        return self.state is NodeState.ONLINE


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that decisions depend on; all from the configuration."""

    max_failed_starts: int = 5
    backoff_base_s: float = 1.0
    backoff_cap_s: float = 30.0
    kill_grace_s: float = 15.0
    max_time_limit_s: float | None = None
    share_busy_gpus: bool = False
    """Whether a GPU that a process outside mgpu computes on is handed out all the same."""


class ClusterState:
    """All that decisions are made from: jobs that are not over, nodes, counters. One owner, one writer."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.jobs: dict[JobId, Job] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.queue = Queue()
        self.deadlines: list[tuple[float, JobId, int]] = []
        self.delayed: list[tuple[float, JobId]] = []
        self.reasons: dict[object, Reason] = {}
        self.epoch = 0
        self.number = 0
        self.wants_pass = False
