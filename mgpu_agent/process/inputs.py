"""Variables that came with jobs: their file is fetched in pieces, each verified, and written where the job maps it.

Asks for a few pieces at a time. Hashing and writing happen on threads of its own, so that the agent's loop goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue

from mgpu_agent.process.wishes import Waiting, Wish, verify
from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.folders import decode_folder, values_of
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import FetchPieces, Piece
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_agent.run_as.account import Account

WINDOW = 3
THREADS = 2
NAME = "in"
GONE = "The master does not have all of the job's variables (any more): run the cell again."


class _Wish(Wish):
    """Variables that a launch waits for."""

    def __init__(self, command: Waiting, place: Path, account: Account | None) -> None:
        super().__init__(command, place, account, command.spec.inputs)
        self.descriptor = -1
        self.offsets: dict[str, list[int]] = {}
        """Where each piece belongs; empty until the list is here."""

    def __del__(self) -> None:
        # Not before the last thread that writes is done with it.
        if self.descriptor >= 0:
            os.close(self.descriptor)


class Inputs:
    """All variables that jobs of one node wait for. `send` takes what is said to the master, `wake` ends a wait of the agent's loop."""

    def __init__(self, send: Callable[[FetchPieces], None], wake: Callable[[], None]) -> None:
        self._send = send
        self._wake = wake
        self._wishes: dict[AttemptKey, _Wish] = {}
        self._there: set[AttemptKey] = set()
        self._done: SimpleQueue[tuple[_Wish, str, str]] = SimpleQueue()
        self._worker = ThreadPoolExecutor(THREADS, thread_name_prefix="mgpu-inputs")

    def has(self, spec: LaunchSpec) -> bool:
        """Tell whether a launch need not wait for its variables."""
        return not spec.inputs or spec.key in self._there

    def want(self, command: Waiting, place: Path, account: Account | None) -> None:
        """Begin to write the variables of a launch into this directory; `take_done` brings the command back when they are there."""
        key = command.spec.key
        if key not in self._wishes:
            self._wishes[key] = _Wish(command, place, account)
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
                self._done.put((wish, piece.digest, GONE))
            else:
                self._worker.submit(self._guarded, wish, piece.digest, piece.data)
            self._ask(wish)

    def ask_again(self, *, all_of_them: bool) -> None:
        """Ask for what did not come: all of it on a new connection, else what was asked for long ago."""
        for wish in self._wishes.values():
            wish.forget_unanswered(all_of_them=all_of_them)
            self._ask(wish)

    def take_done(self) -> list[tuple[Waiting, str]]:
        """Return the launches whose variables are there, or why they are not."""
        done: list[tuple[Waiting, str]] = []
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
            done.append((wish.command, problem or self._finish(wish)))

    def close(self) -> None:
        """End the threads."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _ask(self, wish: _Wish) -> None:
        if (question := wish.ask(WINDOW - len(wish.asked) - len(wish.came))) is not None:
            self._send(question)

    def _finish(self, wish: _Wish) -> str:
        try:
            if wish.account is not None:
                os.fchown(wish.descriptor, wish.account.uid, wish.account.gid)
        except OSError as error:
            return f"The job's variables could not be put in place: {error}."
        self._there.add(wish.key)
        return ""

    # --- on the threads ------------------------------------------------------------------------------

    def _guarded(self, wish: _Wish, digest: str, data: memoryview) -> None:
        problem = ""
        try:
            verify(data, digest)
            if wish.descriptor < 0:
                self._begin(wish, data)
            else:
                for offset in wish.offsets[digest]:
                    _write(wish.descriptor, data, offset)
            reach("agent.input")
        except (OSError, MgpuError) as error:
            problem = f"The job's variables could not be put in place: {error}."
        self._done.put((wish, digest, problem))
        self._wake()

    def _begin(self, wish: _Wish, data: memoryview) -> None:
        """Read the list and make an empty file of the right size."""
        entry = values_of(decode_folder(data))
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        wish.descriptor = os.open(wish.place / NAME, flags, 0o600)
        os.truncate(wish.descriptor, entry.size)
        for number, digest in enumerate(entry.pieces):
            wish.offsets.setdefault(digest, []).append(number * entry.piece_bytes)


def _write(descriptor: int, view: memoryview, offset: int) -> None:
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
