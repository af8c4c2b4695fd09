"""Bodies of requests and answers. Values only; the OpenAPI document is generated from these types.

A request body forbids unknown fields; an answer may grow new ones.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.ids import NODE_ID_PATTERN, GpuUuid, JobId, NodeId
from mgpu_jupyter.api.administration import PartitionInfo, QosInfo, QuotaInfo
from mgpu_jupyter.api.input import ResizeFrame, StdinAckFrame, StdinFrame
from mgpu_jupyter.model.job import JobSpec, JobState, NodeState
from mgpu_jupyter.model.origin import Origin
from mgpu_jupyter.model.settings import Lists

MAX_BULK = 10_000
MAX_PAGE = 1_000
MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_LISTEN = 16
MAX_JOIN_TTL_S = 30 * 86_400
MAX_KEY_CHARS = 200
CURSOR_PATTERN = "^(n[0-9]{1,18})?$"
MAX_RANK = 1_000_000
MAX_OFFSET = 2**53
MAX_TIME_S = 10**12
MAX_OUTPUT_LIMIT = 64 * 1024 * 1024


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """Every error answer: `code` is stable, `message` says what to do."""

    code: str
    message: str
    details: dict[str, Any] = {}


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the master works, and if not, why."""

    status: Literal["ok", "degraded", "starting", "failed"]
    version: str
    cluster: str = ""
    master_epoch: int = 0
    message: str = ""
    """What is wrong and what to do; empty when all is well."""
    warnings: tuple[str, ...] = ()
    link_address: str = ""
    link_addresses: tuple[str, ...] = ()
    """Where other machines reach the link; empty until the first join line was asked for."""
    relays_to: str = ""
    """Where the master is, when this server only relays to it."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The pool in numbers, and who asks."""

    name: str
    user: str
    admin: bool
    nodes: int
    nodes_online: int
    gpus: int
    gpus_free: int
    simulated: bool
    """True when at least one GPU is simulated."""
    jobs: dict[str, int]
    """How many jobs are in each state that is not final."""
    notice: str
    """Who trusts whom, said aloud."""
    seq: int
    """Where the event stream is; resume from here."""
    partitions: dict[str, PartitionInfo] = {}
    """By name; one that you may not use is left out."""
    accounts: tuple[str, ...] = ()
    """Those that you may use with --account."""
    qos: dict[str, QosInfo] = {}
    """Those that you may use with --qos."""
    strategies: tuple[str, ...] = ()
    """What --policy may name."""
    strategy: str = ""
    """What picks nodes when nothing is named."""
    preemption: bool = False
    quota: QuotaInfo = QuotaInfo()
    privacy: Literal["full", "names", "none"] = "full"
    """What you see of the jobs of others; administrators see all."""
    """How much you may have."""


GpuState = Literal["free", "held", "outside", "settling", "unhealthy"]


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU."""

    pid: int
    user: str | None = None
    memory_bytes: int | None = None
    outside: bool = False
    """No process of a job of that node."""
    name: str = ""
    """Of its program."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, who holds it, and its newest reading."""

    index: int
    uuid: GpuUuid
    name: str
    memory_bytes: int
    simulated: bool
    job_id: JobId | None = None
    user: str | None = None
    rank: int | None = None
    """The process of the job that it is for, where that follows from their numbers."""
    utilisation_percent: float | None = None
    memory_used_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    state: GpuState = "free"
    """`outside`: a process outside mgpu computes on it. `settling`: its last job's memory is not back. Only `free` is handed out."""
    reason: str = ""
    """Why it is neither free nor held."""
    processes: tuple[GpuProcess, ...] = ()
    mig_parent: str = ""
    """The UUID of the GPU that this MIG instance is a part of."""
    nvlinks: dict[GpuUuid, int] = {}
    """UUIDs of GPUs of the same node that NVLink joins it to, with the number of links."""


class NodeOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What administrators ordered about a node, who did, and when."""

    state: NodeState | None = None
    """`draining` or `maintenance`; null when it is to take jobs."""
    reason: str = ""
    by: str = ""
    at: float | None = None
    lists: Lists = Lists()
    """Who may use it; an empty `allow` lets in everybody, and `deny` goes before `allow`."""
    lists_reason: str = ""
    lists_by: str = ""
    lists_at: float | None = None
    labels: dict[str, str] = {}
    """In addition to those that the node brings, and in place of those of the same name."""
    labels_reason: str = ""
    labels_by: str = ""
    labels_at: float | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the pool."""

    id: NodeId
    state: NodeState
    reason: str
    host: str
    address: str
    arch: str
    cpus: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    gpu_note: str = ""
    labels: dict[str, str] = {}
    rack: str = ""
    switch: str = ""
    agent_version: str = ""
    last_seen_at: float | None = None
    address_method: str = ""
    """How the node found its address: given, way-to-master, default-route, host-name or none."""
    port: int = 0
    """Announced with `mgpu_node --port`; 0 for none."""
    orders: NodeOrders = NodeOrders()
    failures: int = 0
    """Failed starts in a row; too many make it unhealthy."""
    failures_total: int = 0
    probe_at: float | None = None
    """When an unhealthy node is tried again; null while it is being tried."""
    cpu_percent: float | None = None
    memory_available_bytes: int | None = None
    runs: str = ""
    """As whom it runs jobs: `each job as its user`, or `every job as NAME`."""
    warnings: tuple[str, ...] = ()
    """What is not as it was said to be."""


class JoinTokenRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line for one new machine."""

    node_id: Annotated[str, Meta(pattern=NODE_ID_PATTERN)] | None = None
    """The only name that it may be used for; any new name if left out."""
    ttl_s: Annotated[float, Meta(ge=1, le=MAX_JOIN_TTL_S)] = 3600.0
    listen: Annotated[tuple[str, ...], Meta(max_length=MAX_LISTEN)] = ()
    """Addresses of this machine on which the link is to listen from now on; the one of the default route if none is known."""


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """The line to paste. It holds a secret that works once."""

    command: str
    """`mgpu_node --join …`"""
    line: str
    expires_at: float
    addresses: tuple[str, ...]
    """Where the new machine will look for the master."""
    node_id: NodeId | None = None
    message: str = ""
    """Said when the link began to listen on an address."""


class ExpectedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that the cluster's file lists and that never joined."""

    id: str
    state: Literal["expected"] = "expected"
    host: str = ""
    address: str = ""
    port: int | None = None
    gpu_count: int | None = None
    gpu_type: str = ""


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes, and those that should be there."""

    nodes: tuple[Node, ...]
    expected: tuple[ExpectedNode, ...] = ()


StartStep = Literal["", "asked", "ready", "meeting", "launching", "started"]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a job: what its node gives to the job, and what really ran there."""

    node: NodeId
    rank: int
    gpus: tuple[GpuUuid, ...]
    gpu_indices: tuple[int, ...]
    simulated: bool = False
    """True when these GPUs are simulated."""
    host: str | None = None
    address: str | None = None
    pid: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    cwd: str | None = None
    python: str | None = None
    note: str = ""
    local_rank: int = 0
    """Its number among the processes on its node."""
    step: StartStep = ""
    """How far its node is, while the job starts: `asked` whether it can, `ready`, `meeting` the other nodes, `launching`, `started`."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The process that failed first, not those that fell because of it."""

    rank: int
    node: NodeId
    exit_code: int | None = None
    signal: int | None = None
    last_lines: tuple[str, ...] = ()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as everyone may see it in the queue."""

    id: JobId
    state: JobState
    user: str
    name: str
    command: str
    """One line to recognise it by."""
    nodes: tuple[NodeId, ...]
    gpus: int
    exit_code: int | None
    attempt: int
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    reason: str
    """While it waits: why. When it failed: why."""
    reason_code: str = ""
    priority: int = 0
    time_limit_s: float | None = None
    nodes_wanted: int = 1
    """How many nodes it asks for."""
    place: int | None = None
    """1 is next; only while it is queued."""
    expected_start_at: float | None = None
    """When it was promised to start, if it was; `explain` looks ahead for all."""
    placements: tuple[Placement, ...] = ()
    seq: int = 0
    array_id: str | None = None
    """The array that it is one of."""
    array_index: int | None = None
    preempted: int = 0
    """How often it was ended for another job."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    pty: bool = False
    """It runs in a terminal."""
    mismatches: tuple[str, ...] = ()
    """What ran otherwise than was assigned, in sentences; see its trace."""
    warnings: tuple[str, ...] = ()
    """What its owner should know of this attempt, for example what is not alike on its nodes."""
    failure: Failure | None = None
    """Of one job that failed; lists leave it out."""
    origin: Origin | None = None
    """The notebook and cell that it came from, as digests."""
    sweep: dict[str, str] = {}
    """Its values, when it is one job of a sweep."""
    kill_at: float | None = None
    """While it is stopping: when what has not ended by itself is killed."""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first; `next_cursor` continues it."""

    jobs: tuple[Job, ...]
    next_cursor: str | None = None


class Submitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job is saved; it will not be lost. Of an array, `job_id` and `state` are those of its first job."""

    job_id: JobId
    state: JobState
    array_id: str | None = None
    job_ids: tuple[JobId, ...] = ()
    """All jobs of the array, in the order of their numbers."""


class BulkItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job of a bulk, with its own idempotency key."""

    spec: JobSpec
    key: Annotated[str, Meta(min_length=1, max_length=MAX_KEY_CHARS)] | None = None


class BulkSubmit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Many jobs, accepted all or none."""

    jobs: Annotated[tuple[BulkItem, ...], Meta(min_length=1, max_length=MAX_BULK)]


class BulkSubmitted(msgspec.Struct, frozen=True, kw_only=True):
    """Their ids, in the order of the request."""

    jobs: tuple[Submitted, ...]


class CancelAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the cancel found; the end follows by itself."""

    job_id: JobId
    state: JobState
    """Of an array: that of the job that has most before it."""
    job_ids: tuple[JobId, ...] = ()
    """The jobs that it meant, when an array was named."""


class JobChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be different about a job; what is left out stays."""

    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None = None
    """Of a job that waits."""
    time_limit_s: Annotated[float, Meta(gt=0, le=10 * 365 * 86_400)] | None = None
    """Of a job that waits or runs; only administrators go beyond what the partition or cluster allows."""
    hold: bool = False
    release: bool = False


class OrderAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job as it is after the order."""

    job_id: JobId
    state: JobState
    """Of an array: that of the job that has most before it."""
    job_ids: tuple[JobId, ...] = ()
    """The jobs that it changed, when an array was named."""


# --- streams: one JSON object a line (HTTP) or a text frame (WebSocket) ---------------------------


class OutputFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="output"):
    """Bytes of one rank, base64 in JSON; `offset` is where they stand in that rank's output."""

    rank: int
    stream: Literal["stdout", "stderr"]
    offset: int
    data: bytes
    attempt: int = 1


class JobFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="job"):
    """The job changed."""

    seq: int
    job: Job
    display_key: str = ""
    """In the stream of one job, for its owner: the key of what it displays, in `ESC _ mgpu;KEY;JSON ESC \\` within its output."""


class NodeFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="node"):
    """The node or the readings of its GPUs changed."""

    seq: int
    node: Node


class GapFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="gap"):
    """Output that cannot be had any more (its node is lost)."""

    rank: int
    message: str


class ReadyFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ready"):
    """All that was asked for up to `seq` has been sent; from here on it is live."""

    seq: int


class EndFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="end"):
    """The job is over and its output complete; nothing follows."""

    job: Job


class PingFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ping"):
    """Nothing happened; the connection lives."""


JobStreamFrame = OutputFrame | JobFrame | GapFrame | EndFrame | PingFrame
JobSocketFrame = JobStreamFrame | StdinAckFrame
ClientFrame = StdinFrame | ResizeFrame | PingFrame
