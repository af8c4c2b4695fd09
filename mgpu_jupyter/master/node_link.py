"""What the master needs of nodes, as roles: a link that carries decisions to them and tells what came back, and who may become one.

A node is one that has joined. Who brings nodes and takes them away (a provider: Slurm, Kubernetes) is a role beside these two and not
theirs. Values and roles only; adapters in engines/ play them over a carrier of frames in transport/, and only the server wires them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import Input, InputAck, Pong, Resize
from mgpu_agent.protocol.model import CellWish, GpuSample
from mgpu_jupyter.master.marks import Mark
from mgpu_jupyter.master.ports import JoinKey
from mgpu_jupyter.scheduler.commands import LaunchTask, MeetTask, PrepareTask, ProbeNode, StartTask, StopTask, WarnTask
from mgpu_jupyter.scheduler.events import Event
from mgpu_jupyter.scheduler.model import Load


class PassInput(msgspec.Struct, frozen=True):
    """Send this node what somebody typed, or the size of their terminal."""

    node_id: NodeId
    message: Input | Resize


class AskNode(msgspec.Struct, frozen=True):
    """Ask this node who it is, what is there of an attempt, and which Python a cell would get."""

    node_id: NodeId
    number: int
    """The answer names it."""
    key: AttemptKey | None = None
    cell: CellWish | None = None


NodeCommand = LaunchTask | PrepareTask | MeetTask | StartTask | StopTask | WarnTask | ProbeNode | PassInput | AskNode
"""What a node is told to do. Each carries all that its node needs to know."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The newest readings of a node."""

    samples: tuple[GpuSample, ...] = ()
    load: Load = Load()


class Answer(NamedTuple):
    """What a node answered to the question with this number; `pong` is None when it is away and was not asked."""

    node_id: NodeId
    number: int
    pong: Pong | None


class Inbox(msgspec.Struct, kw_only=True):
    """All that came since the last look."""

    events: list[Event] = []
    """For the scheduler, in the order in which they came."""
    marks: list[Mark] = []
    """Steps of jobs that were seen."""
    readings: dict[NodeId, Reading] = {}
    """Nodes with new readings; whole, so that the newest is enough."""
    grown: set[JobId] = set()
    """Jobs whose output grew."""
    typed: list[InputAck] = []
    """How much of what was typed was read."""
    answers: list[Answer] = []


class NodeLink(Protocol):
    """Carries decisions to nodes, and what they tell back. Used by the master's thread, but for `wake`."""

    def wait(self, timeout_s: float) -> None:
        """Return when something came, when woken, or after the time."""

    def wake(self) -> None:
        """End a `wait`; may be called from any thread."""

    def poll(self) -> Inbox:
        """Return all that came since the last call, without waiting."""

    def send(self, commands: Iterable[NodeCommand]) -> None:
        """Take these for their nodes, to leave with the next `flush`; what is for a node that is away is dropped."""

    def committed(self) -> None:
        """All events handed out so far are durable: what nodes still keep of them may go."""

    def flush(self) -> None:
        """Let all leave that waits."""

    def resync(self) -> None:
        """The last events came to nothing: ask every node to tell all again."""

    def close(self) -> Inbox:
        """Say goodbye to nodes, let go of all that is open, and return what was still seen."""


class Enrolment(Protocol):
    """Who may become a node, and who may not be one any more. Used by the master's thread."""

    def listen(self, host: str) -> bool:
        """Let nodes connect by this address too; tell whether it is a new one."""

    def admit(self, key: JoinKey) -> None:
        """Let a node enrol under this key, which is durable by now."""

    def knows(self, node_id: NodeId) -> bool:
        """Tell whether a node of this name is enrolled."""

    def revoke(self, node_id: NodeId, reason: str) -> None:
        """Refuse this node from its next frame on; that its key is unbound is durable by now."""

    def forget(self, node_id: NodeId) -> None:
        """Forget a node; that its key is gone is durable by now."""
