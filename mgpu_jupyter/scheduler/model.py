"""What the scheduler knows of one job and one node. Values; the state that holds them is `ClusterState`."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, JobId, NodeId
from mgpu_agent.protocol.model import GpuTrouble, NodeFacts, TaskStatus
from mgpu_jupyter.model.job import JobSpec, JobState, NodeState
from mgpu_jupyter.model.launchers import meets
from mgpu_jupyter.model.settings import Lists, Scheduling
from mgpu_jupyter.model.waits import Dependency
from mgpu_jupyter.scheduler.standing import NodeHealth, NodeOrders, day_and_time, seen_as


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
    """The one process that counts succeeded."""


class Rendezvous(msgspec.Struct, frozen=True, kw_only=True):
    """The address at which the ranks of an attempt find rank 0."""

    address: str
    """Of the first node; all nodes can reach it."""
    port: int

    @property
    def endpoint(self) -> str:
        """Host and port in one, as in URLs."""
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
    """The interface by which the other nodes of the attempt reach it, as measured; empty if they differ."""
    host: str = ""
    """The node's host name when this was decided; the next is the address by which it was to be reached."""
    address: str = ""

    @property
    def ranks(self) -> range:
        """The ranks of its processes."""
        return range(self.rank, self.rank + self.tasks)


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of an attempt that will never be told of again: their node could not start them, or lost them."""

    ranks: tuple[int, ...]
    at: float
    text: str


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
    """What really ran, one entry for each rank that was reported."""
    refused: tuple[int, ...] = ()
    """Ranks of this attempt that will never start."""
    given_up: tuple[GivenUp, ...] = ()
    """When and why those were refused; decides nothing."""
    placed_at: float = 0.0
    """When this attempt was given its nodes: it cannot have started before, whatever a node's clock says."""
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    reason: Reason | None = None
    not_before: float = 0.0
    failed_starts: int = 0
    failed_nodes: tuple[NodeId, ...] = ()
    """Nodes where an attempt failed to start; they are tried last."""
    stop: StopCause | None = None
    account: str = ""
    """The account that it counts for."""
    held: bool = False
    """It waits until somebody releases it."""
    after: tuple[Dependency, ...] = ()
    """The dependencies on other jobs that are still open."""
    array: ArrayPart | None = None
    new_priority: int | None = None
    """Set after submission; replaces that of its request."""
    new_time_limit_s: float | None = None
    preempted: int = 0
    """How often it was ended for another job."""
    retried: int = 0
    """How often it ran again after a non-zero exit."""
    prepared: tuple[int, ...] = ()
    """First ranks of the placements whose node said that it can start; all of them, and `Start` may leave."""
    in_scratch: tuple[int, ...] = ()
    """Of `prepared` those whose node cannot enter the directory of the job."""
    rendezvous: Rendezvous | None = None
    """The result of its nodes' meeting, where there is one; nothing of it starts before."""
    warnings: tuple[str, ...] = ()
    """What its owner should know about this attempt: what differs between its nodes."""
    mismatches: tuple[str, ...] = ()
    """What ran differently from what was assigned, in sentences, over all its attempts; the first few."""
    lease_s: float = 0.0
    """How long its nodes let this attempt run on without the master; 0 for ever."""
    fence_s: float = 0.0
    """How long after a node was last heard nothing of this attempt can run there: the lease, the kill grace
    and a margin.
    """
    kill_at: float | None = None
    """When the rest of an attempt that is being ended is killed."""

    @property
    def priority(self) -> int:
        """Its user's own priority."""
        return self.spec.priority if self.new_priority is None else self.new_priority

    @property
    def time_limit_s(self) -> float | None:
        """The time limit that was asked for."""
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
        """Tell whether some node has not answered yet that it can start, or they have not met."""
        if self.state is not JobState.STARTING or not self.is_gang:
            return False
        return len(self.prepared) != len(self.placements) or (meets(self.spec) and self.rendezvous is None)

    @property
    def is_gang(self) -> bool:
        """Tell whether its nodes are asked before anything is started."""
        return len(self.placements) > 1 or meets(self.spec)

    @property
    def attempt_key(self) -> AttemptKey:
        """The key of the current attempt."""
        return AttemptKey(self.id, self.attempt, self.epoch)

    @property
    def world_size(self) -> int:
        """How many processes this attempt has on all its nodes."""
        return sum(placement.tasks for placement in self.placements)

    @property
    def open_ranks(self) -> frozenset[int]:
        """Ranks whose process may still run, or may still start."""
        over = {task.rank for task in self.tasks if task.ended_at is not None} | set(self.refused)
        return frozenset(
            rank for placement in self.placements for rank in placement.ranks if rank not in over
        )

    @property
    def live_placements(self) -> tuple[Placement, ...]:
        """Placements with a process that may still run."""
        ranks = self.open_ranks
        return tuple(placement for placement in self.placements if not ranks.isdisjoint(placement.ranks))

    def open_ranks_on(self, node_id: NodeId) -> tuple[int, ...]:
        """Return the ranks that may still run on this node, or still start there."""
        ranks = self.open_ranks
        return tuple(
            rank
            for placement in self.placements
            if placement.node_id == node_id
            for rank in placement.ranks
            if rank in ranks
        )


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The last measured load of a node; None where it does not report it."""

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
    """The state that people see; `settle` updates it."""
    reason: str = ""
    link: NodeState = NodeState.ONLINE
    """The state of its connection: online, suspect or offline."""
    link_reason: str = ""
    orders: NodeOrders = NodeOrders()
    health: NodeHealth = NodeHealth()
    ailments: tuple[str, ...] = ()
    """Findings of checks; a node reports them again when it connects, so they are not saved."""
    load: Load = Load()
    holders: dict[GpuUuid, JobId] = {}
    blocked: dict[GpuUuid, GpuTrouble] = {}
    """GPUs that must not be handed out now, and why."""
    cpus_taken: int = 0
    mismatch: str = ""
    """The last thing that it said about itself and that is not true."""
    away_since: float | None = None
    """When it was heard last; None while it is being heard."""
    is_quiet: bool = False
    """Two of its beats did not come: it gets nothing new until it is heard."""
    is_silent: bool = False
    """Whether it is away without a goodbye, and will be accepted again when it is heard."""

    def settle(self) -> None:
        """Update state and reason from what is heard, ordered and failed."""
        self.state, self.reason = seen_as(
            self.link, self.link_reason, self.orders, self.health, self.ailments
        )
        if self.is_silent and self.away_since is not None:
            self.reason = f"{self.reason} It was last heard at {day_and_time(self.away_since)}."

    @property
    def lists(self) -> Lists:
        """Who may use it, in addition to the lists of its partition."""
        return self.orders.lists

    @property
    def labels(self) -> dict[str, str]:
        """The labels for `--constraint`: rack and switch, the node's own labels, and those that operators
        set.
        """
        places = {"rack": self.facts.rack, "switch": self.facts.switch}
        return (
            {name: value for name, value in places.items() if value} | self.facts.labels | self.orders.labels
        )

    @property
    def failures(self) -> int:
        """Failed starts in a row."""
        return self.health.failures

    @property
    def takes_work(self) -> bool:
        """Tell whether something may be placed here now."""
        return self.state is NodeState.ONLINE and not self.is_quiet


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that decisions depend on; all from the configuration."""

    kill_grace_s: float = 15.0
    on_disconnect: Literal["keep", "fence"] = "keep"
    """What becomes of jobs whose node is cut off, unless they say it themselves."""
    lease_s: float = 120.0
    """How long a fenced job runs on after the master last heard its node."""
    lease_margin_s: float = 10.0
    """How much longer than lease and grace the master waits: for clocks of different speed, and for the kill
    itself.
    """
    offline_s: float = 300.0
    """How long after its last message a silent node counts as offline."""
    prepare_s: float = 15.0
    """How long the nodes of a job may take to answer that they can start it."""
    meet_s: float = 4.0
    """How long the nodes of a job may try to reach each other."""
    apart_s: float = 60.0
    """How long two nodes that cannot reach each other get no job together."""
    folder_s: float = 600.0
    """The same for a job with a folder, which has to be transferred first."""
    prolog: str = ""
    """A command of the site that runs on each node before a job's processes; if it fails, the job is queued
    again.
    """
    epilog: str = ""
    """The same after they have ended, in whatever way."""
    hook_s: float = 60.0
    """How long one hook may take."""
    share_busy_gpus: bool = False
    """Whether a GPU with an outside process on it is handed out nevertheless."""
    scheduling: Scheduling = Scheduling()

    def prepare_of(self, spec: JobSpec) -> float:
        """Return how long the nodes of a job may take to answer that they can start it."""
        return max(self.prepare_s, self.folder_s) if spec.sync else self.prepare_s

    def lease_of(self, spec: JobSpec) -> float:
        """Return the lease of a job's next attempt; 0 for none."""
        return self.lease_s if (spec.on_disconnect or self.on_disconnect) == "fence" else 0.0

    def fence_of(self, spec: JobSpec) -> float:
        """Return how long after its last message a node can run nothing of it any more; 0 when it runs on."""
        lease_s = self.lease_of(spec)
        return lease_s + self.kill_grace_s + self.lease_margin_s if lease_s else 0.0
