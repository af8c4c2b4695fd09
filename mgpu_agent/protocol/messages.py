"""The two unions that cross the wire between master and agent; nothing else does.

Every report names its attempt, so a message may arrive twice, late or never without harm: a stale one changes
nothing, and a lost one is told again in the next `Hello`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.bounds import GPUS, PEERS, RANKS, TASKS, Data, Line, Name
from mgpu_agent.protocol.file_messages import CollectResult, FetchPieces, FoundResults, Piece, ResultChunk
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.meeting import Fingerprint, MeetingPoint, Peer, Reached, Unreached
from mgpu_agent.protocol.model import (
    Ailment,
    CellPython,
    CellWish,
    GpuSample,
    HealthChecks,
    LaunchSpec,
    NodeFacts,
    OutputMark,
    ProcessSeen,
    TaskStatus,
)

# --- master to agent -----------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """The answer to `Hello`: the node is accepted, and this is the output that the master has already."""

    cluster: str
    heartbeat_s: float
    sample_s: float
    output_window_bytes: int
    """How many bytes of output, over all streams, may be sent before an acknowledgement."""
    received: tuple[OutputMark, ...] = ()
    beat: float = 0.0
    """The beat of the `Hello` that this answers; see `Heard`."""


class Enrolled(msgspec.Struct, frozen=True, kw_only=True, tag="enrolled"):
    """The key is bound to this node id: reconnect with it."""

    node_id: NodeId


class Refuse(msgspec.Struct, frozen=True, kw_only=True, tag="refuse"):
    """The node is not accepted; the message says what to do."""

    code: str
    message: str


class Launch(msgspec.Struct, frozen=True, kw_only=True, tag="launch"):
    """Run this, unless the ledger shows that it was started already."""

    spec: LaunchSpec


class Prepare(msgspec.Struct, frozen=True, kw_only=True, tag="prepare"):
    """Check that this can be started here and reserve its GPUs; start nothing before `Start`."""

    spec: LaunchSpec
    hold_s: float
    """After this long without a `Start` the preparation is dropped."""
    meets: bool = False
    """The nodes of this attempt meet before it starts: say where this one is reached, and wait there."""


class Meet(msgspec.Struct, frozen=True, kw_only=True, tag="meet"):
    """All nodes of this attempt wait for each other: visit the others, and report whom you reached."""

    key: AttemptKey
    secret: bytes
    """Of this attempt: a peer that knows it is one of its nodes."""
    peers: tuple[Peer, ...]
    limit_s: float


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """All nodes of this attempt are prepared: start it."""

    key: AttemptKey
    spec: LaunchSpec | None = None
    """Replaces the one that was prepared, with the results of the meeting."""


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """End the whole tree of this attempt: TERM, grace, KILL."""

    key: AttemptKey
    grace_s: float
    reason: str = ""
    cause: str = ""
    """Why, in one word: cancelled, timeout, rank_failed, requeue or preempted."""


class Forget(msgspec.Struct, frozen=True, kw_only=True, tag="forget"):
    """The master has saved this: ledger entries and spool files may be deleted once all ranks are saved."""

    keys: tuple[AttemptKey, ...]
    ranks: tuple[int, ...] = ()
    """The rank for each of `keys`; without them all ranks."""


class OutputAck(msgspec.Struct, frozen=True, kw_only=True, tag="output_ack"):
    """The master has this stream up to here (`NOTHING_MORE`: all that it wants); continue from here, even if
    that is further back.
    """

    mark: OutputMark


class Resync(msgspec.Struct, frozen=True, kw_only=True, tag="resync"):
    """Send `Hello` again."""

    number: int = 0
    """Repeated in that `Hello`, so that it cannot be taken for an earlier one."""


class Bye(msgspec.Struct, frozen=True, kw_only=True, tag="bye"):
    """The master stops on purpose; an embedded agent with nothing to run may end."""


class Probe(msgspec.Struct, frozen=True, kw_only=True, tag="probe"):
    """Start a process as a trial, the way a job is started, and report the result."""

    number: int
    """Repeated in the answer."""


class Heard(msgspec.Struct, frozen=True, kw_only=True, tag="heard"):
    """The master received the beat of this moment of the node's clock: leases count from there."""

    beat: float


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag="ping"):
    """Report who you are; with a key, also the state of that attempt."""

    number: int
    """Repeated in the answer."""
    key: AttemptKey | None = None
    cell: CellWish | None = None
    """Report also which Python a cell would get."""


class Check(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Run these checks from now on, and send `Checked` when the findings change."""

    checks: HealthChecks


class Input(msgspec.Struct, frozen=True, kw_only=True, tag="input"):
    """Bytes for the stdin of one rank from `offset` of this writer on; without data, a question how far it
    is.
    """

    key: AttemptKey
    rank: int
    writer: str
    """The sender: offsets count for each writer by itself, so that none loses or repeats a byte."""
    offset: int
    data: bytes = b""
    eof: bool = False
    """Nothing follows: the job's stdin ends here."""


class Resize(msgspec.Struct, frozen=True, kw_only=True, tag="resize"):
    """The terminal that shows this rank has another size now, or is a new one."""

    key: AttemptKey
    rank: int
    rows: int
    columns: int


class Warn(msgspec.Struct, frozen=True, kw_only=True, tag="warn"):
    """Send this signal to the attempt, once, because its time is almost over. May arrive again."""

    key: AttemptKey
    signal: int
    serial: float
    """Another number is another warning."""


class Posted(msgspec.Struct, frozen=True, kw_only=True, tag="posted"):
    """A few bytes from the processes of an attempt on another node to those on this one."""

    key: AttemptKey
    sender: NodeId
    data: bytes


ToAgent = (
    Welcome
    | Enrolled
    | Refuse
    | Launch
    | Prepare
    | Meet
    | Start
    | Stop
    | Forget
    | OutputAck
    | Resync
    | Bye
    | Probe
    | Heard
    | Check
    | Ping
    | Input
    | Resize
    | Warn
    | Piece
    | CollectResult
    | Posted
)

# --- agent to master -----------------------------------------------------------------------------


class Enrol(msgspec.Struct, frozen=True, kw_only=True, tag="enrol"):
    """Sent under an enrolment key: bind this public key (Z85) to this node id."""

    node_id: NodeId
    public_key: Name


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The first message on every connection: the node, its GPUs, and all that it runs or ran."""

    node_id: NodeId
    facts: NodeFacts
    tasks: Annotated[tuple[TaskStatus, ...], Meta(max_length=TASKS)] = ()
    samples: Annotated[tuple[GpuSample, ...], Meta(max_length=GPUS)] = ()
    """The readings of real GPUs, so that none in trouble is handed out."""
    prepared: Annotated[tuple[AttemptKey, ...], Meta(max_length=TASKS)] = ()
    """Attempts that wait for their `Start`."""
    beat: float = 0.0
    """The node's boot clock, which goes on while it sleeps; repeated in `Welcome`."""
    answers: int = 0
    """The number of the `Resync` that asked for it; 0 for none."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat"):
    """The node is alive; new GPU readings come with it."""

    at: float
    samples: Annotated[tuple[GpuSample, ...], Meta(max_length=GPUS)] = ()
    load: float | None = None
    cpu_percent: float | None = None
    memory_available_bytes: int | None = None
    beat: float = 0.0
    """The node's boot clock when this was sent; repeated in `Heard`."""


class TaskReport(msgspec.Struct, frozen=True, kw_only=True, tag="task"):
    """A process started or ended. Sent again until forgotten."""

    status: TaskStatus


class Prepared(msgspec.Struct, frozen=True, kw_only=True, tag="prepared"):
    """This attempt can be started here: nothing runs yet, its GPUs are reserved."""

    key: AttemptKey
    offer: MeetingPoint | None = None
    """For the meeting, if there is to be one."""
    in_scratch: bool = False
    """The directory of the job cannot be entered here: its processes would run in their scratch."""


class Met(msgspec.Struct, frozen=True, kw_only=True, tag="met"):
    """Which ways lead to the other nodes of this attempt, and what its processes will find here."""

    key: AttemptKey
    reached: Annotated[tuple[Reached, ...], Meta(max_length=PEERS)] = ()
    unreached: Annotated[tuple[Unreached, ...], Meta(max_length=PEERS)] = ()
    fingerprint: Fingerprint = Fingerprint()


class LaunchRefused(msgspec.Struct, frozen=True, kw_only=True, tag="launch_refused"):
    """The launch was not carried out and never will be under this key."""

    key: AttemptKey
    code: Name
    message: Line
    fault: Name = "node"
    """`request`: it cannot work anywhere (no such program). `node`: it may work elsewhere. `stale`: an older
    epoch or incarnation.
    """
    exit_code: int | None = None
    """As a shell would answer (127 not found, 126 not executable), when that applies."""


class Output(msgspec.Struct, frozen=True, kw_only=True, tag="output"):
    """Bytes of one stream of one rank, from `offset` on."""

    key: AttemptKey
    rank: int
    stream: int
    offset: int
    data: Data


class Leave(msgspec.Struct, frozen=True, kw_only=True, tag="leave"):
    """The agent stops on purpose; what it runs goes on under its keeper."""

    reason: Line = ""


class Probed(msgspec.Struct, frozen=True, kw_only=True, tag="probed"):
    """The result of the trial; when it failed, the message says why."""

    number: int
    ok: bool
    message: Line = ""


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag="pong"):
    """The answer to `Ping`, looked up when that arrived."""

    number: int
    node_id: NodeId
    host: Name
    address: Name
    agent_version: Name
    python: Line
    pid: int
    at: float
    """The node's wall clock."""
    link: Name = ""
    """The address at which it found the master."""
    started_at: float = 0.0
    """When this agent started."""
    processes: Annotated[tuple[ProcessSeen, ...], Meta(max_length=RANKS)] = ()
    cell: CellPython | None = None
    """Present when it was asked for."""


class Checked(msgspec.Struct, frozen=True, kw_only=True, tag="checked"):
    """All ailments of this node; empty when it is healthy. Sent after each `Hello` and when they change."""

    ailments: Annotated[tuple[Ailment, ...], Meta(max_length=2 * GPUS)] = ()


class InputAck(msgspec.Struct, frozen=True, kw_only=True, tag="input_ack"):
    """How much of what this writer sent the rank's stdin has accepted."""

    key: AttemptKey
    rank: int
    writer: Name
    offset: int
    again: bool = False
    """Something is missing, or found no room: send again from `offset` on."""
    closed: bool = False
    """Nothing more is accepted."""


MAX_POST_BYTES = 60 * 1024


class Post(msgspec.Struct, frozen=True, kw_only=True, tag="post"):
    """A few bytes from the processes of an attempt here to those on another of its nodes. May get lost."""

    key: AttemptKey
    to: NodeId
    data: Data


ToMaster = (
    Enrol
    | Hello
    | Heartbeat
    | TaskReport
    | Prepared
    | Met
    | LaunchRefused
    | Output
    | Leave
    | Probed
    | Checked
    | Pong
    | InputAck
    | FetchPieces
    | FoundResults
    | ResultChunk
    | Post
)
