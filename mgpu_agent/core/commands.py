"""What the agent's machine wants done: imperatives that the shell carries out in order. Values only."""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.file_messages import CollectResult, Piece
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import Input, Meet, Posted, Resize, ToMaster, Warn
from mgpu_agent.protocol.model import CellWish, HealthChecks, LaunchSpec, OutputMark, TaskStatus


class Connect(msgspec.Struct, frozen=True, kw_only=True):
    """Drop the connection and make a new one after the delay, under the enrolment key or the node's own."""

    enrolling: bool
    delay_s: float = 0.0


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Send this to the master."""

    message: ToMaster


class StartLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """Prepare this launch and hand it to the keeper."""

    spec: LaunchSpec
    alive_at: float = 0.0
    """The last moment, on the boot clock, at which the master is known to have been alive."""


class PrepareLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """Check whether this launch can be carried out; start nothing."""

    spec: LaunchSpec
    meets: bool = False
    """Whether to wait for the other nodes of the attempt, and report where."""


class MeetPeers(msgspec.Struct, frozen=True, kw_only=True):
    """Find out by which addresses the other nodes of an attempt are reached."""

    message: Meet


class RenewLeases(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the keeper when the master was last known to be alive, on the boot clock."""

    alive_at: float


class StopAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Have the keeper end this attempt, or make sure that it never starts."""

    key: AttemptKey
    grace_s: float
    reason: str
    cause: str = ""


class PassOn(msgspec.Struct, frozen=True, kw_only=True):
    """Hand this message to the keeper as it is."""

    message: Input | Resize | Warn


class Deliver(msgspec.Struct, frozen=True, kw_only=True):
    """Hand this to the processes of its attempt."""

    message: Posted


class ForgetAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the ledger entries and spool files of these attempts."""

    keys: tuple[AttemptKey, ...]


class FollowOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Ship what this process writes, up to its final size once it has ended."""

    status: TaskStatus


class SetPace(msgspec.Struct, frozen=True, kw_only=True):
    """Ship output and sample GPUs at the master's pace, from the offsets that it names."""

    sample_s: float
    output_window_bytes: int
    received: tuple[OutputMark, ...]


class ReadGpus(msgspec.Struct, frozen=True, kw_only=True):
    """Read the GPUs as soon as possible, regardless of the usual pace."""


class TellWho(msgspec.Struct, frozen=True, kw_only=True):
    """Look up who and where this node is, and the state of these processes, and tell the master."""

    number: int
    statuses: tuple[TaskStatus, ...] = ()
    cell: CellWish | None = None
    """A question which Python a cell would get."""


class MoveOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Note that the master has this stream up to this offset."""

    mark: OutputMark


class SetChecks(msgspec.Struct, frozen=True, kw_only=True):
    """Run these checks from now on."""

    checks: HealthChecks


class TakePiece(msgspec.Struct, frozen=True, kw_only=True):
    """Store a piece of a folder that arrived."""

    piece: Piece


class SendResult(msgspec.Struct, frozen=True, kw_only=True):
    """Send a part of a result that the master asked for."""

    wanted: CollectResult


class SaveEnrolment(msgspec.Struct, frozen=True, kw_only=True):
    """Save that the master knows this node's key."""


class SaveMasterEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """Save the largest master epoch seen."""

    master_epoch: int


class Say(msgspec.Struct, frozen=True, kw_only=True):
    """Write one line to the log."""

    event: str
    fields: dict[str, str | int | float] = {}
    is_warning: bool = False


class End(msgspec.Struct, frozen=True, kw_only=True):
    """End the agent; what runs goes on under the keeper."""

    reason: str
    code: int = 0
    """The exit code."""


Command = (
    Connect
    | Send
    | StartLaunch
    | PrepareLaunch
    | MeetPeers
    | RenewLeases
    | StopAttempt
    | PassOn
    | Deliver
    | ForgetAttempts
    | FollowOutput
    | SetPace
    | ReadGpus
    | TellWho
    | MoveOutput
    | SetChecks
    | TakePiece
    | SendResult
    | SaveEnrolment
    | SaveMasterEpoch
    | Say
    | End
)
