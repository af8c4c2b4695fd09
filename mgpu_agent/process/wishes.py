"""What a launch waits for, in pieces: which are not here, which were asked for and when, which came. Used by the agent's loop alone."""

from __future__ import annotations

import time

import msgspec

from mgpu_agent.core.commands import PrepareLaunch, StartLaunch
from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.folders import digest_of
from mgpu_agent.protocol.messages import FetchPieces
from mgpu_agent.run_as.user_files import Trouble

ASK_AGAIN_S = 30.0

TOO_MUCH = "Too much is to be done with files of this user on this node: wait until other jobs have started."

_OF_THE_LIST = frozenset(("bad-folder", "bad-inputs", "folder-too-large"))

Waiting = StartLaunch | PrepareLaunch


class Problem(msgspec.Struct, frozen=True):
    """Why a launch does not get what it waits for, and whose fault that is."""

    message: str
    fault: str


def problem_of(what: str, error: OSError | MgpuError) -> Problem:
    """Return what an error means: what a user's own files, limits and quota do says nothing about the node."""
    if isinstance(error, MgpuError):
        return Problem(f"{what}: {error.message.removesuffix('.')}.", "request" if error.code in _OF_THE_LIST else "node")
    return Problem(f"{what}: {error}.", error.fault if isinstance(error, Trouble) else "node")


class Wish:
    """Pieces that a launch waits for; the first is the list of the others."""

    def __init__(self, command: Waiting, first: str) -> None:
        self.command = command
        self.key = command.spec.key
        self.left: dict[str, None] = {first: None}
        """Pieces that are not here yet."""
        self.asked: dict[str, float] = {}
        self.came: set[str] = set()
        """Pieces that came and are being written."""

    def ask(self, room: int) -> FetchPieces | None:
        """Return the question for up to `room` pieces more, and note that it was asked."""
        fresh = [digest for digest in self.left if digest not in self.asked and digest not in self.came][: max(room, 0)]
        if not fresh:
            return None
        self.asked.update(dict.fromkeys(fresh, time.monotonic()))
        return FetchPieces(key=self.key, digests=tuple(fresh))

    def forget_unanswered(self, *, all_of_them: bool) -> None:
        """Count as never asked: all that did not come, on a new connection, else what was asked for long ago."""
        for digest in [digest for digest, at in self.asked.items() if all_of_them or time.monotonic() - at >= ASK_AGAIN_S]:
            del self.asked[digest]


def verify(data: memoryview, digest: str) -> None:
    """Raise `OSError` when a piece is not what it is named by."""
    if digest_of(data) != digest:
        raise OSError(f"piece {digest[:12]} arrived with other content")
