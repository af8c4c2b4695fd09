"""What is kept of the files that jobs leave, as values, and what is needed of whoever keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.model import ResultFile


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One file that was collected."""

    file: ResultFile
    problem: str = ""
    """Why it is not there; empty when it is, verified."""
    tries: int = 1
    """How often it was fetched until it was whole."""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """What one node gave of one attempt."""

    node_id: NodeId
    files: tuple[Kept, ...] = ()
    problems: tuple[str, ...] = ()


class ResultKeeper(Protocol):
    """Where results are kept: files by number, and an index once all is there."""

    def make_directory(self, job_id: JobId, attempt: int, node_id: NodeId) -> Path:
        """Make a place for the files of one node, empty."""

    def index(self, job_id: JobId, attempt: int, node_id: NodeId) -> Index | None:
        """Return what a node gave, once all of it is here."""

    def finish(self, job_id: JobId, attempt: int, index: Index) -> None:
        """Bring all files to disk, and then say so."""
