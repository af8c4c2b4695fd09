"""What can happen to an agent: facts in the past tense, each with its time on the monotonic clock. Values."""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.meeting import MeetingPoint
from mgpu_agent.protocol.messages import InputAck, Met, Post, ToAgent
from mgpu_agent.protocol.model import Ailment, GpuSample, NodeFacts, TaskStatus


class Began(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's loop started."""

    at: float
    boot: float = 0.0
    """The boot clock, which goes on while the machine sleeps: leases are measured by it."""


class LinkRose(msgspec.Struct, frozen=True, kw_only=True):
    """A connection to the master is up, keys checked on both sides."""

    at: float


class LinkFell(msgspec.Struct, frozen=True, kw_only=True):
    """The connection is gone, or could not be made under the keys used."""

    at: float
    may_enrol: bool
    """Whether a key to enrol with is at hand, so that a new enrolment is possible."""
    keys_refused: bool = False
    hung_up: bool = False
    """The other end closed before keys were exchanged: a broken network, or a master under another key."""


class MasterMoved(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime file names another address or key than the one in use."""

    at: float
    is_another: bool
    """Whether it is another master, by its key: epochs of the old one mean nothing to it."""


class FrameArrived(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the master arrived."""

    at: float
    master_epoch: int
    message: ToAgent


class KeeperAttached(msgspec.Struct, frozen=True, kw_only=True):
    """A keeper answered: this is the node, and these are all its tasks."""

    at: float
    facts: NodeFacts
    tasks: tuple[TaskStatus, ...] = ()


class KeeperLost(msgspec.Struct, frozen=True, kw_only=True):
    """The keeper went away."""

    at: float


class TaskTold(msgspec.Struct, frozen=True, kw_only=True):
    """The keeper reported that a process started or ended."""

    at: float
    status: TaskStatus


class InputTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The keeper reported how much of its input a process has read."""

    at: float
    ack: InputAck


class ParcelPosted(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a job sent something to its attempt on another node."""

    at: float
    parcel: Post


class LaunchPrepared(msgspec.Struct, frozen=True, kw_only=True):
    """All that a launch needs is there."""

    at: float
    key: AttemptKey
    offer: MeetingPoint | None = None
    in_scratch: bool = False


class PeersMet(msgspec.Struct, frozen=True, kw_only=True):
    """It is known by which addresses the other nodes of an attempt are reached."""

    at: float
    met: Met


class LaunchFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was started under this key and nothing will be."""

    at: float
    key: AttemptKey
    code: str
    message: str
    fault: str
    exit_code: int | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's load; None for what was not read yet."""

    load: float | None = None
    cpu_percent: float | None = None
    memory_available_bytes: int | None = None


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """Time passed; new GPU readings come with it."""

    at: float
    wall: float = 0.0
    boot: float = 0.0
    may_enrol: bool = False
    samples: tuple[GpuSample, ...] = ()
    read_at: float = 0.0
    """When the reading of `samples` began."""
    measured: Measured = Measured()
    ailments: tuple[Ailment, ...] | None = None
    """The findings of the newest round of checks; None when there is no new round."""


class EndAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody asked the agent to end (a signal)."""

    at: float
    reason: str


Event = (
    Began
    | LinkRose
    | LinkFell
    | MasterMoved
    | FrameArrived
    | KeeperAttached
    | KeeperLost
    | TaskTold
    | InputTaken
    | ParcelPosted
    | LaunchPrepared
    | PeersMet
    | LaunchFailed
    | Ticked
    | EndAsked
)
