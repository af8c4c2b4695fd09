"""Requests to the helper of an account, and its answers. Values only.

The first message names the account. Each request has a number, which its answer repeats; ends of processes
are reported as they come. Work on files is carried out by `file_work`: in the helper of an account, or in the
agent itself where jobs run as its own user.
"""

from __future__ import annotations

import msgspec

from mgpu_agent.run_as.account import Account, Confinement


class LookAround(msgspec.Struct, frozen=True, kw_only=True, tag="look-around"):
    """Find out what a launch will find, and write its cell into the file made for it."""

    directory: str | None = None
    """The directory that it asks for."""
    script: str = ""
    """The path of its cell, empty for none."""
    source: str = ""
    needs_python: bool = False
    python: str | None = None
    """The interpreter that was asked for by name."""
    kernel: str | None = None
    kernel_version: str | None = None
    search: str = ""
    """The PATH in which names of interpreters are looked up."""


class FoundAround(msgspec.Struct, frozen=True, kw_only=True, tag="around"):
    """What a launch will find."""

    is_open: bool = False
    """Whether the directory can be entered."""
    python: str = ""
    version: str = ""
    """`major.minor`, as far as files tell."""
    problem: str = ""
    """Why there is no such interpreter."""


class Compare(msgspec.Struct, frozen=True, kw_only=True, tag="compare"):
    """Find out which Python and torch the processes of a launch will find."""

    argv: tuple[str, ...] = ()
    is_cell: bool = False
    wished: str = ""
    search: str = ""


class Versions(msgspec.Struct, frozen=True, kw_only=True, tag="versions"):
    """The versions; empty where files do not tell."""

    python: str = ""
    torch: str = ""


class FolderPart(msgspec.Struct, frozen=True, array_like=True):
    """One entry of a folder, or a part of one file."""

    path: str
    kind: str
    mode: int
    modified_ns: int
    target: str = ""
    offset: int = 0
    data: bytes = b""
    is_last: bool = True


class ClearFolder(msgspec.Struct, frozen=True, kw_only=True, tag="clear-folder"):
    """Delete the content of a directory, but nothing on another file system."""

    place: str


class LayOut(msgspec.Struct, frozen=True, kw_only=True, tag="lay-out"):
    """Write these parts of a folder; modes and times of directories come last."""

    place: str
    parts: tuple[FolderPart, ...]


class BeginValues(msgspec.Struct, frozen=True, kw_only=True, tag="begin-values"):
    """Make an empty file of variables."""

    path: str
    size: int


class WriteValues(msgspec.Struct, frozen=True, kw_only=True, tag="write-values"):
    """Write one piece of variables to its offsets."""

    path: str
    offsets: tuple[int, ...]
    data: bytes


class FindResults(msgspec.Struct, frozen=True, kw_only=True, tag="find-results"):
    """List and hash the files that match patterns, and the variables that ranks left."""

    root: str
    patterns: tuple[str, ...]
    uid: int
    """The account that must own them; -1 for any."""
    values: str = ""
    limit_bytes: int = 0
    """The most bytes to collect."""


class FoundFile(msgspec.Struct, frozen=True, array_like=True):
    """One file that was found."""

    path: str
    size: int
    sha256: str
    mode: int
    rank: int = -1


class Found(msgspec.Struct, frozen=True, kw_only=True, tag="found"):
    """The files, and what was left out and why."""

    files: tuple[FoundFile, ...] = ()
    problems: tuple[str, ...] = ()


class ReadResult(msgspec.Struct, frozen=True, kw_only=True, tag="read-result"):
    """Read a part of a file that was found."""

    root: str
    path: str
    uid: int
    offset: int
    size: int


class Content(msgspec.Struct, frozen=True, kw_only=True, tag="content"):
    """Bytes of a file."""

    data: bytes


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The request was carried out."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The request failed, and why."""

    why: str


class Working(msgspec.Struct, frozen=True, kw_only=True, tag="working"):
    """The request is still being carried out."""


FileTask = LookAround | Compare | ClearFolder | LayOut | BeginValues | WriteValues | FindResults | ReadResult
FileAnswer = FoundAround | Versions | Found | Content | Done | Failed


class FileWork(msgspec.Struct, frozen=True, kw_only=True, tag="file-work"):
    """Carry out this task, and answer once; `Working` may come before the answer any number of times."""

    task: FileTask


class Become(msgspec.Struct, frozen=True, kw_only=True, tag="become"):
    """Become this account for good, with these limits."""

    account: Account
    confinement: Confinement


class Spawn(msgspec.Struct, frozen=True, kw_only=True, tag="spawn"):
    """Start this in its directory. Two descriptors are passed along for its output; a third if it reads a
    pipe; none for a terminal.
    """

    number: int
    group: int
    """After a failure no other process of the same group is started."""
    argv: tuple[bytes, ...]
    env: dict[bytes, bytes]
    cwd: str
    or_root: bool = False
    """Whether it starts in `/` where the directory cannot be entered."""
    pipe: bool = False
    terminal: str = ""
    """The path of its terminal."""
    groups: int = 0
    """The number of its control groups: for each, two more descriptors to enter it and to go back."""

    @property
    def descriptors(self) -> int:
        """How many descriptors are passed along."""
        return (0 if self.terminal else 2 + self.pipe) + 2 * self.groups


class HelperPing(msgspec.Struct, frozen=True, kw_only=True, tag="ping"):
    """Ask whether the helper is there."""

    number: int


Request = Become | Spawn | HelperPing | FileWork


class HelperReady(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The helper has become the account."""


class HelperPong(msgspec.Struct, frozen=True, kw_only=True, tag="pong"):
    """The helper is there."""

    number: int


class Spawned(msgspec.Struct, frozen=True, kw_only=True, tag="spawned"):
    """The process runs."""

    number: int
    pid: int


class NotSpawned(msgspec.Struct, frozen=True, kw_only=True, tag="not-spawned"):
    """The process was not started and never will be."""

    number: int
    code: str
    message: str
    fault: str
    exit_code: int | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """A process that the helper started has ended; `status` is that of `waitpid`."""

    pid: int
    status: int


Answer = HelperReady | HelperPong | Spawned | NotSpawned | Ended

request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
answer_decoder: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
