"""What others could know at a point of the trace: answers that were sent, attempts that reached a node, ends
that a node let go of.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.chaos.power.trace import RENAME, SEND, WRITE, Deed

LEDGER = "ledger"
ENROLMENT = b"/enrolment.json"
_FRAME = struct.Struct(">II")

Attempt = tuple[str, int, int]
"""Job, attempt, epoch."""


class Facts:
    """Grows with every deed."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, float] = {}
        """Jobs whose submit was answered with 201, and when the first byte of that left."""
        self.cancelled: set[str] = set()
        """Jobs whose cancel was answered with 202."""
        self.launched: set[Attempt] = set()
        """Attempts that a node wrote down."""
        self.forgotten: dict[Attempt, set[str]] = {}
        """Attempts of which the master told nodes that it has the end there."""
        self.enrolled: set[str] = set()
        """Nodes that know the master by its key."""

    def take(self, deed: Deed) -> None:
        """Add what a deed let others know."""
        if deed.op == SEND and deed.data:
            self._answered(deed)
        elif deed.path.startswith("nodes/"):
            self._done_on_node(deed, *deed.path.split("/")[1:])

    def _done_on_node(self, deed: Deed, node: str, *names: str) -> None:
        if deed.op == RENAME and deed.data.endswith(ENROLMENT):
            self.enrolled.add(node)
        elif deed.op == WRITE and names in ((LEDGER,), (f".{LEDGER}.new",)):
            for line in _ledger_lines(deed.data):
                if line[0] == "m":
                    self.launched.add(tuple(line[1][0]))
                elif line[0] == "f":
                    for key in line[1]:
                        self.forgotten.setdefault(tuple(key), set()).add(node)

    def _answered(self, deed: Deed) -> None:
        head, _, body = deed.data.partition(b"\r\n\r\n")
        status = head.split(b" ", 2)[1]
        if status not in (b"201", b"202"):
            return
        answer = json.loads(body)
        if status == b"201" and "job_id" in answer:
            self.acknowledged.setdefault(answer["job_id"], deed.at)
        elif status == b"202":
            self.cancelled.add(answer["job_id"])


def _ledger_lines(data: bytes) -> Iterator[list[Any]]:
    position = 0
    while position < len(data):
        length, checksum = _FRAME.unpack_from(data, position)
        body = data[position + _FRAME.size : position + _FRAME.size + length]
        assert zlib.crc32(body) == checksum, "a node wrote half a line of its ledger at once"
        yield msgspec.msgpack.decode(body)
        position += _FRAME.size + length
