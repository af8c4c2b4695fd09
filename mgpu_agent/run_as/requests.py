"""What root asks of the helper of an account, and what that answers. Values only.

The first message says who to become. Each request has a number, under which it is answered; ends of processes are told as they come.
"""

from __future__ import annotations

import msgspec

from mgpu_agent.run_as.account import Account, Confinement
from mgpu_agent.run_as.file_requests import FileWork


class Become(msgspec.Struct, frozen=True, kw_only=True, tag="become"):
    """Be this account from now on, bound like this, and never anybody else again."""

    account: Account
    confinement: Confinement


class Spawn(msgspec.Struct, frozen=True, kw_only=True, tag="spawn"):
    """Start this in its directory. Two descriptors go along, for what it writes; a third one if it reads a pipe; none for a terminal."""

    number: int
    group: int
    """After a failure nothing more of the same group is started."""
    argv: tuple[bytes, ...]
    env: dict[bytes, bytes]
    cwd: str
    or_root: bool = False
    """Whether it starts in `/` where the directory cannot be entered."""
    pipe: bool = False
    terminal: str = ""
    """Its whole terminal, by its path."""
    groups: int = 0
    """So many control groups hold it: for each go two descriptors more, to enter it and to go back."""

    @property
    def descriptors(self) -> int:
        """How many descriptors go along."""
        return (0 if self.terminal else 2 + self.pipe) + 2 * self.groups


class Ping(msgspec.Struct, frozen=True, kw_only=True, tag="ping"):
    """Are you there?"""

    number: int


Request = Become | Spawn | Ping | FileWork


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """I am that account now."""


class Pong(msgspec.Struct, frozen=True, kw_only=True, tag="pong"):
    """I am."""

    number: int


class Spawned(msgspec.Struct, frozen=True, kw_only=True, tag="spawned"):
    """It runs."""

    number: int
    pid: int


class NotSpawned(msgspec.Struct, frozen=True, kw_only=True, tag="not-spawned"):
    """It does not, and never will."""

    number: int
    code: str
    message: str
    fault: str
    exit_code: int | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """A process that was started here is over; `status` is as `waitpid` gave it."""

    pid: int
    status: int


Answer = Ready | Pong | Spawned | NotSpawned | Ended

request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
answer_decoder: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
