"""Pieces of folders that users sent, as files: each user's own, known by their SHA-256, up to a cap. Knows
nothing of jobs.

The least recently used are deleted first. A piece is on disk before its digest is told to anybody, and is
read whole: it is small.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from mgpu_agent.protocol.errors import Conflict, InvalidRequest
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.folders import (
    MAX_LIST_BYTES,
    Folder,
    check_room,
    check_sizes,
    decode_folder,
    digest_of,
    is_digest,
)
from mgpu_agent.protocol.places import make_private_dir

DEFAULT_CAP_BYTES = 20 * 1024**3
YOUNG_S = 3600.0  # between sending a folder and submitting its job
WORKERS = 8
REMEMBERED = 10_000
_KEEP = 0.9
T = TypeVar("T")


class PieceStore:
    """Pieces below one directory. Safe to use from several threads."""

    def __init__(
        self,
        root: Path,
        cap_bytes: int = DEFAULT_CAP_BYTES,
        share_bytes: int = 0,
        is_exempt: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._root = make_private_dir(root)
        self._cap_bytes = cap_bytes
        self._share_bytes = share_bytes
        """The most bytes of one user, except for those who are exempt; 0 for all of it."""
        self._is_exempt = is_exempt
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="mgpu-pieces")
        shutil.rmtree(root.with_name("tray"), ignore_errors=True)  # of programs that ended halfway
        self.tray = make_private_dir(root.with_name("tray"))
        """Where programs of the master's own user on this machine put pieces, under their digests."""
        self._unread: set[Path] = set()
        """Pieces that were not read for a node yet; most are read once."""
        self._used: dict[str, int] = {}
        """Bytes by home, the directory of a user."""
        for entry in self._files():
            self._count(entry.path, entry.stat().st_size)

    def missing(self, user: str, digests: Iterable[str]) -> list[str]:
        """Return which of these a user has not sent; mark the others as used."""
        return [digest for digest in digests if self._touch(user, digest) is None]

    def put(
        self, user: str, pieces: Sequence[bytes | memoryview], in_use: Callable[[], set[str]]
    ) -> list[str]:
        """Keep pieces of a user and return their digests; `in_use` returns the folders of jobs that are not
        over.
        """
        digests = list(self._workers.map(digest_of, pieces))
        new = {
            digest: data
            for digest, data in zip(digests, pieces, strict=True)
            if self._touch(user, digest) is None
        }
        self._keep(
            user, sum(map(len, new.values())), in_use, lambda item: self._write(user, *item), new.items()
        )
        return digests

    def laid(self, digests: Iterable[str]) -> list[str]:
        """Return which of these are in the tray."""
        there = set(os.listdir(self.tray))
        return [digest for digest in digests if digest in there]

    def take_laid(self, user: str, digests: Sequence[str], in_use: Callable[[], set[str]]) -> None:
        """Keep pieces from the tray as this user's. Their names are trusted here, and checked by nodes."""
        sizes = {digest: self._size_laid(digest) for digest in digests if is_digest(digest)}
        plain = {digest: size for digest, size in sizes.items() if 0 < size <= MAX_LIST_BYTES}
        self._keep(user, sum(plain.values()), in_use, lambda digest: self._adopt(user, digest), plain)

    def _size_laid(self, digest: str) -> int:
        """Return the size of a plain file of the master's own user, and 0 for everything else."""
        with contextlib.suppress(OSError):
            info = os.stat(self.tray / digest, follow_symlinks=False)
            return info.st_size if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() else 0
        return 0

    def _keep(
        self,
        user: str,
        wanted: int,
        in_use: Callable[[], set[str]],
        write: Callable[[T], Path],
        items: Iterable[T],
    ) -> None:
        """Make room for this many bytes, and bring new pieces to disk."""
        home = _home(user)
        with self._lock:
            if (
                self._share_bytes
                and self._used.get(home, 0) + wanted > self._share_bytes
                and not self._is_exempt(user)
            ):
                self._make_room(wanted, in_use(), home)
            if sum(self._used.values()) + wanted > self._cap_bytes:
                self._make_room(wanted, in_use())
            self._used[home] = self._used.get(home, 0) + wanted
        # In parallel, and without the lock: syncs that wait together are one commit of the file system's
        # journal.
        try:
            directories = set(self._workers.map(write, items))
            list(self._workers.map(_sync, directories))
        except OSError:
            with self._lock:
                self._used[home] -= wanted
            raise

    def read(self, user: str, digest: str) -> bytes | None:
        """Return a piece of a user for a node, or None if it is missing or damaged.

        The node compares it with its digest, so that is not done here the first time; a node that finds it
        damaged asks again.
        """
        path = self._path(user, digest)
        if path not in self._unread:
            return self._whole(user, digest)
        self._unread.discard(path)
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            _free_memory(path)
            return data
        return None

    def _whole(self, user: str, digest: str) -> bytes | None:
        """Return a piece of a user that matches its digest; one that does not is deleted."""
        if not is_digest(digest):
            return None
        with contextlib.suppress(OSError):
            data = self._path(user, digest).read_bytes()
            if digest_of(data) == digest:
                return data
            self._path(user, digest).unlink()
            with self._lock:
                self._used[_home(user)] -= len(data)
        return None

    def folder(self, user: str, digest: str, gone_text: str = "", limit_bytes: int = 0) -> Folder:
        """Return a folder that is complete and within the limit, or refuse it, with `gone_text` if given."""
        data = self._whole(user, digest)
        if data is None or len(data) > MAX_LIST_BYTES:
            raise Conflict(
                "folder-missing",
                gone_text or "The folder of this job is not here (any more): send it again with --sync.",
            )
        folder = decode_folder(data)
        check_room(folder, limit_bytes)
        sizes = {digest: size for digest in folder.pieces if (size := self._touch(user, digest)) is not None}
        if gone := folder.pieces.keys() - sizes:
            raise Conflict(
                "folder-missing",
                gone_text
                or f"{len(gone)} pieces of the folder of this job are not here (any more): send it again "
                f"with --sync.",
            )
        check_sizes(folder, sizes)
        return folder

    def _touch(self, user: str, digest: str) -> int | None:
        """Mark a piece as used, and return its size; None if it is missing."""
        if not is_digest(digest):
            raise InvalidRequest("bad-digest", f"{digest[:80]!r} is no SHA-256 in hexadecimal.")
        path = self._path(user, digest)
        try:
            os.utime(path)
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def forget(self, user: str, names: Iterable[str], in_use: set[str]) -> None:
        """Delete folders of a user, but not the pieces that those in use share with them."""
        spared = self._content(user, in_use)
        for digest in self._content(user, set(names)) - spared:
            with contextlib.suppress(OSError):
                path = self._path(user, digest)
                size = path.stat().st_size
                path.unlink()
                with self._lock:
                    self._used[_home(user)] -= size

    def _content(self, user: str, names: set[str]) -> set[str]:
        """Return these folders of a user and all their pieces, as far as they are here."""
        found = set(names)
        for name in names:
            if (data := self._whole(user, name)) is not None:
                with contextlib.suppress(InvalidRequest):
                    found.update(decode_folder(data).pieces)
        return found

    def close(self) -> None:
        """End the threads."""
        self._workers.shutdown(wait=True)

    def _write(self, user: str, digest: str, data: bytes | memoryview) -> Path:
        path = self._path(user, digest)
        make_private_dir(path.parent.parent)
        make_private_dir(path.parent)
        temporary = path.with_name(f".{digest}.{threading.get_ident()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        reach("pieces.write")
        temporary.replace(path)
        self._note_new(path)
        return path.parent

    def _adopt(self, user: str, digest: str) -> Path:
        path = self._path(user, digest)
        make_private_dir(path.parent.parent)
        make_private_dir(path.parent)
        _sync(self.tray / digest)
        reach("pieces.take")
        (self.tray / digest).replace(path)
        self._note_new(path)
        return path.parent

    def _note_new(self, path: Path) -> None:
        if len(self._unread) < REMEMBERED:
            self._unread.add(path)

    def _make_room(self, wanted: int, in_use: set[str], home: str = "") -> None:
        """Delete the least recently used, of all or of one home, but nothing that a job still needs or that
        arrived a moment ago.
        """
        cap = self._share_bytes if home else self._cap_bytes
        files = self._files(home)
        spared = set(in_use)
        for entry in files:
            if entry.name in in_use:
                with contextlib.suppress(OSError, InvalidRequest):
                    spared.update(decode_folder(Path(entry.path).read_bytes()).pieces)
        young = time.time() - YOUNG_S
        for entry in sorted(files, key=lambda one: one.stat().st_mtime):
            if self._used_of(home) + wanted <= _KEEP * cap:
                return
            if entry.name not in spared and entry.stat().st_mtime < young:
                size = entry.stat().st_size
                os.unlink(entry.path)
                self._count(entry.path, -size)
        if self._used_of(home) + wanted <= cap:
            return
        if home:
            raise Conflict(
                "share-used",
                f"You have {self._used_of(home)} bytes of folders here, and {cap} are your share: wait "
                f"until jobs with --sync or --in are "
                "over, send less (.mgpuignore), or ask an administrator (limits.user_folders_bytes).",
            )
        raise Conflict(
            "folders-full",
            f"The master keeps {self._cap_bytes} bytes of folders, and all of it is in use: wait until jobs "
            f"with --sync are over.",
        )

    def _used_of(self, home: str) -> int:
        return self._used.get(home, 0) if home else sum(self._used.values())

    def _count(self, path: str, size: int) -> None:
        home = Path(path).parent.parent.name
        self._used[home] = self._used.get(home, 0) + size

    def _path(self, user: str, digest: str) -> Path:
        return self._root / _home(user) / digest[:2] / digest

    def _files(self, home: str = "") -> list[os.DirEntry[str]]:
        """Return all pieces, or those of one home."""
        return [
            file
            for user in os.scandir(self._root)
            if not home or user.name == home
            for part in os.scandir(user.path)
            for file in os.scandir(part.path)
            if not file.name.startswith(".")
        ]


def _home(user: str) -> str:
    """Return the name of a user's directory."""
    return digest_of(user.encode())[:32]


def _free_memory(path: Path) -> None:
    """Free the memory in which the system caches a file: it is on disk, and new memory may be expensive for a
    virtual machine.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
