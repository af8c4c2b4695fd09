"""Frames of streams: output and state of a job, its input, changes of everything. Values only.

One JSON object is a line over HTTP and a text frame over a WebSocket.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api.models import Job, Node
from mgpu_jupyter.model.job import JobState, TerminalSize

GpuReading = tuple[int | None, int | None, int | None, int | None]
"""Busy in percent, memory used in MiB, temperature in °C, power in W; whole numbers, null where the GPU does
not report it.
"""

_MAX_NUMBER = 2**53
MAX_INPUT_BYTES = 64 * 1024
"""In one frame."""
INPUT_WINDOW_BYTES = 128 * 1024
"""How far a sender may be ahead of what the job has read."""
WRITER_PATTERN = r"^[A-Za-z0-9]{8,40}$(?!\n)"
"""A name that a sender chooses, by which it continues after a break."""


class OutputFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="output"):
    """Bytes of one rank, base64 in JSON; `offset` is their position in that rank's output."""

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
    """In the stream of one job, for its owner: the key of its displays, in `ESC _ mgpu;KEY;JSON ESC \\`
    within its output.
    """


class EndedJob(msgspec.Struct, frozen=True, array_like=True):
    """One job that is over, as `[id, state, exit code]`."""

    id: JobId
    state: JobState
    exit_code: int | None = None


class ProgressFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="progress"):
    """The progress of the jobs that are waited for, and which of them ended since the frame before."""

    waiting: int
    running: int
    ended: tuple[EndedJob, ...] = ()


class NodeFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="node"):
    """The node or the readings of its GPUs changed."""

    seq: int
    node: Node


class GapFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="gap"):
    """Output that is lost (with its node)."""

    rank: int
    message: str


class ReadyFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ready"):
    """All that was asked for up to `seq` has been sent; from here on it is live."""

    seq: int


class EndFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="end"):
    """The job is over and its output complete; nothing follows."""

    job: Job


class PingFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ping"):
    """Nothing happened; the connection is alive."""


class NodeReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changed readings of one node; those left out are as before."""

    cpu: int | None = None
    """CPUs busy, in percent."""
    memory_available_mib: int | None = None
    gpus: dict[str, GpuReading] = {}
    """By the index of the GPU, which JSON writes as text."""


class SamplesFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="samples"):
    """Readings that changed since the last such frame; the first after a connect has all. At most one a
    second.
    """

    at: float
    nodes: dict[NodeId, NodeReading]


class Why(msgspec.Struct, frozen=True, array_like=True):
    """Why jobs wait, as `[code, text]`."""

    code: str
    text: str


class QueueFrame(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="queue", omit_defaults=True
):
    """The changes of the queue since the version `base`; the whole queue when there is no `base`.

    To apply: remove `removed`, then insert each of `inserted` at its index, in the order given (a job that
    moved is in both); delete all jobs of `removed` that are not inserted again from `why` and `expected`,
    then set the values that are named.
    """

    version: int
    """Send it as `queue` when you reconnect, to get only what changed since."""
    base: int | None = None
    removed: tuple[JobId, ...] = ()
    inserted: tuple[tuple[int, tuple[JobId, ...]], ...] = ()
    """Index in the queue (0 is next) and the jobs from there on."""
    reasons: dict[str, Why] = {}
    """By number: new ones, and those whose words changed; many jobs share one."""
    why: dict[JobId, int] = {}
    """The number of the reason of each job whose reason changed."""
    expected: dict[JobId, float | None] = {}
    """When a job is expected to start (seconds since 1970), where that changed; null when it is unknown."""


class GoneFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="gone", omit_defaults=True):
    """These nodes and jobs were removed or purged."""

    seq: int
    nodes: tuple[NodeId, ...] = ()
    jobs: tuple[JobId, ...] = ()


class ResetFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reset"):
    """What happened since `since` is not known completely: ask for cluster, nodes and jobs again. The
    connection continues from `seq`.
    """

    seq: int
    message: str


class StdinAckFrame(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="stdin_ack", omit_defaults=True
):
    """The job has read what you sent up to `offset`; the first one says that it runs and accepts input."""

    offset: int
    attempt: int = 1
    again: bool = False
    """Something was lost: send again from `offset` on."""
    closed: bool = False
    """Nothing more is accepted."""


class StdinFrame(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="stdin",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Bytes (base64 in JSON) for the job's stdin, from `offset` on of all that you sent to this attempt."""

    offset: Annotated[int, Meta(ge=0, le=_MAX_NUMBER)]
    attempt: Annotated[int, Meta(ge=0, le=_MAX_NUMBER)] = 1
    data: bytes = b""
    eof: bool = False
    """Nothing follows: the job's stdin ends."""


class ResizeFrame(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="resize", forbid_unknown_fields=True
):
    """Your terminal has this size now."""

    rows: TerminalSize
    columns: TerminalSize


class TypedInput(msgspec.Struct, frozen=True, kw_only=True):
    """What one writer sends to one attempt."""

    writer: str
    attempt: int
    offset: int = 0
    data: bytes = b""
    eof: bool = False


JobStreamFrame = OutputFrame | JobFrame | GapFrame | EndFrame | PingFrame
WaitFrame = ProgressFrame | PingFrame
JobSocketFrame = JobStreamFrame | StdinAckFrame
ClientFrame = StdinFrame | ResizeFrame | PingFrame
EventFrame = (
    JobFrame | NodeFrame | SamplesFrame | QueueFrame | GoneFrame | ResetFrame | ReadyFrame | PingFrame
)
