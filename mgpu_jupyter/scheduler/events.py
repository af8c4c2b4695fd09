"""Facts for the scheduler, in the past tense; each carries the time `at` which it was noticed."""

from __future__ import annotations

from typing import Literal

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, JobId, NodeId
from mgpu_agent.protocol.meeting import MeetingPoint
from mgpu_agent.protocol.messages import Met
from mgpu_agent.protocol.model import GpuTrouble, NodeFacts, TaskStatus
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.waits import Dependency
from mgpu_jupyter.scheduler.model import ArrayPart, Job, Load
from mgpu_jupyter.scheduler.standing import NodeHealth, NodeOrders

Order = Literal["drain", "resume", "maintenance", "allow", "deny", "only", "clear-lists", "label", "remove"]


class StateRecovered(msgspec.Struct, frozen=True, kw_only=True):
    """The first event after a master's start: the content of the store."""

    at: float
    jobs: tuple[Job, ...] = ()
    nodes: tuple[tuple[NodeId, NodeFacts], ...] = ()
    reasons: dict[NodeId, str] = {}
    """Why nodes are away, where that is known."""
    orders: dict[NodeId, NodeOrders] = {}
    health: dict[NodeId, NodeHealth] = {}
    epoch: int = 0
    number: int = 0
    memos: dict[str, str] = {}
    ended: tuple[Job, ...] = ()
    """The newest jobs that are over, oldest first."""


class JobSubmitted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that passed all checks."""

    at: float
    job_id: JobId
    user: str
    spec: JobSpec
    key: str | None = None
    after: tuple[Dependency, ...] = ()
    """Its dependencies on other jobs, as far as they are open."""
    array: ArrayPart | None = None


class CancelRequested(msgspec.Struct, frozen=True, kw_only=True):
    """Cancel requested by an authorised user."""

    at: float
    job_id: JobId
    by: str


class JobChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Another priority or limit, hold or release requested by an authorised user; None leaves it as it is."""

    at: float
    job_id: JobId
    by: str
    priority: int | None = None
    time_limit_s: float | None = None
    held: bool | None = None


class RequeueRequested(msgspec.Struct, frozen=True, kw_only=True):
    """Requeue requested by an authorised user: the job ends and waits again in its old place."""

    at: float
    job_id: JobId
    by: str


class NodeJoined(msgspec.Struct, frozen=True, kw_only=True):
    """A node said Hello: what it has, and all that it runs or ran."""

    at: float
    node_id: NodeId
    facts: NodeFacts
    tasks: tuple[TaskStatus, ...] = ()
    prepared: tuple[AttemptKey, ...] = ()
    """Attempts that are prepared there and wait for their start."""
    troubles: dict[GpuUuid, GpuTrouble] = {}


class GpusChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A node reported which of its GPUs are in trouble; all others are healthy."""

    at: float
    node_id: NodeId
    troubles: dict[GpuUuid, GpuTrouble]


class NodeSilent(msgspec.Struct, frozen=True, kw_only=True):
    """A node was silent for too long, or its connection broke."""

    at: float
    node_id: NodeId
    reason: str
    heard_at: float | None = None
    """When it was last heard; at the latest when this was noticed."""


class NodeQuiet(msgspec.Struct, frozen=True, kw_only=True):
    """Two beats of a node did not come: it may be gone, or only slow."""

    at: float
    node_id: NodeId


class NodeHeard(msgspec.Struct, frozen=True, kw_only=True):
    """A quiet or silent node spoke again on the connection it had."""

    at: float
    node_id: NodeId


class NodeLeft(msgspec.Struct, frozen=True, kw_only=True):
    """An agent stopped on purpose; its jobs go on without it."""

    at: float
    node_id: NodeId
    reason: str


class NodeDeclaredLost(msgspec.Struct, frozen=True, kw_only=True):
    """An operator declared that nothing that this node runs counts any more."""

    at: float
    node_id: NodeId
    reason: str


class NodeOrdered(msgspec.Struct, frozen=True, kw_only=True):
    """An operator gave an order about a node. `only`: nobody but those named; `clear-lists`: everybody."""

    at: float
    node_id: NodeId
    by: str
    action: Order
    reason: str = ""
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    labels: dict[str, str | None] = {}
    """For `label`: values by name; None removes the operator's label."""


class NodeProbed(msgspec.Struct, frozen=True, kw_only=True):
    """A node reported the result of its trial."""

    at: float
    node_id: NodeId
    number: int
    ok: bool
    message: str = ""


class NodeChecked(msgspec.Struct, frozen=True, kw_only=True):
    """The ailments of a node changed, by its own checks or by its clock; none when it is healthy."""

    at: float
    node_id: NodeId
    ailments: tuple[str, ...] = ()


class NodeMisnamed(msgspec.Struct, frozen=True, kw_only=True):
    """The agent with the key of `node_id` called itself another node, in general or about one attempt."""

    at: float
    node_id: NodeId
    said: str
    key: AttemptKey | None = None


class NodeMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a node changed enough to matter."""

    at: float
    node_id: NodeId
    load: Load


class TaskReported(msgspec.Struct, frozen=True, kw_only=True):
    """A node reported the state of one process of an attempt."""

    at: float
    status: TaskStatus


class LaunchWasPrepared(msgspec.Struct, frozen=True, kw_only=True):
    """A node can start its part, and has reserved its GPUs."""

    at: float
    node_id: NodeId
    key: AttemptKey
    offer: MeetingPoint | None = None
    in_scratch: bool = False
    """It cannot enter the directory of the job."""


class NodeMet(msgspec.Struct, frozen=True, kw_only=True):
    """A node reported which other nodes of an attempt it reached."""

    at: float
    node_id: NodeId
    met: Met


class LaunchWasRefused(msgspec.Struct, frozen=True, kw_only=True):
    """A node did not start its part, and never will under this key."""

    at: float
    node_id: NodeId
    key: AttemptKey
    code: str
    message: str
    fault: str
    exit_code: int | None = None


class TimePassed(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits and delays are to be checked."""

    at: float


class PassDue(msgspec.Struct, frozen=True, kw_only=True):
    """Something changed, so a pass over the waiting jobs is due."""

    at: float


Event = (
    StateRecovered
    | JobSubmitted
    | CancelRequested
    | JobChanged
    | RequeueRequested
    | NodeJoined
    | GpusChanged
    | NodeQuiet
    | NodeSilent
    | NodeHeard
    | NodeLeft
    | NodeDeclaredLost
    | NodeOrdered
    | NodeProbed
    | NodeChecked
    | NodeMisnamed
    | NodeMeasured
    | TaskReported
    | LaunchWasPrepared
    | NodeMet
    | LaunchWasRefused
    | TimePassed
    | PassDue
)
