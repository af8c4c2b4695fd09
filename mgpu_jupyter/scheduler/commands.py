"""What should happen, as values. The master carries them out: all saves in one commit, then the sends."""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.meeting import Peer
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_jupyter.model.explanations import Record
from mgpu_jupyter.scheduler.model import Job


class SaveJob(msgspec.Struct, frozen=True):
    """Commit this version of the job."""

    job: Job


class SaveAttempt(msgspec.Struct, frozen=True):
    """Commit the record of an attempt that is over while the job goes on."""

    job: Job


class SaveNode(msgspec.Struct, frozen=True):
    """Commit what is known of this node, and notify watchers."""

    node_id: NodeId


class ForgetNode(msgspec.Struct, frozen=True):
    """Delete what is known of this node, with its key."""

    node_id: NodeId


class ProbeNode(msgspec.Struct, frozen=True):
    """Have this node start a process as a trial."""

    node_id: NodeId
    number: int


class LaunchTask(msgspec.Struct, frozen=True):
    """Send this launch to its node."""

    spec: LaunchSpec


class PrepareTask(msgspec.Struct, frozen=True):
    """Ask its node whether it can start this."""

    spec: LaunchSpec
    hold_s: float
    """After this long the node may drop the preparation."""
    meets: bool = False
    """Whether the nodes of the attempt will meet."""


class MeetTask(msgspec.Struct, frozen=True):
    """Have this node visit the other nodes of an attempt."""

    node_id: NodeId
    key: AttemptKey
    peers: tuple[Peer, ...]
    limit_s: float


class StartTask(msgspec.Struct, frozen=True):
    """Have this node start what it prepared."""

    node_id: NodeId
    key: AttemptKey
    spec: LaunchSpec | None = None
    """Replaces what it prepared, when that has changed."""


class StopTask(msgspec.Struct, frozen=True):
    """End the processes of this attempt on this node."""

    node_id: NodeId
    key: AttemptKey
    grace_s: float
    reason: str
    cause: str = ""
    """Why it ends, as one word for its epilog; empty for an attempt that is not current or never ran."""


class WarnTask(msgspec.Struct, frozen=True):
    """Send a signal to the processes of this attempt on this node: its time is almost over."""

    node_id: NodeId
    key: AttemptKey
    signal: int
    serial: float
    """The deadline that it warns of; a node that receives it again signals once."""


class ReportMismatch(msgspec.Struct, frozen=True):
    """Report visibly that what ran is not what was assigned."""

    job: Job
    text: str


class Remember(msgspec.Struct, frozen=True):
    """Commit a small fact that decisions depend on, under its name, in place of the one before."""

    name: str
    value: str


class RecordAnswer(msgspec.Struct, frozen=True):
    """Commit what waiting jobs are told from now on, under a shared name; the last few of each are kept."""

    key: str
    record: Record


Command = (
    RecordAnswer
    | Remember
    | SaveJob
    | SaveAttempt
    | SaveNode
    | ForgetNode
    | ProbeNode
    | LaunchTask
    | PrepareTask
    | MeetTask
    | StartTask
    | StopTask
    | WarnTask
    | ReportMismatch
)
