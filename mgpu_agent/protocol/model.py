"""Values that master and agents share: what a node has, what it should run, what it ran.

Frozen and without behaviour. New fields get defaults; the meaning of a field never changes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.bounds import GPUS, LABELS, LINKS_PER_GPU, PROCESSES_PER_GPU, SEVERAL, Line, Name
from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, NodeId

STDOUT = 1
STDERR = 2
STREAMS = (STDOUT, STDERR)
SUBMITTER = "*"
NOTHING_MORE = 1 << 62
"""As an offset: the master keeps no more of this stream, so none need be sent or stored."""


class GpuInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change about a GPU while the node is up."""

    index: int
    uuid: GpuUuid
    name: Name
    memory_bytes: int
    simulated: bool = False
    mig_parent: Name = ""
    """The UUID of the GPU that this MIG instance is a part of; empty for a whole GPU."""
    nvlinks: Annotated[dict[GpuUuid, int], Meta(max_length=LINKS_PER_GPU)] = {}
    """GPUs of the same node that NVLink joins it to, with the number of links."""


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that uses a GPU, of a job or not."""

    pid: int
    user: Name | None = None
    memory_bytes: int | None = None
    outside: bool = False
    """Whether it belongs to no job of this node."""
    passive: bool = False
    """Whether it is a display or a service of the driver, which is shown but keeps no job off the GPU."""
    name: Name = ""
    """Of its program."""


class Trouble:
    """Kinds of trouble, as words on the wire; an unknown one is a reason like any other."""

    OUTSIDE = "outside"
    """A process that is no job of this node computes on it."""
    MEMORY = "memory"
    """The memory of its last job is not free yet."""
    UNREAD = "unread"
    """It was not read yet."""
    SILENT = "silent"
    """The driver does not answer; what runs may be unharmed."""
    LOST = "lost"
    """It is gone: what runs on it cannot continue."""
    HEALTH = "health"
    """A program of the site says that it must not be used."""


class GpuTrouble(msgspec.Struct, frozen=True):
    """Why a GPU must not be handed out now."""

    kind: Name
    text: Line


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of one GPU. `None` means that the GPU does not report it."""

    uuid: GpuUuid
    utilisation_percent: float | None = None
    memory_used_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    processes: Annotated[tuple[GpuProcess, ...], Meta(max_length=PROCESSES_PER_GPU)] = ()
    trouble: GpuTrouble | None = None


class HealthChecks(msgspec.Struct, frozen=True, kw_only=True):
    """What a node checks by itself, and how often."""

    every_s: float = 30.0
    min_free_bytes: int = 0
    """Less than this on the disk of its state is an ailment."""
    program: tuple[str, ...] = ()
    """A program of the site: its output is an ailment when it exits with another code than 0."""
    program_timeout_s: float = 30.0


class Ailment(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of a check: the node, or one of its GPUs, must not be given work now."""

    check: Name
    text: Line
    """One sentence that says what is wrong and what to do."""
    gpu: GpuUuid | None = None


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says about itself when it joins."""

    host: Name
    address: Name
    arch: Name
    cpus: int
    memory_bytes: int
    boot_id: Name
    incarnation: Name
    """Changes when nothing that was started before can still run: a new boot or a new ledger."""
    agent_version: Name
    python: Line
    pid: int
    gpus: Annotated[tuple[GpuInfo, ...], Meta(max_length=GPUS)] = ()
    gpu_note: Line = ""
    """Why there are no GPUs, or that they are simulated; empty when there is nothing to say."""
    labels: Annotated[dict[Name, Name], Meta(max_length=LABELS)] = {}
    rack: Name = ""
    switch: Name = ""
    address_method: Name = ""
    """How `address` was found; see `FoundBy`."""
    runs_as: Name = ""
    """The account that all jobs of this node run as; `SUBMITTER` when each runs as its user, empty when
    unknown.
    """
    port: int = 0
    """Announced to peers with `--port`; 0 for none."""


class PythonWish(msgspec.Struct, frozen=True, kw_only=True):
    """Which interpreter a cell asks for; the agent picks the first that it has."""

    path: str | None = None
    """Asked for by name (`--python`): this one or none."""
    kernel_path: str | None = None
    kernel_version: str | None = None
    """`major.minor` of the kernel; its path is taken only when the versions agree."""


class CellWish(msgspec.Struct, frozen=True, kw_only=True):
    """A question: which interpreter would a cell of this user get?"""

    user: str
    python: PythonWish


class CellPython(msgspec.Struct, frozen=True, kw_only=True):
    """The interpreter that a cell would get; empty when there is none."""

    path: Line = ""
    version: Name = ""
    """`major.minor`."""


class OutputFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of the user's own that a process writes one of its streams to, as well as to the spool."""

    stream: int
    path: str
    """Relative to the directory of the process, or whole."""
    append: bool = False
    """Leave what is in it; else it is emptied first."""


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a job on one node."""

    rank: int
    env: dict[str, str] = {}
    files: tuple[OutputFile, ...] = ()
    """At most one for each stream."""


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that one node needs to run its part of one attempt."""

    key: AttemptKey
    node_id: NodeId
    incarnation: str
    user: str
    tasks: tuple[TaskSpec, ...]
    gpus: tuple[GpuUuid, ...] = ()
    argv: tuple[str, ...] = ()
    script: str | None = None
    """Source text to run in place of `argv`; a `#!` first line names its interpreter, else Python."""
    python: PythonWish = PythonWish()
    env: dict[str, str] = {}
    cwd: str | None = None
    """The submitter's directory; used when it exists on the node, else the job's scratch."""
    kill_grace_s: float = 15.0
    lease_s: float = 0.0
    """How long after the master last heard its node the keeper ends it; 0 lets it run on."""
    stdin: bool = False
    """Whether rank 0 reads what comes by `Input`; other ranks have no stdin."""
    pty: bool = False
    """Whether rank 0 runs in a terminal."""
    rows: int = 24
    columns: int = 80
    setup: str = ""
    """Shell text that runs before the command, in the same environment."""
    defaults: dict[str, str] = {}
    """Variables used where neither the node's own environment nor `env` sets them."""
    debug: bool = False
    """Whether each process first prints on stderr who and where it is."""
    folder: str = ""
    """The digest of the list of its folder, which is its working directory; empty for none."""
    results: tuple[str, ...] = ()
    """Patterns of files that are collected from its directory when it has ended."""
    hooks: tuple[HookSpec, ...] = ()
    """In the order in which they run."""
    mpi: bool = False
    """Whether rank 0 runs the command, which reaches the other nodes through the agents, and the other ranks
    wait for its orders.
    """
    inputs: str = ""
    """The digest of the list of its cell's variables; empty for none."""
    outputs: tuple[str, ...] = ()
    """The variables that its cell returns."""
    outputs_limit_bytes: int = 0
    """The most bytes of these for each rank; 0 for no limit."""
    container: bool = False
    """Whether it starts a container, whose tools need setuid programs."""
    cpus: int = 0
    mem_bytes: int = 0
    """The memory that it asked for on this node; 0 for none."""
    folder_limit_bytes: int = 0
    """The most bytes of its folder when laid out; 0 for no limit."""
    results_limit_bytes: int = 0
    """The most bytes that the master keeps of its results on this node, files and variables together; 0 for
    no limit.
    """


class ProcessSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One process of an attempt as its node finds it now, by what the system and the process show."""

    rank: int
    pid: int
    alive: bool
    host: Name = ""
    """The name of the machine that it runs on."""
    node_id: Name = ""
    """This and the next two are from its own environment."""
    job_id: Name = ""
    attempt: Name = ""
    cwd: Line = ""
    user: Name = ""
    started_at: float = 0.0
    ports: Annotated[tuple[Line, ...], Meta(max_length=SEVERAL)] = ()
    """The `address:port` on which it and its children listen."""
    master_port: Name = ""
    """`MASTER_PORT` of its environment."""
    note: Line = ""
    """What could not be read, and why."""


class ResultFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that an attempt left for its user."""

    path: Line
    """Relative to its directory."""
    size: int
    sha256: Name
    mode: int = 0o644
    rank: int = -1
    """The rank that returned these variables; -1 for a file that matched a pattern."""


class HookSpec(msgspec.Struct, frozen=True, array_like=True):
    """A command that runs on each node of a job before its processes start or after they ended."""

    kind: str
    """`prolog` or `epilog`."""
    command: str
    site: bool = False
    """The site's own, which runs as the agent's user."""
    limit_s: float = 60.0


class OutputMark(msgspec.Struct, frozen=True, array_like=True):
    """How far one stream of one rank is known to reach."""

    key: AttemptKey
    rank: int
    stream: int
    offset: int


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one process of an attempt, reported by its node."""

    key: AttemptKey
    rank: int
    node_id: NodeId
    host: Name
    address: Name
    pid: int
    started_at: float
    gpus: Annotated[tuple[GpuUuid, ...], Meta(max_length=GPUS)] = ()
    cwd: Line = ""
    python: Line = ""
    note: Line = ""
    """One line for the user, for example that the directory did not exist there."""
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: Line = ""
    """Why it ended, when it did not end by itself."""
    lost: bool = False
    """The node lost it (keeper gone, machine restarted): it may run again elsewhere."""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    """The sizes of its streams; final once `ended_at` is set."""
    collects: bool = False
    """Whether results of its attempt follow when all of it on this node has ended."""
    gpu_memory_peak_bytes: int | None = None
    gpu_utilisation_percent: float | None = None
    """What its attempt used of its GPUs on this node, where they report it: peak memory, mean load."""
