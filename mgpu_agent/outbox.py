"""What goes to the master between two waits, gathered into few messages: output first, then the ends that follow it."""

from __future__ import annotations

import time

from mgpu_agent.link import Link
from mgpu_agent.process.output import OutputShipper
from mgpu_agent.protocol import codec
from mgpu_agent.protocol.messages import ToMaster

_BATCH_FRAMES = 256
_BATCH_BYTES = 1024 * 1024
_SHIP_AT_ONCE_BYTES = 4 * 1024 * 1024  # then the loop looks at everything else again


class Outbox:
    """Messages that wait for the end of a turn. What a lost connection had not sent is dropped, and told anew on the next one."""

    def __init__(self, link: Link, shipper: OutputShipper) -> None:
        self._link = link
        self._shipper = shipper
        self._messages: list[ToMaster] = []

    def put(self, message: ToMaster) -> None:
        """Add a message."""
        self._messages.append(message)

    def clear(self) -> None:
        """Drop all that waits."""
        self._messages.clear()

    def flush(self, epoch: int, *, may_ship: bool) -> None:
        """Send all, after as much output as fits into one turn."""
        batch: list[bytes] = []
        size = shipped = 0
        if may_ship:
            for chunk in self._shipper.chunks(time.monotonic()):
                batch.append(codec.encode(chunk, epoch))
                size += len(chunk.data)
                shipped += len(chunk.data)
                if size >= _BATCH_BYTES or len(batch) >= _BATCH_FRAMES:
                    self._link.send(batch)
                    batch, size = [], 0
                if shipped >= _SHIP_AT_ONCE_BYTES:
                    break
        for message in self._messages:
            batch.append(codec.encode_to_master(message, epoch))
            size += len(batch[-1])
            # A message arrives whole or not yet: large parts must not wait for each other.
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_FRAMES:
                self._link.send(batch)
                batch, size = [], 0
        self._messages.clear()
        if batch:
            self._link.send(batch)
