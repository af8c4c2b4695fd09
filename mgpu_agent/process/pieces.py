"""Folders and variables that launches wait for, in pieces: asks the master for a few at a time, verifies
each, and has folders laid out and variables written.

Pieces of folders are cached by a thread of their own; whatever is written for a user is written on the thread
of that user and as that user, so that neither the agent's loop nor anybody else waits. Decides nothing about
the start of a job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from mgpu_agent.core.commands import PrepareLaunch, StartLaunch
from mgpu_agent.process.piece_cache import DEFAULT_CAP_BYTES, PieceCache
from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.file_messages import FetchPieces, Piece
from mgpu_agent.protocol.folders import Folder, decode_folder, digest_of, values_of
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_agent.run_as.account import Account
from mgpu_agent.run_as.requests import BeginValues, ClearFolder, FolderPart, LayOut, WriteValues
from mgpu_agent.run_as.user_files import Ask, FileTrouble, UserFiles

FOLDER_LIMIT_BYTES = 20 * 1024**3  # where the master names none
BATCH_BYTES = 4 * 1024 * 1024
BATCH_PARTS = 500
THREADS = 2
VARIABLES_NAME = "in"
ASK_AGAIN_S = 30.0

TOO_MUCH = "Too much is to be done with files of this user on this node: wait until other jobs have started."

_OF_THE_LIST = frozenset(("bad-folder", "bad-inputs", "folder-too-large"))

Waiting = StartLaunch | PrepareLaunch

Find = Callable[[LaunchSpec], tuple[Path, Account | None]]
"""Makes the directory for what a launch waits for, and returns it with its account."""


class Problem(msgspec.Struct, frozen=True):
    """Why a launch does not get its files, and whose fault that is."""

    message: str
    fault: str


def problem_of(what: str, error: OSError | MgpuError) -> Problem:
    """Return what an error means: a user's own files, limits and quota say nothing about the node."""
    if isinstance(error, MgpuError):
        return Problem(
            f"{what}: {error.message.removesuffix('.')}.", "request" if error.code in _OF_THE_LIST else "node"
        )
    return Problem(f"{what}: {error}.", error.fault if isinstance(error, FileTrouble) else "node")


class PiecesWish:
    """Pieces that a launch waits for; the first is the list of the others."""

    def __init__(self, command: Waiting, first: str, find: Find) -> None:
        self.command = command
        self.find = find
        self.key = command.spec.key
        self.left: dict[str, None] = {first: None}
        """Pieces that are not here yet."""
        self.asked: dict[str, float] = {}
        self.came: set[str] = set()
        """Pieces that arrived and are being written."""

    def ask(self, room: int) -> FetchPieces | None:
        """Return a request for up to `room` more pieces, and note that it was made."""
        fresh = [digest for digest in self.left if digest not in self.asked and digest not in self.came][
            : max(room, 0)
        ]
        if not fresh:
            return None
        self.asked.update(dict.fromkeys(fresh, time.monotonic()))
        return FetchPieces(key=self.key, digests=tuple(fresh))

    def forget_unanswered(self, *, all_of_them: bool) -> None:
        """Ask again for all pieces that did not come, or only for those requested long ago."""
        for digest in [
            digest for digest, at in self.asked.items() if all_of_them or time.monotonic() - at >= ASK_AGAIN_S
        ]:
            del self.asked[digest]


def verify(data: memoryview, digest: str) -> None:
    """Raise `OSError` when a piece does not match its digest."""
    if digest_of(data) != digest:
        raise OSError(f"piece {digest[:12]} arrived with other content")


W = TypeVar("W", bound=PiecesWish)


class Fetcher(Generic[W]):
    """Launches of one node that wait for one kind of files. `send` sends to the master, `wake` ends a wait
    of the agent's loop.
    """

    window: ClassVar[int]
    """How many pieces are requested, or written, at once."""
    gone: ClassVar[str]
    failed: ClassVar[str]

    def __init__(
        self, send: Callable[[FetchPieces], None], wake: Callable[[], None], users: UserFiles
    ) -> None:
        self._send = send
        self._wake = wake
        self._users = users
        self._wishes: dict[AttemptKey, W] = {}
        self._there: set[AttemptKey] = set()
        self._done: SimpleQueue[tuple[W, Problem | None, object]] = SimpleQueue()

    def has(self, spec: LaunchSpec) -> bool:
        """Tell whether a launch does not wait for this kind."""
        return not self._list_of(spec) or spec.key in self._there

    def want(self, command: Waiting, find: Find) -> None:
        """Begin to fetch what a launch waits for; `take_done` returns the command when it is there."""
        key = command.spec.key
        if key not in self._wishes:
            wish = self._wishes[key] = self._wish(command, find)
            self._begin(wish)

    def drop(self, keys: Iterable[AttemptKey]) -> None:
        """Forget these launches."""
        for key in keys:
            self._wishes.pop(key, None)
            self._there.discard(key)

    def take(self, piece: Piece) -> None:
        """Take a piece, or the answer that the master does not have it."""
        for wish in list(self._wishes.values()):
            if piece.digest not in wish.left or piece.digest in wish.came:
                continue
            wish.asked.pop(piece.digest, None)
            wish.came.add(piece.digest)
            if piece.data is None:
                self._done.put((wish, Problem(self.gone, "request"), None))
            elif not self._store(wish, piece.digest, piece.data):
                self._done.put((wish, Problem(TOO_MUCH, "job"), None))
            self._ask(wish)

    def ask_again(self, *, all_of_them: bool) -> None:
        """Ask again for what did not come: all of it on a new connection, else what was requested long
        ago.
        """
        for wish in self._wishes.values():
            wish.forget_unanswered(all_of_them=all_of_them)
            self._ask(wish)

    def take_done(self) -> list[tuple[Waiting, Problem | None]]:
        """Return the launches whose files are complete, and those that failed, with why."""
        done: list[tuple[Waiting, Problem | None]] = []
        while True:
            try:
                wish, problem, result = self._done.get_nowait()
            except Empty:
                return done
            if self._wishes.get(wish.key) is not wish or (problem is None and not self._go_on(wish, result)):
                continue
            del self._wishes[wish.key]
            if problem is None:
                self._there.add(wish.key)
            done.append((wish.command, problem))

    def _ask(self, wish: W) -> None:
        if (question := wish.ask(self.window - len(wish.asked) - len(wish.came))) is not None:
            self._send(question)

    def _guarded(self, wish: W, work: Callable[..., object], *arguments: object) -> None:
        """Do a step in another thread, and pass its result to the loop."""
        try:
            self._done.put((wish, None, work(*arguments)))
        except (OSError, MgpuError) as error:
            self._done.put((wish, problem_of(self.failed, error), None))
        self._wake()

    # --- what differs between the kinds ----------------------------------------------------------------

    def _list_of(self, spec: LaunchSpec) -> str:
        """Return the digest of the list of pieces, or an empty string."""
        raise NotImplementedError

    def _wish(self, command: Waiting, find: Find) -> W:
        raise NotImplementedError

    def _begin(self, wish: W) -> None:
        """Take the first step."""
        raise NotImplementedError

    def _store(self, wish: W, digest: str, data: memoryview) -> bool:
        """Have a piece verified and written; tell whether there was room in the queue."""
        raise NotImplementedError

    def _go_on(self, wish: W, result: object) -> bool:
        """Take the next step after this result; tell whether all is there."""
        raise NotImplementedError


class FolderWish(PiecesWish):
    """A folder that a launch waits for."""

    def __init__(self, command: Waiting, find: Find) -> None:
        super().__init__(command, command.spec.folder, find)
        self.folder: Folder | None = None
        self.is_laid_out = False
        """Whether laying out was begun: only once, because the job may already run there."""


class FolderFetcher(Fetcher[FolderWish]):
    """All folders that jobs of one node wait for."""

    window = 8
    gone = "The master does not have all of the job's folder (any more): send it again with --sync."
    failed = "The job's folder could not be laid out"

    def __init__(
        self,
        directory: Path,
        send: Callable[[FetchPieces], None],
        wake: Callable[[], None],
        users: UserFiles,
        cap_bytes: int = DEFAULT_CAP_BYTES,
    ) -> None:
        super().__init__(send, wake, users)
        self._cache = PieceCache(directory / "pieces", cap_bytes)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="mgpu-folders")

    def close(self) -> None:
        """End the thread."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _list_of(self, spec: LaunchSpec) -> str:
        return spec.folder

    def _wish(self, command: Waiting, find: Find) -> FolderWish:
        return FolderWish(command, find)

    def _begin(self, wish: FolderWish) -> None:
        self._worker.submit(self._guarded, wish, self._survey, wish.command.spec)

    def _store(self, wish: FolderWish, digest: str, data: memoryview) -> bool:
        self._worker.submit(self._guarded, wish, self._keep, digest, data)
        return True

    def _go_on(self, wish: FolderWish, result: object) -> bool:
        if isinstance(result, str):
            wish.left.pop(result, None)
            wish.came.discard(result)
        elif isinstance(result, tuple):
            wish.folder, wish.left = result[0], dict.fromkeys(result[1])
        else:
            return True
        if wish.left:
            self._ask(wish)
        elif wish.folder is None:
            self._begin(wish)
        elif not wish.is_laid_out:
            wish.is_laid_out = True
            spec = wish.command.spec
            if not self._users.submit(
                spec.user, lambda ask: self._guarded(wish, self._lay_out, ask, wish.folder, spec, wish.find)
            ):
                self._done.put((wish, Problem(TOO_MUCH, "job"), None))
        return False

    # --- on threads ----------------------------------------------------------------------------------

    def _survey(self, spec: LaunchSpec) -> tuple[Folder | None, list[str]]:
        """Return the folder and its missing pieces; without its list, only that."""
        data = self._cache.read(spec.folder)
        if data is None:
            return None, [spec.folder]
        folder = decode_folder(data)
        limit = spec.folder_limit_bytes or FOLDER_LIMIT_BYTES
        if folder.size > limit:
            raise InvalidRequest("folder-too-large", f"it has {folder.size} bytes, and {limit} are allowed")
        return folder, [digest for digest in folder.pieces if not self._cache.touch(digest)]

    def _keep(self, digest: str, data: memoryview) -> str:
        verify(data, digest)
        self._cache.keep(digest, data)
        return digest

    def _lay_out(self, ask: Ask, folder: Folder, spec: LaunchSpec, find: Find) -> None:
        """Have all files written as their user; pieces stay in the cache, which only the agent can read."""
        path, account = find(spec)
        place = str(path)
        ask(account, ClearFolder(place=place))
        batch: list[FolderPart] = []
        size = 0
        for part in self._cache.parts(folder):
            batch.append(part)
            size += len(part.data)
            if size >= BATCH_BYTES or len(batch) >= BATCH_PARTS:
                ask(account, LayOut(place=place, parts=tuple(batch)))
                batch, size = [], 0
        ask(account, LayOut(place=place, parts=tuple(batch)))


class VariablesWish(PiecesWish):
    """Variables that a launch waits for."""

    def __init__(self, command: Waiting, find: Find) -> None:
        super().__init__(command, command.spec.inputs, find)
        self.path = ""
        self.account: Account | None = None
        self.size = self.piece_bytes = 0
        self.offsets: dict[str, list[int]] = {}
        """The offsets of each piece; empty until the list is here."""


class VariablesFetcher(Fetcher[VariablesWish]):
    """All variables that jobs of one node wait for."""

    window = 3
    gone = "The master does not have all of the job's variables (any more): run the cell again."
    failed = "The job's variables could not be put in place"

    def _list_of(self, spec: LaunchSpec) -> str:
        return spec.inputs

    def _wish(self, command: Waiting, find: Find) -> VariablesWish:
        return VariablesWish(command, find)

    def _begin(self, wish: VariablesWish) -> None:
        self._ask(wish)

    def _store(self, wish: VariablesWish, digest: str, data: memoryview) -> bool:
        # Two threads hash faster than one; jobs that need a helper have one thread.
        number = int(digest[:2], 16) % THREADS if wish.account is None and wish.path else 0
        lane = f"{wish.command.spec.user} {number}" if number else wish.command.spec.user
        return self._users.submit(
            lane, lambda ask: self._guarded(wish, self._put_in_place, ask, wish, digest, data)
        )

    def _go_on(self, wish: VariablesWish, result: object) -> bool:
        digest = str(result)
        wish.left.pop(digest, None)
        wish.came.discard(digest)
        if digest == wish.command.spec.inputs:
            wish.left.update(dict.fromkeys(wish.offsets))
        self._ask(wish)
        return not wish.left

    # --- on the threads ------------------------------------------------------------------------------

    def _put_in_place(self, ask: Ask, wish: VariablesWish, digest: str, data: memoryview) -> str:
        verify(data, digest)
        if not wish.path:
            self._make_file(ask, wish, data)
        else:
            self._write(ask, wish, digest, data)
        reach("agent.input")
        return digest

    def _make_file(self, ask: Ask, wish: VariablesWish, data: memoryview) -> None:
        """Read the list and make an empty file of the right size."""
        entry = values_of(decode_folder(data))
        limit = wish.command.spec.folder_limit_bytes
        if limit and entry.size > limit:
            raise FileTrouble(f"they have {entry.size} bytes, and {limit} are allowed", "request")
        place, wish.account = wish.find(wish.command.spec)
        path = str(place / VARIABLES_NAME)
        ask(wish.account, BeginValues(path=path, size=entry.size))
        wish.size, wish.piece_bytes = entry.size, entry.piece_bytes
        for number, digest in enumerate(entry.pieces):
            wish.offsets.setdefault(digest, []).append(number * entry.piece_bytes)
        wish.path = path

    def _write(self, ask: Ask, wish: VariablesWish, digest: str, data: memoryview) -> None:
        offsets = wish.offsets[digest]
        if any(len(data) != min(wish.piece_bytes, wish.size - offset) for offset in offsets):
            raise FileTrouble("they have other content than their size says", "request")
        content: Any = data  # msgpack takes it as bytes
        ask(wish.account, WriteValues(path=wish.path, offsets=tuple(offsets), data=content))
