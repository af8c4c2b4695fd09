"""Files between master and nodes: folders there, results back. Sorts messages; the work is done by `folders.py` and `results.py`."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.messages import FetchPieces, FoundResults, ResultChunk, ToAgent
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_jupyter.engines.agents.folders import FolderServer
from mgpu_jupyter.engines.agents.records import Records
from mgpu_jupyter.engines.agents.results import ResultCollector

FileMessage = FetchPieces | FoundResults | ResultChunk


class Files:
    """All files that are under way. Used by the master's thread."""

    def __init__(self, store: Records, is_assigned: Callable[[NodeId, AttemptKey], bool], wake: Callable[[], None]) -> None:
        limits = store.limits
        self._folders = FolderServer(store.read_piece, wake)
        self._results = ResultCollector(store.results, wake, limits.results_bytes, shares=store.results_shares, owner=store.owner)
        self._is_assigned = is_assigned
        self._limits = limits

    def launch(self, spec: LaunchSpec) -> LaunchSpec:
        """Note whose folder a node may ask for, and return the launch with how much files may be."""
        self._folders.launch(spec)
        return replace(
            spec,
            folder_limit_bytes=self._limits.folder_bytes if spec.folder or spec.inputs else 0,
            results_limit_bytes=self._limits.results_bytes if spec.results or spec.outputs else 0,
        )

    def take(self, node_id: NodeId, message: FileMessage) -> None:
        """Take in what a node says about files of an attempt that is its."""
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
        """Return what is to be said to nodes."""
        outgoing: list[tuple[NodeId, ToAgent]] = []
        for node_id, piece in self._folders.take_ready():
            reach("master.piece")
            outgoing.append((node_id, piece))
        for node_id, part in self._results.take_wanted():
            reach("master.collect")
            outgoing.append((node_id, part))
        return outgoing

    def take_collected(self) -> list[tuple[NodeId, AttemptKey]]:
        """Return the attempts of which a node's results are on disk."""
        return self._results.take_done()

    def close(self) -> None:
        """End the threads."""
        self._folders.close()
        self._results.close()
