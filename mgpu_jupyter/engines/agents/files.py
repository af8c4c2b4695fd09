"""Files between master and nodes: folders to them, results back (`results.py`).

A node gets pieces that belong to the user of a job that was given to it, and no others. It asks for a few at
a time, so that the amount under way is bounded; files are read on a thread of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from queue import Empty, SimpleQueue

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.file_messages import FetchPieces, FoundResults, Piece, ResultChunk
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import ToAgent
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_jupyter.engines.agents.results import ResultCollector
from mgpu_jupyter.master.keeping import DiskShares, ResultKeeper
from mgpu_jupyter.model.settings import Limits

MAX_ASKED = 32
MAX_WAITING = 256
"""How many pieces one node may wait for; an honest one asks for eight at a time per attempt, and repeats."""
REMEMBERED = 100_000
Read = Callable[[str, str], bytes | None]


class FolderServer:
    """Answers requests of nodes. Used by the master's thread."""

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
        """Look up the pieces that a node asks for."""
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
        """Return the pieces that were read since the last call."""
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


class Records(msgspec.Struct, frozen=True):
    """What the store and the disk do for the link: bind keys, look up attempts, keep files."""

    bind: Callable[[NodeId, str, str | None], None]
    assigned_nodes: Callable[[AttemptKey], frozenset[NodeId]]
    read_piece: Read | None = None
    results: ResultKeeper | None = None
    limits: Limits = Limits()
    results_shares: DiskShares | None = None
    owner: Callable[[JobId], str] = lambda _: ""


FileMessage = FetchPieces | FoundResults | ResultChunk


class FileTraffic:
    """All files that are under way. Used by the master's thread."""

    def __init__(
        self, store: Records, is_assigned: Callable[[NodeId, AttemptKey], bool], wake: Callable[[], None]
    ) -> None:
        limits = store.limits
        self._folders = FolderServer(store.read_piece, wake)
        self._results = ResultCollector(
            store.results, wake, limits.results_bytes, shares=store.results_shares, owner=store.owner
        )
        self._is_assigned = is_assigned
        self._limits = limits

    def launch(self, spec: LaunchSpec) -> LaunchSpec:
        """Note whose folder a node may ask for, and return the launch with its limits on files."""
        self._folders.launch(spec)
        return replace(
            spec,
            folder_limit_bytes=self._limits.folder_bytes if spec.folder or spec.inputs else 0,
            results_limit_bytes=self._limits.results_bytes if spec.results or spec.outputs else 0,
        )

    def take(self, node_id: NodeId, message: FileMessage) -> None:
        """Handle a node's message about files of an attempt that it was given."""
        if not self._is_assigned(node_id, message.key):
            return
        match message:
            case FetchPieces():
                self._folders.take(node_id, message)
            case FoundResults():
                self._results.take_found(node_id, message)
            case ResultChunk():
                self._results.take_chunk(node_id, message)

    def take_outgoing(self) -> list[tuple[NodeId, ToAgent]]:
        """Return the messages for nodes."""
        outgoing: list[tuple[NodeId, ToAgent]] = []
        for node_id, piece in self._folders.take_ready():
            reach("master.piece")
            outgoing.append((node_id, piece))
        for node_id, part in self._results.take_wanted():
            reach("master.collect")
            outgoing.append((node_id, part))
        return outgoing

    def take_collected(self) -> list[tuple[NodeId, AttemptKey]]:
        """Return the attempts whose results of a node are on disk."""
        return self._results.take_done()

    def close(self) -> None:
        """End the threads."""
        self._folders.close()
        self._results.close()
