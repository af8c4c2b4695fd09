"""What the scheduler knows of one job and one node. Values; the state that holds them is `ClusterState`."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, JobId, NodeId
from mgpu_agent.protocol.model import GpuTrouble, NodeFacts, TaskStatus
from mgpu_jupyter.model.job import JobSpec, JobState, NodeState
from mgpu_jupyter.model.settings import Lists, Scheduling
from mgpu_jupyter.model.tasks import meets
from mgpu_jupyter.model.waits import Dependency
from mgpu_jupyter.scheduler.standing import NodeHealth, NodeOrders, seen_as


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
    PREEMPTED = "preempted"
    FIRST_DONE = "first_done"
    """The one process that counts ended well."""


class Rendezvous(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ranks of an attempt find rank 0."""

    address: str
    """Of the first node, and reached by all."""
    port: int

    @property
    def endpoint(self) -> str:
        """Both in one, as URLs have it."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """What one node gives to one unit of an attempt."""

    node_id: NodeId
    incarnation: str
    """The node's incarnation when the launch was decided; the launch is void in any other."""
    rank: int
    """The rank of its first process; the others follow."""
    gpus: tuple[GpuUuid, ...] = ()
    gpu_indices: tuple[int, ...] = ()
    cpus: int = 0
    mem_bytes: int = 0
    simulated: bool = False
    """Whether its GPUs are simulated ones."""
    tasks: int = 1
    """How many processes run there."""
    interface: str = ""
    """By which the other nodes of the attempt reach it, as measured; empty when there is none for all."""
    host: str = ""
    """What the node called its machine when this was decided, and by which address it was to be reached."""
    address: str = ""

    @property
    def ranks(self) -> range:
        """The ranks of its processes."""
        return range(self.rank, self.rank + self.tasks)


class ArrayPart(msgspec.Struct, frozen=True):
    """Which job of which array it is."""

    id: str
    index: int
    throttle: int = 0
    """How many of the array may run at once; 0 for all."""
    count: int = 1
    """How many jobs the array has."""
    first: int = 0
    last: int = 0
    """Its lowest and highest number."""


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
    placed_at: float = 0.0
    """When this attempt was given its nodes: it cannot have started before, whatever a node's clock says."""
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    reason: Reason | None = None
    not_before: float = 0.0
    failed_starts: int = 0
    failed_nodes: tuple[NodeId, ...] = ()
    """Nodes where an attempt failed to start; they come last."""
    stop: StopCause | None = None
    account: str = ""
    """What it is counted for."""
    held: bool = False
    """It waits until somebody releases it."""
    after: tuple[Dependency, ...] = ()
    """What it still waits for of other jobs."""
    array: ArrayPart | None = None
    new_priority: int | None = None
    """Set since it was submitted, in place of what its request says."""
    new_time_limit_s: float | None = None
    preempted: int = 0
    """How often it was ended for another job."""
    retried: int = 0
    """How often it ran again after a non-zero exit."""
    prepared: tuple[int, ...] = ()
    """First ranks of the placements whose node said that it can start; all of them, and `Start` may leave."""
    rendezvous: Rendezvous | None = None
    """What the meeting of its nodes brought, where there is to be one; before that nothing of it starts."""
    warnings: tuple[str, ...] = ()
    """What its owner should know of this attempt: what is not alike on its nodes."""
    mismatches: tuple[str, ...] = ()
    """What ran otherwise than was assigned, in sentences, of all its attempts; the first few."""
    lease_s: float = 0.0
    """How long its nodes let this attempt run on without the master; 0 for ever."""
    fence_s: float = 0.0
    """How long after a node was last heard nothing of this attempt can run there: the lease, the kill grace and a margin."""
    kill_at: float | None = None
    """When what is left of an attempt that is being ended is killed."""

    @property
    def priority(self) -> int:
        """Its user's own priority."""
        return self.spec.priority if self.new_priority is None else self.new_priority

    @property
    def time_limit_s(self) -> float | None:
        """The limit that was asked for."""
        return self.spec.time_limit_s if self.new_time_limit_s is None else self.new_time_limit_s

    def may_line_up(self, at: float) -> bool:
        """Tell whether nothing but order and resources keeps it from starting."""
        return not self.held and not self.after and self.not_before <= at

    @property
    def is_preparing(self) -> bool:
        """Tell whether no rank of this attempt can have been started yet."""
        return self.is_unprepared and not self.tasks

    @property
    def is_unprepared(self) -> bool:
        """Tell whether some node has not said yet that it can start, or they have not met."""
        if self.state is not JobState.STARTING or not self.is_gang:
            return False
        return len(self.prepared) != len(self.placements) or (meets(self.spec) and self.rendezvous is None)

    @property
    def is_gang(self) -> bool:
        """Tell whether its nodes are asked before anything is started."""
        return len(self.placements) > 1 or meets(self.spec)

    @property
    def attempt_key(self) -> AttemptKey:
        """The name of the current attempt."""
        return AttemptKey(self.id, self.attempt, self.epoch)

    @property
    def world_size(self) -> int:
        """How many processes this attempt has on all its nodes."""
        return sum(placement.tasks for placement in self.placements)

    @property
    def open_ranks(self) -> frozenset[int]:
        """Ranks whose process may still run, or may still start."""
        over = {task.rank for task in self.tasks if task.ended_at is not None} | set(self.refused)
        return frozenset(rank for placement in self.placements for rank in placement.ranks if rank not in over)

    @property
    def live_placements(self) -> tuple[Placement, ...]:
        """Placements of which a process may still run."""
        ranks = self.open_ranks
        return tuple(placement for placement in self.placements if not ranks.isdisjoint(placement.ranks))

    def open_ranks_on(self, node_id: NodeId) -> tuple[int, ...]:
        """Return the ranks that may still run on this node, or still start there."""
        ranks = self.open_ranks
        return tuple(rank for placement in self.placements if placement.node_id == node_id for rank in placement.ranks if rank in ranks)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured on a node last; None where it does not tell."""

    gpu_percent: float | None = None
    """Mean over its GPUs."""
    cpu_percent: float | None = None
    memory_available_bytes: int | None = None

    @property
    def score(self) -> float:
        """One number to compare nodes by: 0 idle, 2 both GPUs and CPUs busy."""
        return ((self.gpu_percent or 0.0) + (self.cpu_percent or 0.0)) / 100.0


class Node(msgspec.Struct, kw_only=True):
    """A node and what is taken on it. Owned by the state; changed only by the machine."""

    id: NodeId
    facts: NodeFacts
    state: NodeState
    """What people see; `settle` brings it up to date."""
    reason: str = ""
    link: NodeState = NodeState.ONLINE
    """What is heard of it: online, suspect or offline."""
    link_reason: str = ""
    orders: NodeOrders = NodeOrders()
    health: NodeHealth = NodeHealth()
    ailments: tuple[str, ...] = ()
    """What checks found; told anew by a node that connects, so it is not saved."""
    load: Load = Load()
    holders: dict[GpuUuid, JobId] = {}
    blocked: dict[GpuUuid, GpuTrouble] = {}
    """GPUs that must not be handed out now, and why."""
    cpus_taken: int = 0
    mismatch: str = ""
    """The last thing that it said about itself and that is not so."""
    away_since: float | None = None
    """When it was heard last; None while it is being heard."""

    def settle(self) -> None:
        """Bring state and reason in step with what is heard, ordered and failed."""
        self.state, self.reason = seen_as(self.link, self.link_reason, self.orders, self.health, self.ailments)

    @property
    def lists(self) -> Lists:
        """Who may use it, beside what its partition says."""
        return self.orders.lists

    @property
    def labels(self) -> dict[str, str]:
        """What `--constraint` is about: the node's own labels and those that operators gave it."""
        return self.facts.labels | self.orders.labels

    @property
    def failures(self) -> int:
        """Failed starts in a row."""
        return self.health.failures

    @property
    def takes_work(self) -> bool:
        """Tell whether something may be placed here now."""
        return self.state is NodeState.ONLINE


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that decisions depend on; all from the configuration."""

    kill_grace_s: float = 15.0
    on_disconnect: Literal["keep", "fence"] = "keep"
    """What becomes of jobs whose node is cut off, unless they say it themselves."""
    lease_s: float = 300.0
    """How long a fenced job runs on after the master last heard its node."""
    lease_margin_s: float = 10.0
    """How much longer than lease and grace the master waits: for clocks that go at other paces, and for the kill itself."""
    prepare_s: float = 15.0
    """How long the nodes of a job may take to say that they can start it."""
    meet_s: float = 4.0
    """How long the nodes of a job may try to reach each other."""
    apart_s: float = 60.0
    """How long two nodes that cannot reach each other get no job together."""
    folder_s: float = 600.0
    """The same for a job with a folder, which has to get there first."""
    prolog: str = ""
    """A command of the site that runs on each node before a job's processes; one that fails puts the job back."""
    epilog: str = ""
    """The same after they ended, however they did."""
    hook_s: float = 60.0
    """How long one hook may take."""
    share_busy_gpus: bool = False
    """Whether a GPU that a process outside mgpu computes on is handed out all the same."""
    scheduling: Scheduling = Scheduling()

    def prepare_of(self, spec: JobSpec) -> float:
        """Return how long the nodes of a job may take to say that they can start it."""
        return max(self.prepare_s, self.folder_s) if spec.sync else self.prepare_s

    def lease_of(self, spec: JobSpec) -> float:
        """Return the lease of a job's next attempt; 0 for none."""
        return self.lease_s if (spec.on_disconnect or self.on_disconnect) == "fence" else 0.0

    def fence_of(self, spec: JobSpec) -> float:
        """Return how long after its last word a node can run nothing of it any more; 0 when it may run on."""
        lease_s = self.lease_of(spec)
        return lease_s + self.kill_grace_s + self.lease_margin_s if lease_s else 0.0
