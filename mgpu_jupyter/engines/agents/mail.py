"""What waits to be sent to nodes: gathered until the turn is committed, then sent in few messages. Used by the master's thread."""

from __future__ import annotations

from collections.abc import Mapping

from mgpu_agent.protocol.codec import encode
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import ToAgent
from mgpu_jupyter.master.frames import FrameCarrier

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
        """Say something to a connection at once, whoever it is."""
        self._carrier.send(route, [encode(message, self._epoch)])

    def drop(self, node_id: NodeId) -> None:
        """Forget what waits for a node."""
        self._frames.pop(node_id, None)

    def send(self, routes: Mapping[NodeId, bytes]) -> list[NodeId]:
        """Send all that waits; return the nodes whose connection broke. What is for a node that is away is dropped."""
        waiting, self._frames = self._frames, {}
        return [node_id for node_id, frames in waiting.items() if node_id in routes and not self._send(routes[node_id], frames)]

    def _send(self, route: bytes, frames: list[bytes]) -> bool:
        batch: list[bytes] = []
        size = 0
        for number, frame in enumerate(frames, start=1):
            batch.append(frame)
            size += len(frame)
            # A message arrives whole or not yet: large frames must not wait for each other.
            if size >= BYTES_PER_MESSAGE or len(batch) == FRAMES_PER_MESSAGE or number == len(frames):
                if not self._carrier.send(route, batch):
                    return False
                batch, size = [], 0
        return True
