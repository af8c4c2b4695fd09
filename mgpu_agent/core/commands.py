"""What the agent's machine wants done: imperatives, carried out by the shell in order. Values only."""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import CollectResult, Input, Meet, Piece, Posted, Resize, ToMaster, Warn
from mgpu_agent.protocol.model import CellWish, HealthChecks, LaunchSpec, OutputMark, TaskStatus


class Connect(msgspec.Struct, frozen=True, kw_only=True):
    """Drop the connection and make a new one after the delay, under the enrolment key or the node's own."""

    enrolling: bool
    delay_s: float = 0.0


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Say this to the master."""

    message: ToMaster


class StartLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """Prepare this launch and hand it to the keeper."""

    spec: LaunchSpec
    alive_at: float = 0.0
    """The last moment, on the clock that counts from boot, at which the master is known to have been there."""


class PrepareLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """See whether this launch could be carried out; start nothing."""

    spec: LaunchSpec
    meets: bool = False
    """Wait for the other nodes of the attempt, and say where."""


class MeetPeers(msgspec.Struct, frozen=True, kw_only=True):
    """Find out by which ways the other nodes of an attempt are reached."""

    message: Meet


class RenewLeases(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the keeper when the master was there last, on the clock that counts from boot."""

    alive_at: float


class StopAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Have the keeper end this attempt, or never start it."""

    key: AttemptKey
    grace_s: float
    reason: str
    cause: str = ""


class PassOn(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the keeper just this."""

    message: Input | Resize | Warn


class Deliver(msgspec.Struct, frozen=True, kw_only=True):
    """Hand this to the processes of its attempt."""

    message: Posted


class ForgetAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """Let ledger entries and spool files of these attempts go."""

    keys: tuple[AttemptKey, ...]


class FollowOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Ship what this process writes; up to its final size once it has ended."""

    status: TaskStatus


class SetPace(msgspec.Struct, frozen=True, kw_only=True):
    """Ship and sample as the master asked, from where it says it is."""

    sample_s: float
    output_window_bytes: int
    received: tuple[OutputMark, ...]


class ReadGpus(msgspec.Struct, frozen=True, kw_only=True):
    """Read the GPUs as soon as possible, beside the usual pace."""


class TellWho(msgspec.Struct, frozen=True, kw_only=True):
    """Look up who and where this node is, and what is there of these processes, and tell the master."""

    number: int
    statuses: tuple[TaskStatus, ...] = ()
    cell: CellWish | None = None
    """Which Python would a cell get?"""


class MoveOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The master has this stream up to there."""

    mark: OutputMark


class SetChecks(msgspec.Struct, frozen=True, kw_only=True):
    """Look after these things from now on."""

    checks: HealthChecks


class TakePiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a folder came."""

    piece: Piece


class SendResult(msgspec.Struct, frozen=True, kw_only=True):
    """The master wants a part of a result."""

    wanted: CollectResult


class SaveEnrolment(msgspec.Struct, frozen=True, kw_only=True):
    """Remember that the master knows this node's key."""


class SaveMasterEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """Remember the largest master epoch seen."""

    master_epoch: int


class Say(msgspec.Struct, frozen=True, kw_only=True):
    """Write one line to the log."""

    event: str
    fields: dict[str, str | int | float] = {}
    is_warning: bool = False


class End(msgspec.Struct, frozen=True, kw_only=True):
    """Leave; what runs goes on under the keeper."""

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
