"""What a user asks for, as a value, and the placement units that it means. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import NODE_ID_PATTERN

MAX_SCRIPT_CHARS = 4 * 1024 * 1024
MAX_ARGUMENTS = 10_000
MAX_COMMAND_CHARS = 1024 * 1024
MAX_ARGUMENT_CHARS = 128 * 1024 - 1  # more in one word no Linux starts
MAX_ENVIRONMENT = 1_000
MAX_NODES = 10_000
MAX_GPUS_PER_NODE = 1_024

NodeName = Annotated[str, Meta(pattern=NODE_ID_PATTERN)]
EnvironmentName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
PLAIN_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$"
PlainText = Annotated[str, Meta(pattern=PLAIN_PATTERN, max_length=200)]
Argument = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
EnvironmentValue = Annotated[str, Meta(pattern=r"^[^\x00]*$", max_length=MAX_ARGUMENT_CHARS)]


class JobState(StrEnum):
    """Where a job is on its way; the last four are final."""

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


FINAL_STATES = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMEOUT})


class NodeState(StrEnum):
    """Whether a node takes work, and if not, why in a word."""

    ONLINE = "online"
    SUSPECT = "suspect"
    OFFLINE = "offline"
    DRAINING = "draining"
    MAINTENANCE = "maintenance"
    UNHEALTHY = "unhealthy"


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A request, as `mgpu_srun` and the magics spell it: one field per flag."""

    command: Annotated[tuple[Argument, ...], Meta(max_length=MAX_ARGUMENTS)] = ()
    """The words of the command; no shell. Either this or `script`."""
    script: Annotated[str, Meta(max_length=MAX_SCRIPT_CHARS, extra_json_schema={"pattern": "^[^\\u0000]*$"})] | None = None
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
    kernel_python_version: Annotated[str, Meta(pattern=r"^\d+\.\d+$")] | None = None
    requeue: bool = True
    """Run again when its node is lost."""
    wait_for_nodes: bool = False
    """Wait even if no node that is known could ever run it."""


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to place: what one node must give. All units of a job are placed, or none."""

    index: int
    gpus: int
    cpus: int


def units_of(spec: JobSpec) -> tuple[Unit, ...]:
    """Return the placement units of a request, or refuse one that contradicts itself."""
    nodes = _node_count(spec)
    per_node = _gpus_per_node(spec, nodes)
    return tuple(Unit(index=index, gpus=per_node, cpus=spec.cpus) for index in range(nodes))


def check(spec: JobSpec) -> JobSpec:
    """Return `spec`, or refuse it with one sentence that says what to do."""
    if bool(spec.command) == (spec.script is not None):
        raise InvalidRequest("no-command", "Give a command after `--`, or a cell body: one of the two.")
    if spec.command and not spec.command[0].strip():
        raise InvalidRequest("no-command", "The command is empty: name a program after `--`.")
    if spec.script is not None and "\0" in spec.script:
        raise InvalidRequest("bad-script", "The cell has a NUL character: remove it.")
    if sum(map(len, spec.command)) > MAX_COMMAND_CHARS or max(map(len, spec.command), default=0) > MAX_ARGUMENT_CHARS:
        raise InvalidRequest(
            "command-too-long",
            f"The command is over {MAX_COMMAND_CHARS} characters, or one word of it over {MAX_ARGUMENT_CHARS}: put it into a script file.",
        )
    both = sorted(set(spec.nodelist) & set(spec.exclude))
    if both:
        raise InvalidRequest("node-contradiction", f"{', '.join(both)} is in both --nodelist and --exclude: take it out of one.")
    units_of(spec)
    return spec


def _node_count(spec: JobSpec) -> int:
    if spec.nodes is None:
        return len(spec.nodelist) or 1
    if spec.nodelist and spec.nodes > len(spec.nodelist):
        raise InvalidRequest(
            "node-contradiction", f"--nodes {spec.nodes} needs at least as many names in --nodelist; it has {len(spec.nodelist)}."
        )
    return spec.nodes


def _gpus_per_node(spec: JobSpec, nodes: int) -> int:
    if spec.gpus_per_node is not None:
        if spec.gpus is not None and spec.gpus != spec.gpus_per_node * nodes:
            raise InvalidRequest(
                "gpu-contradiction",
                f"--gpus {spec.gpus} is not {nodes} × --gpus-per-node {spec.gpus_per_node}: leave one of them out.",
            )
        return spec.gpus_per_node
    if spec.gpus is None:
        return 1
    if spec.gpus % nodes:
        raise InvalidRequest(
            "gpu-contradiction", f"--gpus {spec.gpus} cannot be shared evenly by {nodes} nodes: give --gpus-per-node instead."
        )
    return spec.gpus // nodes
