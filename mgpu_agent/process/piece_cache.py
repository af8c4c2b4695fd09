"""Pieces of folders that this node keeps, up to a cap: the least recently used are deleted first. Fetches
none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.folders import Entry, Folder, digest_of
from mgpu_agent.protocol.places import make_private_dir
from mgpu_agent.run_as.file_work import SETTLE
from mgpu_agent.run_as.requests import FolderPart
from mgpu_agent.run_as.user_files import FileTrouble

DEFAULT_CAP_BYTES = 20 * 1024**3


class PieceCache:
    """The pieces of one node; one thread writes, several may read."""

    def __init__(self, directory: Path, cap_bytes: int = DEFAULT_CAP_BYTES) -> None:
        self._directory = directory
        self._cap_bytes = cap_bytes
        self._used_bytes: int | None = None

    def read(self, digest: str) -> bytes | None:
        """Return a piece, if it is here and whole."""
        with contextlib.suppress(OSError):
            data = self._path(digest).read_bytes()
            if digest_of(data) == digest:
                self.touch(digest)
                return data
            self._path(digest).unlink()
        return None

    def touch(self, digest: str) -> bool:
        """Tell whether a piece is here; mark it as used."""
        try:
            os.utime(self._path(digest))
        except OSError:
            return False
        return True

    def keep(self, digest: str, data: memoryview) -> None:
        """Keep a piece that was verified, and make room if needed."""
        path = self._path(digest)
        make_private_dir(self._directory)
        make_private_dir(path.parent)
        used = self._used()  # before the new file would be counted twice
        temporary = path.with_name(f".{digest}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        reach("agent.piece")
        temporary.replace(path)
        self._used_bytes = used + len(data)
        if self._used_bytes > self._cap_bytes:
            self._make_room()

    def parts(self, folder: Folder) -> Iterator[FolderPart]:
        """Yield the parts of a folder, in the order in which it is laid out."""
        for entry in folder.entries:
            if entry.kind in ("directory", "link") or not entry.pieces:
                yield FolderPart(entry.path, entry.kind, entry.mode, entry.modified_ns, entry.target)
            for number, digest in enumerate(entry.pieces):
                yield self._part(entry, number, digest)
        for entry in reversed(folder.entries):
            if entry.kind == "directory":
                yield FolderPart(entry.path, SETTLE, entry.mode, entry.modified_ns)

    def _part(self, entry: Entry, number: int, digest: str) -> FolderPart:
        data = self.read(digest)
        if data is None:
            raise OSError(f"piece {digest[:12]} is gone")
        offset = number * entry.piece_bytes
        if len(data) != min(entry.piece_bytes, entry.size - offset):
            raise FileTrouble(f"{entry.path} has other content than its size says", "request")
        is_last = number + 1 == len(entry.pieces)
        return FolderPart(
            entry.path, entry.kind, entry.mode, entry.modified_ns, offset=offset, data=data, is_last=is_last
        )

    def _path(self, digest: str) -> Path:
        return self._directory / digest[:2] / digest

    def _files(self) -> list[os.DirEntry[str]]:
        return [
            file for part in os.scandir(make_private_dir(self._directory)) for file in os.scandir(part.path)
        ]

    def _used(self) -> int:
        if self._used_bytes is None:
            self._used_bytes = sum(file.stat().st_size for file in self._files())
        return self._used_bytes

    def _make_room(self) -> None:
        """Delete what was not used for longest; what a launch needs was used just now."""
        for file in sorted(self._files(), key=lambda one: one.stat().st_mtime):
            if self._used() <= 0.9 * self._cap_bytes:
                return
            size = file.stat().st_size
            os.unlink(file.path)
            self._used_bytes = self._used() - size
