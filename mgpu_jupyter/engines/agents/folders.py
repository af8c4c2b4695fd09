"""Pieces of folders to the nodes of their jobs: a node gets what belongs to the user of a job that was given to it, and nothing else.

A node asks for a few at a time, so that what is under way is bounded; files are read on a thread of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from queue import Empty, SimpleQueue

from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.messages import FetchPieces, Piece
from mgpu_agent.protocol.model import LaunchSpec

MAX_ASKED = 32
MAX_WAITING = 256
"""Pieces that one node waits for; an honest one asks for eight at a time for each of its attempts, and asks again."""
REMEMBERED = 100_000
Read = Callable[[str, str], bytes | None]


class FolderServer:
    """Answers nodes. Used by the master's thread."""

    def __init__(self, read: Read | None, wake: Callable[[], None], reader: Executor | None = None) -> None:
        self._read = read
        self._wake = wake
        self._reader = reader or ThreadPoolExecutor(1, thread_name_prefix="mgpu-pieces")
        self._users: dict[tuple[NodeId, AttemptKey], str] = {}
        self._ready: SimpleQueue[tuple[NodeId, Piece]] = SimpleQueue()
        self._waiting: Counter[NodeId] = Counter()

    def launch(self, spec: LaunchSpec) -> None:
        """Note whose folder a node may ask for."""
        if spec.folder or spec.inputs:
            if len(self._users) >= REMEMBERED:
                self._users.clear()
            self._users[spec.node_id, spec.key] = spec.user

    def take(self, node_id: NodeId, message: FetchPieces) -> None:
        """Look for what a node asks for."""
        user = self._users.get((node_id, message.key))
        for digest in message.digests[:MAX_ASKED]:
            if self._waiting[node_id] >= MAX_WAITING:
                return
            self._waiting[node_id] += 1
            if user is None or self._read is None:
                self._ready.put((node_id, Piece(digest=digest)))
            else:
                self._reader.submit(self._look, self._read, node_id, user, digest)

    def take_ready(self) -> list[tuple[NodeId, Piece]]:
        """Return what was found since the last call."""
        ready: list[tuple[NodeId, Piece]] = []
        while True:
            try:
                node_id, piece = self._ready.get_nowait()
            except Empty:
                return ready
            self._waiting[node_id] -= 1
            ready.append((node_id, piece))

    def close(self) -> None:
        """End the thread."""
        self._reader.shutdown(wait=True)

    def _look(self, read: Read, node_id: NodeId, user: str, digest: str) -> None:
        data = read(user, digest)
        self._ready.put((node_id, Piece(digest=digest, data=None if data is None else memoryview(data))))
        self._wake()
