"""Bodies of requests and answers. Values only; the OpenAPI document is generated from these types.

A request body forbids unknown fields; an answer may grow new ones.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api.administration import PartitionInfo, QosInfo, QuotaInfo
from mgpu_jupyter.model.job import JobState, NodeState, Origin
from mgpu_jupyter.model.settings import Lists

MAX_PAGE = 1_000
MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_IDS = 500
"""How many jobs one query may name."""
IDS_PATTERN = f"^([A-Z0-9]{{8}}(,[A-Z0-9]{{8}}){{0,{MAX_IDS - 1}}})?$"
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
    """What is wrong and what to do; empty when nothing is."""
    warnings: tuple[str, ...] = ()
    link_address: str = ""
    link_addresses: tuple[str, ...] = ()
    """The addresses by which other machines reach the link; empty until the first join line was asked for."""
    relays_to: str = ""
    """Where the master is, when this server only relays to it."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The pool in numbers, and the requesting user."""

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
    """Which accounts jobs run as, and so who has to trust whom."""
    seq: int
    """The position of the event stream; resume from here."""
    partitions: dict[str, PartitionInfo] = {}
    """By name; one that you may not use is left out."""
    accounts: tuple[str, ...] = ()
    """Those that you may use with --account."""
    qos: dict[str, QosInfo] = {}
    """Those that you may use with --qos."""
    strategies: tuple[str, ...] = ()
    """The values of --policy."""
    strategy: str = ""
    """The strategy that picks nodes when none is named."""
    preemption: bool = False
    quota: QuotaInfo = QuotaInfo()
    """How much you may have."""
    privacy: Literal["full", "names", "none"] = "full"
    """What you see of the jobs of others; administrators see all."""


GpuState = Literal["free", "held", "outside", "settling", "unhealthy"]


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU."""

    pid: int
    user: str | None = None
    memory_bytes: int | None = None
    outside: bool = False
    """Whether it belongs to no job of that node."""
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
    """The rank of the job that it belongs to, where that follows from their numbers."""
    utilisation_percent: float | None = None
    memory_used_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    state: GpuState = "free"
    """`outside`: a process outside mgpu computes on it. `settling`: its last job's memory is not free yet.
    Only `free` is handed out.
    """
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
    """`draining` or `maintenance`; null when it takes jobs."""
    reason: str = ""
    by: str = ""
    at: float | None = None
    lists: Lists = Lists()
    """Who may use it; an empty `allow` admits everybody, and `deny` takes precedence over `allow`."""
    lists_reason: str = ""
    lists_by: str = ""
    lists_at: float | None = None
    labels: dict[str, str] = {}
    """In addition to the node's own labels, and in place of those of the same name."""
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
    """What differs from what was reported or expected."""


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
    """All nodes, and those that are expected."""

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
    """How far its node is, while the job starts: `asked` whether it can, `ready`, `meeting` the other nodes,
    `launching`, `started`.
    """


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The process that failed first, not those that failed because of it."""

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
    """One line by which to recognise it."""
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
    """The promised start, if there is one; `explain` looks ahead for all jobs."""
    placements: tuple[Placement, ...] = ()
    seq: int = 0
    array_id: str | None = None
    """The array that it belongs to."""
    array_index: int | None = None
    preempted: int = 0
    """How often it was ended for another job."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    pty: bool = False
    """Whether it runs in a terminal."""
    mismatches: tuple[str, ...] = ()
    """What ran differently from what was assigned, in sentences; see its trace."""
    warnings: tuple[str, ...] = ()
    """What its owner should know about this attempt, for example what differs between its nodes."""
    failure: Failure | None = None
    """For one job that failed; lists leave it out."""
    origin: Origin | None = None
    """The notebook and cell that it came from, as digests."""
    sweep: dict[str, str] = {}
    """Its values, when it is one job of a sweep."""
    distributed: bool = False
    """Whether its processes find each other: it was submitted with --distributed."""
    master_node: NodeId | None = None
    """The node of rank 0, once it has its nodes."""
    kill_at: float | None = None
    """While it is stopping: when what has not ended by itself is killed."""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first; `next_cursor` continues it."""

    jobs: tuple[Job, ...]
    next_cursor: str | None = None
