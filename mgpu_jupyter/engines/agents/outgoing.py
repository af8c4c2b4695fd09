"""Messages to agents: the one place where a command becomes a message, and the queue until the turn is
committed. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.codec import encode
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.messages import ToAgent
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_jupyter.master.node_link import AskNode, FrameCarrier, NodeCommand, PassInput
from mgpu_jupyter.scheduler.commands import (
    LaunchTask,
    MeetTask,
    PrepareTask,
    ProbeNode,
    StartTask,
    StopTask,
    WarnTask,
)


def message_of(  # noqa: PLR0911 - one case per command
    command: NodeCommand,
    complete: Callable[[LaunchSpec], LaunchSpec],
    secret_of: Callable[[AttemptKey], bytes],
) -> tuple[NodeId, wire.ToAgent]:
    """Return the node and its message; `complete` adds to a launch what only the link knows, and nodes that
    meet share the secret of their attempt.
    """
    match command:
        case LaunchTask(spec):
            reach("master.launch")
            return spec.node_id, wire.Launch(spec=complete(spec))
        case PrepareTask(spec, hold_s, meets):
            reach("master.prepare")
            return spec.node_id, wire.Prepare(spec=complete(spec), hold_s=hold_s, meets=meets)
        case MeetTask(node_id, key, peers, limit_s):
            reach("master.meet")
            return node_id, wire.Meet(key=key, secret=secret_of(key), peers=peers, limit_s=limit_s)
        case StartTask(node_id, key, other):
            reach("master.start")
            return node_id, wire.Start(key=key, spec=other and complete(other))
        case StopTask(node_id, key, grace_s, reason, cause):
            reach("master.stop")
            return node_id, wire.Stop(key=key, grace_s=grace_s, reason=reason, cause=cause)
        case WarnTask(node_id, key, signal, serial):
            reach("master.warn")
            return node_id, wire.Warn(key=key, signal=signal, serial=serial)
        case ProbeNode(node_id, number):
            reach("master.probe")
            return node_id, wire.Probe(number=number)
        case PassInput(node_id, message):
            reach("master.input")
            return node_id, message
        case AskNode(node_id, number, about, cell):
            reach("master.ping")
            return node_id, wire.Ping(number=number, key=about, cell=cell)
        case _:  # pragma: no cover - mypy proves that this cannot be reached
            assert_never(command)


FRAMES_PER_MESSAGE = 256
BYTES_PER_MESSAGE = 1024 * 1024


class Mail:
    """Frames by node, under this master's epoch."""

    def __init__(self, carrier: FrameCarrier, epoch: int) -> None:
        self._carrier, self._epoch = carrier, epoch
        self._frames: dict[NodeId, list[bytes]] = {}

    def post(self, node_id: NodeId, message: ToAgent) -> None:
        """Keep a message for the next `send`."""
        self._frames.setdefault(node_id, []).append(encode(message, self._epoch))

    def answer(self, route: bytes, message: ToAgent) -> None:
        """Send to a connection at once, whoever it is."""
        self._carrier.send(route, [encode(message, self._epoch)])

    def drop(self, node_id: NodeId) -> None:
        """Forget the messages for a node."""
        self._frames.pop(node_id, None)

    def send(self, routes: Mapping[NodeId, bytes]) -> list[NodeId]:
        """Send all messages; return the nodes whose connection broke. Messages for absent nodes are
        dropped.
        """
        waiting, self._frames = self._frames, {}
        return [
            node_id
            for node_id, frames in waiting.items()
            if node_id in routes and not self._send(routes[node_id], frames)
        ]

    def _send(self, route: bytes, frames: list[bytes]) -> bool:
        batch: list[bytes] = []
        size = 0
        for number, frame in enumerate(frames, start=1):
            batch.append(frame)
            size += len(frame)
            # A message arrives whole or not at all: large frames must not wait for each other.
            if size >= BYTES_PER_MESSAGE or len(batch) == FRAMES_PER_MESSAGE or number == len(frames):
                if not self._carrier.send(route, batch):
                    return False
                batch, size = [], 0
        return True
