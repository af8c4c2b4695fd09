"""What the master needs of nodes, as roles: a link that carries decisions to them and brings back what they
report, and enrolment.

A node is one that has joined. Bringing nodes and taking them away (a provider: Slurm, Kubernetes) is a role
beside these two. Values and roles only; adapters in engines/ play them over a carrier of frames in
transport/, and only the server wires them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import Input, InputAck, Pong, Resize
from mgpu_agent.protocol.model import CellWish, GpuSample
from mgpu_jupyter.master.ports import JoinKey, Mark
from mgpu_jupyter.scheduler.commands import (
    LaunchTask,
    MeetTask,
    PrepareTask,
    ProbeNode,
    StartTask,
    StopTask,
    WarnTask,
)
from mgpu_jupyter.scheduler.events import Event
from mgpu_jupyter.scheduler.model import Load


class PassInput(msgspec.Struct, frozen=True):
    """Send this node typed input, or the size of the terminal it comes from."""

    node_id: NodeId
    message: Input | Resize


class AskNode(msgspec.Struct, frozen=True):
    """Ask this node who it is, for the state of an attempt, and which Python a cell would get."""

    node_id: NodeId
    number: int
    """Repeated in the answer."""
    key: AttemptKey | None = None
    cell: CellWish | None = None


NodeCommand = (
    LaunchTask | PrepareTask | MeetTask | StartTask | StopTask | WarnTask | ProbeNode | PassInput | AskNode
)
"""A command for a node. Each carries all that its node needs to know."""


class NewestReading(msgspec.Struct, frozen=True, kw_only=True):
    """The newest readings of a node."""

    samples: tuple[GpuSample, ...] = ()
    load: Load = Load()


class NodeAnswer(NamedTuple):
    """A node's answer to the question of this number; `pong` is None when it is away."""

    node_id: NodeId
    number: int
    pong: Pong | None


class Inbox(msgspec.Struct, kw_only=True):
    """All that arrived since the last call."""

    events: list[Event] = []
    """For the scheduler, in the order of arrival."""
    marks: list[Mark] = []
    """Steps of jobs that were seen."""
    readings: dict[NodeId, NewestReading] = {}
    """Nodes with new readings; each is complete, so that the newest is enough."""
    grown: set[JobId] = set()
    """Jobs whose output grew."""
    typed: list[InputAck] = []
    """How much of the typed input was read."""
    answers: list[NodeAnswer] = []


class NodeLink(Protocol):
    """Carries decisions to nodes, and their reports back. Used by the master's thread, except `wake`."""

    def wait(self, timeout_s: float) -> None:
        """Return when something arrives, when woken, or after the timeout."""

    def wake(self) -> None:
        """End a `wait`; may be called from any thread."""

    def poll(self) -> Inbox:
        """Return all that arrived since the last call, without waiting."""

    def send(self, commands: Iterable[NodeCommand]) -> None:
        """Queue these for their nodes until the next `flush`; a node that is away gets none."""

    def committed(self) -> None:
        """Note that all events returned so far are durable: nodes may delete what they still keep of them."""

    def flush(self) -> None:
        """Send all that is queued."""

    def resync(self) -> None:
        """Ask every node to report everything again, because the last events were lost."""

    def close(self) -> Inbox:
        """Say goodbye to nodes, close everything, and return what still arrived."""


class Enrolment(Protocol):
    """Decides who may become a node, and who no longer is one. Used by the master's thread."""

    def listen(self, host: str) -> bool:
        """Listen on this address, too; tell whether it is new."""

    def admit(self, key: JoinKey) -> None:
        """Allow a node to enrol under this key, which is durable by now."""

    def knows(self, node_id: NodeId) -> bool:
        """Tell whether a node of this name is enrolled."""

    def revoke(self, node_id: NodeId, reason: str) -> None:
        """Refuse this node from its next frame on; the unbinding of its key is durable by now."""

    def forget(self, node_id: NodeId) -> None:
        """Forget a node; the removal of its key is durable by now."""


class Incoming(NamedTuple):
    """A message from a connection whose key is bound to `user_id`."""

    user_id: str
    route: bytes
    frames: list[memoryview]
    refusal: str = ""
    """Why the key is no longer bound to `user_id`; empty while it is."""


class FrameCarrier(Protocol):
    """Carries frames to and from nodes; knows keys and connections, not messages."""

    def wait(self, timeout_s: float) -> None:
        """Return when something arrives, when woken, or after the timeout."""

    def wake(self) -> None:
        """End a `wait`; may be called from any thread."""

    def receive(self, limit: int) -> list[Incoming]:
        """Return what has arrived, at most `limit` messages, without waiting."""

    def send(self, route: bytes, frames: list[bytes]) -> bool:
        """Send to a connection; False when it is gone."""

    def take_ended(self) -> list[bytes]:
        """Return the connections that ended since the last call; what they sent before may still come."""

    def bind(self, host: str, port: int) -> int:
        """Listen on this address, too, and return the port."""

    def allow(self, public_key: str, user_id: str) -> None:
        """Accept this key under this name, in place of the key that had the name before."""

    def forbid(self, user_id: str, why: str) -> None:
        """Remove the key of this name from the list; its connections are refused from their next frame on."""

    def remember(self, public_key: str, user_id: str, why: str) -> None:
        """Note why a key that is not on the list is refused."""

    def holder(self, public_key: str) -> str | None:
        """Return the name that this key is bound to; raises ValueError if it is not a key."""

    def knows(self, user_id: str) -> bool:
        """Tell whether a key is bound to this name."""

    def close(self) -> None:
        """Send what is left, then close."""


QUESTIONS_REMEMBERED = 1_000

OnAnswer = Callable[[Pong | None], None]
"""Called on the master's thread with a node's answer; None when it is away."""


class OpenQuestions:
    """Questions to nodes that wait for an answer. Used by the master's thread."""

    def __init__(self) -> None:
        self._number = 0
        self._open: dict[int, tuple[NodeId, OnAnswer]] = {}

    def ask(
        self, node_id: NodeId, key: AttemptKey | None, on_answer: OnAnswer, cell: CellWish | None = None
    ) -> AskNode:
        """Return the question to send; the oldest open ones are dropped when there are too many."""
        self._number += 1
        self._open[self._number] = (node_id, on_answer)
        if len(self._open) > QUESTIONS_REMEMBERED:
            del self._open[next(iter(self._open))]
        return AskNode(node_id, self._number, key, cell)

    def take(self, answer: NodeAnswer) -> None:
        """Pass an answer on to the caller who asked this node; an unexpected one is dropped."""
        asked = self._open.get(answer.number)
        if asked is not None and asked[0] == answer.node_id:
            del self._open[answer.number]
            asked[1](answer.pong)
