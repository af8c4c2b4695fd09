"""What a user asks for, as a value, and where it came from. Pure."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.ids import NODE_ID_PATTERN

DIGEST_CHARS = 32
Digest = Annotated[str, Meta(pattern=rf"^([0-9a-f]{{{DIGEST_CHARS}}})?$(?!\n)")]


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The notebook, the cell and its text; what is not known is empty."""

    notebook: Digest = ""
    """Of the machine and the notebook's path on it."""
    cell: Digest = ""
    """Of the cell's id, in front ends that tell one."""
    source: Digest = ""
    """Of what the cell asks for."""

    def is_same_cell(self, other: Origin) -> bool:
        """Tell whether both are one cell with one text; without the id of either cell, the text decides."""
        if not self.notebook or self.notebook != other.notebook or self.source != other.source:
            return False
        return self.cell == other.cell or not (self.cell and other.cell)


def digest(*parts: str) -> str:
    """Return a digest of these texts, in this order; empty if the last is empty."""
    if not parts[-1]:
        return ""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()[:DIGEST_CHARS]


MAX_SCRIPT_CHARS = 4 * 1024 * 1024
MAX_ARGUMENTS = 10_000
MAX_COMMAND_CHARS = 1024 * 1024
MAX_ARGUMENT_CHARS = 128 * 1024 - 1  # Linux starts no program with a longer argument
MAX_ENVIRONMENT = 1_000
MAX_NODES = 10_000
MAX_GPUS_PER_NODE = 1_024
MAX_TASKS_PER_NODE = 1_024
MAX_TASKS = 100_000

NodeName = Annotated[str, Meta(pattern=NODE_ID_PATTERN)]
EnvironmentName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)", max_length=200)]
PLAIN_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$(?!\n)"
PlainText = Annotated[str, Meta(pattern=PLAIN_PATTERN, max_length=200)]
Word = Annotated[str, Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,63})?$(?!\n)")]
"""A name in the configuration; empty for none."""
FileName = Annotated[str, Meta(pattern=PLAIN_PATTERN, max_length=4096)]
TerminalSize = Annotated[int, Meta(ge=1, le=10_000)]
GpuIndex = Annotated[int, Meta(ge=0, lt=MAX_GPUS_PER_NODE)]
Argument = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
EnvironmentValue = Annotated[str, Meta(pattern=r"^[^\x00]*$", max_length=MAX_ARGUMENT_CHARS)]


class JobState(StrEnum):
    """The state of a job; the last four are final."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"

    @property
    def is_final(self) -> bool:
        """Tell whether nothing can follow."""
        return self in FINAL_STATES

    @property
    def past(self) -> str:
        """The state as the end of a sentence about a job."""
        return {"timeout": "ran into its time limit", "cancelled": "was cancelled"}.get(
            self.value, self.value
        )


FINAL_STATES = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMEOUT})


class NodeState(StrEnum):
    """Whether a node takes work, and if not, why in a word."""

    ONLINE = "online"
    SUSPECT = "suspect"
    OFFLINE = "offline"
    DRAINING = "draining"
    MAINTENANCE = "maintenance"
    UNHEALTHY = "unhealthy"


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One part of a job that asks for something else than its other parts."""

    gpus: Annotated[int, Meta(ge=0, le=MAX_GPUS_PER_NODE)] = 0
    cpus: Annotated[int, Meta(ge=0, le=100_000)] = 0
    mem_bytes: Annotated[int, Meta(ge=0, le=2**60)] = 0
    arch: Word = ""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A request, as `mgpu_srun` and the magics spell it: one field per flag."""

    command: Annotated[tuple[Argument, ...], Meta(max_length=MAX_ARGUMENTS)] = ()
    """The words of the command; no shell. Either this or `script`."""
    script: (
        Annotated[str, Meta(max_length=MAX_SCRIPT_CHARS, extra_json_schema={"pattern": "^[^\\u0000]*$"})]
        | None
    ) = None
    """Source text (a cell): Python, or what its `#!` line names."""
    name: PlainText = ""
    gpus: Annotated[int, Meta(ge=0, le=MAX_NODES * MAX_GPUS_PER_NODE)] | None = None
    """In total; default 1, or `gpus_per_node` times `nodes`."""
    nodes: Annotated[int, Meta(ge=1, le=MAX_NODES)] | None = None
    gpus_per_node: Annotated[int, Meta(ge=0, le=MAX_GPUS_PER_NODE)] | None = None
    nodelist: Annotated[tuple[NodeName, ...], Meta(max_length=MAX_NODES)] = ()
    exclude: Annotated[tuple[NodeName, ...], Meta(max_length=MAX_NODES)] = ()
    cpus: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """CPUs on each node; 0 asks for none in particular."""
    time_limit_s: Annotated[float, Meta(gt=0, le=10 * 365 * 86_400)] | None = None
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0
    env: Annotated[dict[EnvironmentName, EnvironmentValue], Meta(max_length=MAX_ENVIRONMENT)] = {}
    cwd: Annotated[str, Meta(pattern=r"^/[^\x00]*$", max_length=4096)] | None = None
    python: Annotated[str, Meta(pattern=r"^[^\x00]+$", max_length=4096)] | None = None
    kernel_python: Annotated[str, Meta(pattern=r"^[^\x00]+$", max_length=4096)] | None = None
    kernel_python_version: Annotated[str, Meta(pattern=r"^\d+\.\d+$(?!\n)")] | None = None
    requeue: bool = True
    """Run again when its node is lost."""
    on_disconnect: Literal["", "keep", "fence"] = ""
    """When its node is cut off: let it run on, or end it there after the lease; empty for the cluster's
    default.
    """
    wait_for_nodes: bool = False
    """Wait even if no known node could ever run it."""
    parts: Annotated[tuple[Part, ...], Meta(max_length=MAX_NODES)] = ()
    """Different parts, in place of `gpus` and `gpus_per_node`: summed on one node, or one for each of
    `nodes`.
    """
    prefer: Annotated[tuple[NodeName, ...], Meta(max_length=MAX_NODES)] = ()
    """Prefer these nodes; others if they cannot."""
    partition: Word = ""
    gpu_ids: Annotated[tuple[GpuIndex, ...], Meta(max_length=MAX_GPUS_PER_NODE)] = ()
    """Exactly these GPUs, by index, on each node."""
    node_gpu_ids: Annotated[
        dict[NodeName, Annotated[tuple[GpuIndex, ...], Meta(min_length=1, max_length=MAX_GPUS_PER_NODE)]],
        Meta(max_length=MAX_NODES),
    ] = {}
    """Exactly these GPUs of exactly these nodes."""
    gpu_type: PlainText = ""
    """Part of the GPU's name, like A100."""
    gpu_mem_bytes: Annotated[int, Meta(ge=0, le=2**50)] = 0
    """Memory that each GPU must have."""
    constraint: Annotated[str, Meta(pattern=PLAIN_PATTERN, max_length=1000)] = ""
    """Labels of the node, like `a100&(rack=r1|!old)`."""
    arch: Word = ""
    mem_per_node_bytes: Annotated[int, Meta(ge=0, le=2**60)] = 0
    """Host memory on each node."""
    exclusive: bool = False
    """No other job on its nodes while it runs; quotas count only what it asked for."""
    policy: Word = ""
    """Strategy that picks the nodes; empty for that of the partition or cluster."""
    qos: Word = ""
    account: Word = ""
    begin_at: Annotated[float, Meta(ge=0, le=10**12)] = 0.0
    """Not before this time (seconds since 1970)."""
    hold: bool = False
    """Wait until it is released."""
    dependency: Annotated[str, Meta(pattern=PLAIN_PATTERN, max_length=10_000)] = ""
    """Jobs it waits for, like `afterok:ABCD1234:WXYZ5678,afterany:QRST9012`."""
    array: Annotated[str, Meta(pattern=PLAIN_PATTERN, max_length=1000)] = ""
    """Many jobs of one request, like `1-100%8`."""
    stdin: bool = False
    """Whether rank 0 reads what is sent to it over the job's stream."""
    pty: bool = False
    """Run in a terminal."""
    terminal: tuple[TerminalSize, TerminalSize] = (24, 80)
    """Rows and columns of the terminal at its start."""
    interactive_kill: bool = False
    """End it when nobody has been attached for a while."""
    signal: Annotated[str, Meta(pattern=r"^[A-Za-z0-9:+@-]*$(?!\n)", max_length=40)] = ""
    """Warning before the time limit, like `USR1@60`."""
    env_setup_cmd: Annotated[str, Meta(pattern=r"^[^\x00]*$", max_length=MAX_ARGUMENT_CHARS // 2)] = ""
    """Shell text that runs before the command, in the same environment."""
    mpi: bool = False
    """Run the command once, on the first node; `mpirun` in it reaches the others."""
    home: Annotated[str, Meta(pattern=PLAIN_PATTERN, max_length=255)] = ""
    """The submitting machine: `gpu_ids` without a node means GPUs of that one, if it is a node."""
    distributed: bool = False
    """One process for each GPU (or one launcher on each node), which find each other."""
    ntasks_per_node: Annotated[int, Meta(ge=1, le=MAX_TASKS_PER_NODE)] | None = None
    """The number of processes on each node."""
    sweep: Annotated[
        dict[EnvironmentName, Annotated[tuple[EnvironmentValue, ...], Meta(min_length=1, max_length=10_000)]],
        Meta(max_length=20),
    ] = {}
    """Values by name: each job of the array has one combination, in place of `{name}` in the command and in
    `SWEEP_name`.
    """
    debug: bool = False
    """Each process first prints on stderr who and where it is."""
    sync: Annotated[str, Meta(pattern=r"^(/[^\x00]*|[0-9a-f]{64})?$(?!\n)", max_length=4096)] = ""
    """A folder that becomes the working directory: its path where the client reads it, then the SHA-256 of
    its list.
    """
    results: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[^\x00]+$", max_length=1000)], ...], Meta(max_length=100)
    ] = ()
    """Patterns of files that are collected from its directory when it has ended, like `out/*.pt`."""
    prolog: Annotated[str, Meta(pattern=r"^[^\x00]*$", max_length=10_000)] = ""
    """A shell command that runs on each node before its processes; if it fails, the job is queued again."""
    epilog: Annotated[str, Meta(pattern=r"^[^\x00]*$", max_length=10_000)] = ""
    """The same after they have ended, in whatever way."""
    retries: Annotated[int, Meta(ge=0, le=1_000)] = 0
    """How often it runs again after a non-zero exit."""
    image: Annotated[str, Meta(pattern=PLAIN_PATTERN, max_length=500)] = ""
    """Container image that it runs in."""
    stdout_file: FileName = ""
    """A file that each process writes what it prints to, beside the master's own record of it; relative to
    its directory, with patterns like `%j`.
    """
    stderr_file: FileName = ""
    """The same for errors; without it they go where the rest goes."""
    open_mode: Literal["", "append", "truncate"] = ""
    """Whether such a file is emptied first; empty for yes, where one process alone writes to it."""
    origin: Origin | None = None
    """The notebook and cell that it came from, by which they find it again."""
    inputs: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$(?!\n)")] = ""
    """Variables that a cell is given: their file, sent like a folder, by the SHA-256 of its list."""
    outputs: Annotated[tuple[EnvironmentName, ...], Meta(max_length=100)] = ()
    """Variables that a cell returns, by name."""
    outputs_limit_bytes: Annotated[int, Meta(ge=0, le=2**40)] = 2 * 1024**3
    """The most bytes of these for each rank."""


def request_bytes(spec: JobSpec) -> int:
    """Return the size of a request, as it is sent and kept."""
    return len(msgspec.json.encode(spec))
