"""Folders that came with jobs: fetches the pieces that this node does not have, keeps them up to a cap, and has a folder laid out.

Asks for a few pieces at a time. Pieces are verified and kept on a thread of its own, a folder is laid out on the thread of its user and
as that user, so that neither the agent's loop nor anybody else waits; nothing here decides whether a job starts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue

from mgpu_agent.process.wishes import TOO_MUCH, Problem, Waiting, Wish, problem_of, verify
from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.folders import Entry, Folder, decode_folder, digest_of
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import FetchPieces, Piece
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_agent.protocol.places import make_private_dir
from mgpu_agent.run_as.account import Account
from mgpu_agent.run_as.file_requests import ClearFolder, LayOut, Part
from mgpu_agent.run_as.file_work import SETTLE
from mgpu_agent.run_as.user_files import Ask, Trouble, UserFiles

DEFAULT_CAP_BYTES = 20 * 1024**3
FOLDER_LIMIT_BYTES = 20 * 1024**3  # where the master names none
WINDOW = 8
BATCH_BYTES = 4 * 1024 * 1024
BATCH_PARTS = 500
GONE = "The master does not have all of the job's folder (any more): send it again with --sync."


Find = Callable[[LaunchSpec], tuple[Path, Account | None]]
"""Makes the place of a launch's folder, and says for whom."""


class _Wish(Wish):
    """A folder that a launch waits for."""

    def __init__(self, command: Waiting, find: Find) -> None:
        super().__init__(command, command.spec.folder)
        self.find = find
        self.folder: Folder | None = None
        self.is_laid_out = False
        """Whether that was begun: once, because the job may run there by the time."""


class Folders:
    """All folders of one node. `send` takes what is said to the master, `wake` ends a wait of the agent's loop."""

    def __init__(
        self,
        directory: Path,
        send: Callable[[FetchPieces], None],
        wake: Callable[[], None],
        users: UserFiles,
        cap_bytes: int = DEFAULT_CAP_BYTES,
    ) -> None:
        self._cache = directory / "pieces"
        self._send = send
        self._wake = wake
        self._users = users
        self._cap_bytes = cap_bytes
        self._used_bytes: int | None = None
        self._wishes: dict[AttemptKey, _Wish] = {}
        self._laid_out: set[AttemptKey] = set()
        self._done: SimpleQueue[tuple[AttemptKey, Problem | None, object]] = SimpleQueue()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="mgpu-folders")

    def has(self, spec: LaunchSpec) -> bool:
        """Tell whether a launch need not wait for its folder."""
        return not spec.folder or spec.key in self._laid_out

    def want(self, command: Waiting, find: Find) -> None:
        """Begin to have the folder of a launch laid out; `take_done` brings the command back when it is there."""
        key = command.spec.key
        if key not in self._wishes:
            self._wishes[key] = _Wish(command, find)
            self._look(self._wishes[key])

    def drop(self, keys: Iterable[AttemptKey]) -> None:
        """Want these no more."""
        for key in keys:
            self._wishes.pop(key, None)
            self._laid_out.discard(key)

    def take(self, piece: Piece) -> None:
        """Take in a piece, or that the master does not have it."""
        for key, wish in list(self._wishes.items()):
            if piece.digest not in wish.left:
                continue
            wish.asked.pop(piece.digest, None)
            if piece.digest in wish.came:
                continue
            wish.came.add(piece.digest)
            if piece.data is None:
                self._done.put((key, Problem(GONE, "request"), None))
            else:
                self._worker.submit(self._guarded, key, self._keep, piece.digest, piece.data)

    def ask_again(self, *, all_of_them: bool) -> None:
        """Ask for what did not come: all of it on a new connection, else what was asked for long ago."""
        for wish in self._wishes.values():
            wish.forget_unanswered(all_of_them=all_of_them)
            self._ask(wish)

    def take_done(self) -> list[tuple[Waiting, Problem | None]]:
        """Return the launches whose folder is there, or why it is not."""
        done: list[tuple[Waiting, Problem | None]] = []
        while True:
            try:
                key, problem, result = self._done.get_nowait()
            except Empty:
                return done
            wish = self._wishes.get(key)
            if wish is None:
                continue
            if problem or result is True:
                del self._wishes[key]
                if not problem:
                    self._laid_out.add(key)
                done.append((wish.command, problem))
            elif isinstance(result, str):
                wish.left.pop(result, None)
                wish.came.discard(result)
                self._go_on(wish)
            elif isinstance(result, tuple):
                wish.folder, wish.left = result[0], dict.fromkeys(result[1])
                self._go_on(wish)

    def close(self) -> None:
        """End the thread."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    # --- on the loop ---------------------------------------------------------------------------------

    def _look(self, wish: _Wish) -> None:
        self._worker.submit(self._guarded, wish.key, self._survey, wish.command.spec)

    def _go_on(self, wish: _Wish) -> None:
        if wish.left:
            self._ask(wish)
        elif wish.folder is None:
            self._look(wish)
        elif not wish.is_laid_out:
            wish.is_laid_out = True
            folder, spec, find = wish.folder, wish.command.spec, wish.find
            if not self._users.submit(spec.user, lambda ask: self._guarded(spec.key, self._lay_out, ask, folder, spec, find)):
                self._done.put((spec.key, Problem(TOO_MUCH, "job"), None))

    def _ask(self, wish: _Wish) -> None:
        if (question := wish.ask(WINDOW - len(wish.asked))) is not None:
            self._send(question)

    # --- on threads ----------------------------------------------------------------------------------

    def _guarded(self, key: AttemptKey, work: Callable[..., object], *arguments: object) -> None:
        try:
            self._done.put((key, None, work(*arguments)))
        except (OSError, MgpuError) as error:
            self._done.put((key, problem_of("The job's folder could not be laid out", error), None))
        self._wake()

    def _survey(self, spec: LaunchSpec) -> tuple[Folder | None, list[str]]:
        """Return the folder and which of its pieces are not here; first of all its list."""
        data = self._read(spec.folder)
        if data is None:
            return None, [spec.folder]
        folder = decode_folder(data)
        limit = spec.folder_limit_bytes or FOLDER_LIMIT_BYTES
        if folder.size > limit:
            raise InvalidRequest("folder-too-large", f"it has {folder.size} bytes, and {limit} are allowed")
        return folder, [digest for digest in folder.pieces if not self._touch(digest)]

    def _keep(self, digest: str, data: memoryview) -> str:
        verify(data, digest)
        path = self._path(digest)
        make_private_dir(self._cache)
        make_private_dir(path.parent)
        temporary = path.with_name(f".{digest}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        reach("agent.piece")
        used = self._used()
        temporary.replace(path)
        self._used_bytes = used + len(data)
        if self._used_bytes > self._cap_bytes:
            self._make_room()
        return digest

    def _lay_out(self, ask: Ask, folder: Folder, spec: LaunchSpec, find: Find) -> bool:
        """Have all files written by whose they are; pieces stay in the cache, which is the agent's alone."""
        path, account = find(spec)
        place = str(path)
        ask(account, ClearFolder(place=place))
        batch: list[Part] = []
        size = 0
        for part in self._parts(folder):
            batch.append(part)
            size += len(part.data)
            if size >= BATCH_BYTES or len(batch) >= BATCH_PARTS:
                ask(account, LayOut(place=place, parts=tuple(batch)))
                batch, size = [], 0
        ask(account, LayOut(place=place, parts=tuple(batch)))
        return True

    def _parts(self, folder: Folder) -> Iterator[Part]:
        for entry in folder.entries:
            if entry.kind in ("directory", "link") or not entry.pieces:
                yield Part(entry.path, entry.kind, entry.mode, entry.modified_ns, entry.target)
            for number, digest in enumerate(entry.pieces):
                yield self._part(entry, number, digest)
        for entry in reversed(folder.entries):
            if entry.kind == "directory":
                yield Part(entry.path, SETTLE, entry.mode, entry.modified_ns)

    def _part(self, entry: Entry, number: int, digest: str) -> Part:
        data = self._read(digest)
        if data is None:
            raise OSError(f"piece {digest[:12]} is gone")
        offset = number * entry.piece_bytes
        if len(data) != min(entry.piece_bytes, entry.size - offset):
            raise Trouble(f"{entry.path} has other content than its size says", "request")
        is_last = number + 1 == len(entry.pieces)
        return Part(entry.path, entry.kind, entry.mode, entry.modified_ns, offset=offset, data=data, is_last=is_last)

    def _read(self, digest: str) -> bytes | None:
        """Return a piece that is here and whole."""
        with contextlib.suppress(OSError):
            data = self._path(digest).read_bytes()
            if digest_of(data) == digest:
                self._touch(digest)
                return data
            self._path(digest).unlink()
        return None

    def _touch(self, digest: str) -> bool:
        try:
            os.utime(self._path(digest))
        except OSError:
            return False
        return True

    def _path(self, digest: str) -> Path:
        return self._cache / digest[:2] / digest

    def _files(self) -> list[os.DirEntry[str]]:
        return [file for part in os.scandir(make_private_dir(self._cache)) for file in os.scandir(part.path)]

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
