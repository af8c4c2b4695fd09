"""What is to be done with files for a user, and what came of it. Values only.

Each kind of work is carried out by `file_work`: in the helper of an account, or in the agent itself where jobs run as its own user.
"""

from __future__ import annotations

import msgspec


class LookAround(msgspec.Struct, frozen=True, kw_only=True, tag="look-around"):
    """See what a launch finds, and write its cell into a file that is there for it."""

    directory: str | None = None
    """Where it would like to run."""
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


class Around(msgspec.Struct, frozen=True, kw_only=True, tag="around"):
    """What a launch finds."""

    is_open: bool = False
    """Whether the directory can be entered."""
    python: str = ""
    version: str = ""
    """`major.minor` as far as it can be read off files."""
    problem: str = ""
    """Why there is no such interpreter."""


class Compare(msgspec.Struct, frozen=True, kw_only=True, tag="compare"):
    """Which Python and torch would the processes of a launch find?"""

    argv: tuple[str, ...] = ()
    is_cell: bool = False
    wished: str = ""
    search: str = ""


class Versions(msgspec.Struct, frozen=True, kw_only=True, tag="versions"):
    """What they would find; empty for what cannot be seen."""

    python: str = ""
    torch: str = ""


class Part(msgspec.Struct, frozen=True, array_like=True):
    """One thing in a folder, or a part of a file of it."""

    path: str
    kind: str
    mode: int
    modified_ns: int
    target: str = ""
    offset: int = 0
    data: bytes = b""
    is_last: bool = True


class ClearFolder(msgspec.Struct, frozen=True, kw_only=True, tag="clear-folder"):
    """Delete all that is in a directory, and nothing on another file system."""

    place: str


class LayOut(msgspec.Struct, frozen=True, kw_only=True, tag="lay-out"):
    """Write these things into a folder; what is made of a directory at the end comes last of all."""

    place: str
    parts: tuple[Part, ...]


class BeginValues(msgspec.Struct, frozen=True, kw_only=True, tag="begin-values"):
    """Make an empty file of variables."""

    path: str
    size: int


class WriteValues(msgspec.Struct, frozen=True, kw_only=True, tag="write-values"):
    """Write one piece of variables to where it belongs."""

    path: str
    offsets: tuple[int, ...]
    data: bytes


class FindResults(msgspec.Struct, frozen=True, kw_only=True, tag="find-results"):
    """List and hash the files that patterns mean, and the variables that ranks left."""

    root: str
    patterns: tuple[str, ...]
    uid: int
    """Whose files they must be; -1 for anybody's."""
    values: str = ""
    limit_bytes: int = 0
    """How much is collected at most."""


class FoundFile(msgspec.Struct, frozen=True, array_like=True):
    """One file that was found."""

    path: str
    size: int
    sha256: str
    mode: int
    rank: int = -1


class Found(msgspec.Struct, frozen=True, kw_only=True, tag="found"):
    """What there is, and what is left out and why."""

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
    """It is done, and there is nothing more to say."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """It could not be done, and why."""

    why: str


class Working(msgspec.Struct, frozen=True, kw_only=True, tag="working"):
    """I am still at it."""


FileTask = LookAround | Compare | ClearFolder | LayOut | BeginValues | WriteValues | FindResults | ReadResult
FileAnswer = Around | Versions | Found | Content | Done | Failed


class FileWork(msgspec.Struct, frozen=True, kw_only=True, tag="file-work"):
    """Do this, and answer once; `Working` goes before as often as it takes."""

    task: FileTask
