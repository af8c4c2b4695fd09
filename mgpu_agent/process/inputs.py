"""Variables that came with jobs: their file is fetched in pieces, each verified, and written where the job maps it.

Asks for a few pieces at a time. Hashing and writing happen on the thread of the job's user and as that user, so that neither the agent's
loop nor anybody else waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from mgpu_agent.process.wishes import TOO_MUCH, Problem, Waiting, Wish, problem_of, verify
from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.folders import decode_folder, values_of
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import FetchPieces, Piece
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_agent.run_as.account import Account
from mgpu_agent.run_as.file_requests import BeginValues, WriteValues
from mgpu_agent.run_as.user_files import Ask, Trouble, UserFiles

WINDOW = 3
THREADS = 2
NAME = "in"
GONE = "The master does not have all of the job's variables (any more): run the cell again."


Find = Callable[[LaunchSpec], tuple[Path, Account | None]]
"""Makes the directory of a launch's variables, and says for whom."""


class _Wish(Wish):
    """Variables that a launch waits for."""

    def __init__(self, command: Waiting, find: Find) -> None:
        super().__init__(command, command.spec.inputs)
        self.find = find
        self.path = ""
        self.account: Account | None = None
        self.size = self.piece_bytes = 0
        self.offsets: dict[str, list[int]] = {}
        """Where each piece belongs; empty until the list is here."""


class Inputs:
    """All variables that jobs of one node wait for. `send` takes what is said to the master, `wake` ends a wait of the agent's loop."""

    def __init__(self, send: Callable[[FetchPieces], None], wake: Callable[[], None], users: UserFiles) -> None:
        self._send = send
        self._wake = wake
        self._wishes: dict[AttemptKey, _Wish] = {}
        self._there: set[AttemptKey] = set()
        self._done: SimpleQueue[tuple[_Wish, str, Problem | None]] = SimpleQueue()
        self._users = users

    def has(self, spec: LaunchSpec) -> bool:
        """Tell whether a launch need not wait for its variables."""
        return not spec.inputs or spec.key in self._there

    def want(self, command: Waiting, find: Find) -> None:
        """Begin to have the variables of a launch written; `take_done` brings the command back when they are there."""
        key = command.spec.key
        if key not in self._wishes:
            self._wishes[key] = _Wish(command, find)
            self._ask(self._wishes[key])

    def drop(self, keys: Iterable[AttemptKey]) -> None:
        """Want these no more."""
        for key in keys:
            self._wishes.pop(key, None)
            self._there.discard(key)

    def take(self, piece: Piece) -> None:
        """Take in a piece, or that the master does not have it."""
        for wish in list(self._wishes.values()):
            if piece.digest not in wish.left or piece.digest in wish.came:
                continue
            wish.asked.pop(piece.digest, None)
            wish.came.add(piece.digest)
            if piece.data is None:
                self._done.put((wish, piece.digest, Problem(GONE, "request")))
            elif not self._submit(wish, piece.digest, piece.data):
                self._done.put((wish, piece.digest, Problem(TOO_MUCH, "job")))
            self._ask(wish)

    def ask_again(self, *, all_of_them: bool) -> None:
        """Ask for what did not come: all of it on a new connection, else what was asked for long ago."""
        for wish in self._wishes.values():
            wish.forget_unanswered(all_of_them=all_of_them)
            self._ask(wish)

    def take_done(self) -> list[tuple[Waiting, Problem | None]]:
        """Return the launches whose variables are there, or why they are not."""
        done: list[tuple[Waiting, Problem | None]] = []
        while True:
            try:
                wish, digest, problem = self._done.get_nowait()
            except Empty:
                return done
            if self._wishes.get(wish.key) is not wish:
                continue
            wish.left.pop(digest, None)
            wish.came.discard(digest)
            if digest == wish.command.spec.inputs and not problem:
                wish.left.update(dict.fromkeys(wish.offsets))
            if wish.left and not problem:
                self._ask(wish)
                continue
            del self._wishes[wish.key]
            if problem is None:
                self._there.add(wish.key)
            done.append((wish.command, problem))

    def _submit(self, wish: _Wish, digest: str, data: memoryview) -> bool:
        # Two threads hash faster than one; who needs a helper for each has one.
        number = int(digest[:2], 16) % THREADS if wish.account is None and wish.path else 0
        lane = f"{wish.command.spec.user} {number}" if number else wish.command.spec.user
        return self._users.submit(lane, lambda ask: self._guarded(ask, wish, digest, data))

    def _ask(self, wish: _Wish) -> None:
        if (question := wish.ask(WINDOW - len(wish.asked) - len(wish.came))) is not None:
            self._send(question)

    # --- on the threads ------------------------------------------------------------------------------

    def _guarded(self, ask: Ask, wish: _Wish, digest: str, data: memoryview) -> None:
        problem = None
        try:
            verify(data, digest)
            if not wish.path:
                self._begin(ask, wish, data)
            else:
                self._write(ask, wish, digest, data)
            reach("agent.input")
        except (OSError, MgpuError) as error:
            problem = problem_of("The job's variables could not be put in place", error)
        self._done.put((wish, digest, problem))
        self._wake()

    def _begin(self, ask: Ask, wish: _Wish, data: memoryview) -> None:
        """Read the list and make an empty file of the right size."""
        entry = values_of(decode_folder(data))
        limit = wish.command.spec.folder_limit_bytes
        if limit and entry.size > limit:
            raise Trouble(f"they have {entry.size} bytes, and {limit} are allowed", "request")
        place, wish.account = wish.find(wish.command.spec)
        path = str(place / NAME)
        ask(wish.account, BeginValues(path=path, size=entry.size))
        wish.size, wish.piece_bytes = entry.size, entry.piece_bytes
        for number, digest in enumerate(entry.pieces):
            wish.offsets.setdefault(digest, []).append(number * entry.piece_bytes)
        wish.path = path

    def _write(self, ask: Ask, wish: _Wish, digest: str, data: memoryview) -> None:
        offsets = wish.offsets[digest]
        if any(len(data) != min(wish.piece_bytes, wish.size - offset) for offset in offsets):
            raise Trouble("they have other content than their size says", "request")
        content: Any = data  # bytes, as msgpack sees it
        ask(wish.account, WriteValues(path=wish.path, offsets=tuple(offsets), data=content))
