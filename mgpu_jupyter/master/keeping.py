"""Files that jobs leave: values about them, the role of their keeper, and how much of the disk each user has.
Reads and deletes no file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.model import ResultFile


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One file that was collected."""

    file: ResultFile
    problem: str = ""
    """Why it is missing; empty when it is there and verified."""
    tries: int = 1
    """How often it was fetched until it was complete."""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """The files that one node sent of one attempt."""

    node_id: NodeId
    files: tuple[Kept, ...] = ()
    problems: tuple[str, ...] = ()


class ResultKeeper(Protocol):
    """Where results are kept: files by number, and an index once all is there."""

    def make_directory(self, job_id: JobId, attempt: int, node_id: NodeId) -> Path:
        """Make an empty directory for the files of one node."""

    def index(self, job_id: JobId, attempt: int, node_id: NodeId) -> Index | None:
        """Return the index of a node's files, once all of them are here."""

    def finish(self, job_id: JobId, attempt: int, index: Index) -> None:
        """Bring all files to disk, and then write the index."""


UNBOUNDED = 1 << 62


class DiskShares:
    """Bytes by user, and the most that one may have. Safe to use from several threads."""

    def __init__(
        self,
        limit_bytes: int = 0,
        used: Mapping[str, int] | None = None,
        is_exempt: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.limit_bytes = limit_bytes
        """0 for no limit."""
        self._used = dict(used or {})
        self._is_exempt = is_exempt
        """Tells whether a user has no limit, as those who run the cluster."""
        self._lock = threading.Lock()

    def used(self, user: str) -> int:
        """Return how many bytes a user has."""
        return self._used.get(user, 0)

    def room(self, user: str) -> int:
        """Return how many more bytes a user may have."""
        if not self.limit_bytes or self._is_exempt(user):
            return UNBOUNDED
        return max(0, self.limit_bytes - self.used(user))

    def add(self, user: str, size: int) -> None:
        """Count new bytes, or with a minus deleted ones."""
        with self._lock:
            left = self._used.get(user, 0) + size
            if left > 0:
                self._used[user] = left
            else:
                self._used.pop(user, None)

    def take(self, user: str, size: int) -> bool:
        """Count this if there is room for all of it; tell whether there was."""
        with self._lock:
            if (
                self.limit_bytes
                and not self._is_exempt(user)
                and self._used.get(user, 0) + size > self.limit_bytes
            ):
                return False
            self._used[user] = self._used.get(user, 0) + size
            return True
