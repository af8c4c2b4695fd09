"""The two unions that cross the wire between master and agent; nothing else does.

Every report names its attempt, so a message may arrive twice, late or never without harm: a stale one changes nothing, and a
lost one is told again in the next `Hello`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.bounds import FILES, GPUS, PEERS, RANKS, SEVERAL, TASKS, Data, Line, Name, Part
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
    ResultFile,
    TaskStatus,
)

# --- master to agent -----------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """The answer to `Hello`: you are in, and this is what I already have of your output."""

    cluster: str
    heartbeat_s: float
    sample_s: float
    output_window_bytes: int
    """How many bytes of output may be under way, over all streams, before an acknowledgement."""
    received: tuple[OutputMark, ...] = ()
    beat: float = 0.0
    """The beat of the `Hello` that this answers; see `Heard`."""


class Enrolled(msgspec.Struct, frozen=True, kw_only=True, tag="enrolled"):
    """Your key is bound to this node id: reconnect with it."""

    node_id: NodeId


class Refuse(msgspec.Struct, frozen=True, kw_only=True, tag="refuse"):
    """You are not let in; the message says what to do."""

    code: str
    message: str


class Launch(msgspec.Struct, frozen=True, kw_only=True, tag="launch"):
    """Run this, unless the ledger shows that it was started already."""

    spec: LaunchSpec


class Prepare(msgspec.Struct, frozen=True, kw_only=True, tag="prepare"):
    """Make sure that this can be started here and keep its GPUs for it, but start nothing before `Start` comes."""

    spec: LaunchSpec
    hold_s: float
    """After so long without a `Start` it is let go."""
    meets: bool = False
    """The nodes of this attempt will meet before it starts: say by which addresses this one may be reached, and wait there."""


class Meet(msgspec.Struct, frozen=True, kw_only=True, tag="meet"):
    """All nodes of this attempt wait for each other: go to the others, and say whom you reached."""

    key: AttemptKey
    secret: bytes
    """Of this attempt: whoever answers by it is one of its nodes."""
    peers: tuple[Peer, ...]
    limit_s: float


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """All nodes of this attempt are prepared: start it."""

    key: AttemptKey
    spec: LaunchSpec | None = None
    """In place of the one that was prepared, with what the meeting brought."""


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """End the whole tree of this attempt: TERM, grace, KILL."""

    key: AttemptKey
    grace_s: float
    reason: str = ""
    cause: str = ""
    """What it means for the job, in a word: cancelled, timeout, rank_failed, requeue or preempted."""


class Forget(msgspec.Struct, frozen=True, kw_only=True, tag="forget"):
    """All of this is saved here: ledger entries and spool files may go, once that is so of all ranks of an attempt on this node."""

    keys: tuple[AttemptKey, ...]
    ranks: tuple[int, ...] = ()
    """The rank that is meant by each of `keys`; without them all ranks are."""


class OutputAck(msgspec.Struct, frozen=True, kw_only=True, tag="output_ack"):
    """I have this stream up to there (`NOTHING_MORE`: all that I want); send on from there, also when that is further back."""

    mark: OutputMark


class Resync(msgspec.Struct, frozen=True, kw_only=True, tag="resync"):
    """Say `Hello` again."""

    number: int = 0
    """Comes back in that `Hello`, so that it is known to be no earlier one."""


class Bye(msgspec.Struct, frozen=True, kw_only=True, tag="bye"):
    """The master stops on purpose; an embedded agent with nothing to run may end."""


class Probe(msgspec.Struct, frozen=True, kw_only=True, tag="probe"):
    """Start a process as a trial, the way a job is started, and say how it went."""

    number: int
    """Comes back in the answer."""


class Heard(msgspec.Struct, frozen=True, kw_only=True, tag="heard"):
    """I heard the beat that you sent at this moment of your clock: leases count from there, not from when this arrives."""

    beat: float


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag="ping"):
    """Say who you are; with a key, also what is there of that attempt."""

    number: int
    """Comes back in the answer."""
    key: AttemptKey | None = None
    cell: CellWish | None = None
    """Say also which Python a cell would get."""


class Check(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Look at these things from now on, and say `Checked` when what you find changes."""

    checks: HealthChecks


class Input(msgspec.Struct, frozen=True, kw_only=True, tag="input"):
    """Bytes for the stdin of one rank, from `offset` on of what this writer sends; without any, a question how far it is."""

    key: AttemptKey
    rank: int
    writer: str
    """Who types: offsets count for each writer by itself, so that none loses or repeats a byte of its own."""
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
    """Send this signal to the attempt: its time is almost over. Told again, it is sent once."""

    key: AttemptKey
    signal: int
    serial: float
    """Another one is another warning."""


class Piece(msgspec.Struct, frozen=True, kw_only=True, tag="piece"):
    """A piece of a folder, as it was asked for."""

    digest: str
    data: memoryview | None = None
    """None: it is not here. Where it arrives it is a view of the frame: large, and never copied."""


class CollectResult(msgspec.Struct, frozen=True, kw_only=True, tag="collect_result"):
    """Send this part of the file of this number in `FoundResults`."""

    key: AttemptKey
    number: int
    offset: int
    size: int


class Posted(msgspec.Struct, frozen=True, kw_only=True, tag="posted"):
    """A few bytes from the processes of an attempt on another node to those on yours."""

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
    """The first word on every connection: who I am, what I have, and all that I run or ran."""

    node_id: NodeId
    facts: NodeFacts
    tasks: Annotated[tuple[TaskStatus, ...], Meta(max_length=TASKS)] = ()
    samples: Annotated[tuple[GpuSample, ...], Meta(max_length=GPUS)] = ()
    """What is known of real GPUs, so that none is handed out that must not be."""
    prepared: Annotated[tuple[AttemptKey, ...], Meta(max_length=TASKS)] = ()
    """Attempts that wait for their `Start`."""
    beat: float = 0.0
    """The node's own clock, which counts from boot and goes on while it sleeps; comes back in `Welcome`."""
    answers: int = 0
    """The number of the `Resync` that asked for it; 0 when none did."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat"):
    """I am here; GPU readings ride along when there are new ones."""

    at: float
    samples: Annotated[tuple[GpuSample, ...], Meta(max_length=GPUS)] = ()
    load: float | None = None
    cpu_percent: float | None = None
    memory_available_bytes: int | None = None
    beat: float = 0.0
    """The node's own clock when this was sent; comes back in `Heard`."""


class TaskReport(msgspec.Struct, frozen=True, kw_only=True, tag="task"):
    """A process started or ended. Told again until forgotten."""

    status: TaskStatus


class Prepared(msgspec.Struct, frozen=True, kw_only=True, tag="prepared"):
    """This attempt can be started here: nothing runs yet, its GPUs are kept for it."""

    key: AttemptKey
    offer: MeetingPoint | None = None
    """For the meeting, if there is to be one."""


class Met(msgspec.Struct, frozen=True, kw_only=True, tag="met"):
    """Which ways to the other nodes of this attempt lead there, and what its processes will find here."""

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
    """`request`: it cannot work anywhere (no such program). `node`: it may work elsewhere. `stale`: an older epoch or incarnation."""
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
    """How the trial went; when it failed, the message says why."""

    number: int
    ok: bool
    message: Line = ""


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag="pong"):
    """The answer to `Ping`, looked up when it came."""

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
    """Where it found the master."""
    started_at: float = 0.0
    """When this agent began."""
    processes: Annotated[tuple[ProcessSeen, ...], Meta(max_length=RANKS)] = ()
    cell: CellPython | None = None
    """Told when it was asked for."""


class Checked(msgspec.Struct, frozen=True, kw_only=True, tag="checked"):
    """All that ails this node now; nothing when it is well. Told after each `Hello` and when it changes."""

    ailments: Annotated[tuple[Ailment, ...], Meta(max_length=2 * GPUS)] = ()


class InputAck(msgspec.Struct, frozen=True, kw_only=True, tag="input_ack"):
    """How much of what this writer sent the rank's stdin has taken."""

    key: AttemptKey
    rank: int
    writer: Name
    offset: int
    again: bool = False
    """Something is missing, or found no room: send again from `offset` on."""
    closed: bool = False
    """Nothing more is taken."""


MAX_POST_BYTES = 60 * 1024


class Post(msgspec.Struct, frozen=True, kw_only=True, tag="post"):
    """A few bytes from the processes of an attempt here to those on another node of it. May get lost."""

    key: AttemptKey
    to: NodeId
    data: Data


class FetchPieces(msgspec.Struct, frozen=True, kw_only=True, tag="fetch_pieces"):
    """Send these pieces of the folder of this attempt, or say that they are not there."""

    key: AttemptKey
    digests: Annotated[tuple[Name, ...], Meta(max_length=SEVERAL)]


class FoundResults(msgspec.Struct, frozen=True, kw_only=True, tag="found_results"):
    """All of this attempt on this node has ended, and these files are there to be collected. Told on each connection until forgotten."""

    key: AttemptKey
    files: Annotated[tuple[ResultFile, ...], Meta(max_length=FILES)] = ()
    problems: Annotated[tuple[Line, ...], Meta(max_length=SEVERAL)] = ()
    """What was meant by a pattern and could not be read."""


class ResultChunk(msgspec.Struct, frozen=True, kw_only=True, tag="result_chunk"):
    """A part of a file, as it was asked for."""

    key: AttemptKey
    number: int
    offset: int
    data: Part
    """Where it arrives it is a view of the frame."""
    problem: Line = ""
    """Why it cannot be read any more."""


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
