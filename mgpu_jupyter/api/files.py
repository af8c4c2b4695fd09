"""Bodies about files of jobs: folders and variables that are sent with them, and results. Values only."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.folders import DIGEST_PATTERN
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.model.job import JobState

MAX_DIGESTS = 10_000
MAX_PIECES = 1_000
MAX_SENT_BYTES = 9 * 1024 * 1024
"""In one request, before encoding as text; the list of a folder has at most this size."""

RAW = "application/octet-stream"
"""The type of a body that is one raw piece."""

Digest = Annotated[str, Meta(pattern=DIGEST_PATTERN)]


class Nearby(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of the server. A program that finds it on its own machine, by device and inode,
    need not transfer its bytes.
    """

    path: str
    device: int
    inode: int


class Digests(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of pieces: SHA-256 in hexadecimal."""

    digests: Annotated[tuple[Digest, ...], Meta(max_length=MAX_DIGESTS)]


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Which of them the server does not have from you."""

    missing: tuple[str, ...]
    tray: Nearby | None = None
    """A directory of the server, for its own user: a piece that is put there under its digest is taken at the
    next request about it.
    """


class Pieces(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of files, and the list of a folder, in base64; the answer names each by its digest."""

    pieces: Annotated[tuple[bytes, ...], Meta(min_length=1, max_length=MAX_PIECES)]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One file."""

    node: NodeId
    number: int
    path: str
    """Its path in the job, relative to the job's directory."""
    size: int
    sha256: str
    mode: int
    problem: str = ""
    """Why it is missing; empty when it is here and verified."""
    tries: int = 1
    """How often it was fetched until it was complete."""


class ResultList(msgspec.Struct, frozen=True, kw_only=True):
    """All files of the newest attempt."""

    job_id: JobId
    attempt: int
    complete: bool
    """True when nothing more is to come."""
    files: tuple[Result, ...] = ()
    problems: tuple[str, ...] = ()
    """Files that match a pattern and could not be read on their node."""


MAX_WAIT_S = 2  # to wait longer, ask again: no proxy and no client gives up that soon
Path = Annotated[str, Meta(pattern=r"^[^\x00]+$(?!\n)", max_length=4096)]


class ValueFile(msgspec.Struct, frozen=True, kw_only=True):
    """The variables of one rank, as one file: `GET jobs/{id}/result` returns it."""

    rank: int
    node: NodeId
    number: int
    size: int
    sha256: str
    problem: str = ""
    """Why it is missing; empty when it is here and verified."""
    near: Nearby | None = None
    """Where it is on the server's machine, for the server's own user there."""


class ValueList(msgspec.Struct, frozen=True, kw_only=True):
    """The variables that the newest attempt of a job returned."""

    job_id: JobId
    attempt: int
    state: JobState
    outputs: tuple[str, ...]
    """The names that it was asked for."""
    ranks: int
    complete: bool
    """True when nothing more is to come."""
    files: tuple[ValueFile, ...] = ()


class PythonQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which interpreter a cell asks for, as in a request for a job."""

    python: Path | None = None
    kernel_python: Path | None = None
    kernel_python_version: Annotated[str, Meta(pattern=r"^\d+\.\d+$(?!\n)")] | None = None


class NodePython(msgspec.Struct, frozen=True, kw_only=True):
    """The interpreter that a cell would get on a node."""

    node: NodeId
    path: str
    version: str
    """`major.minor`."""


class PythonAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of nodes; those that are away, did not answer soon, or have none are left out."""

    nodes: tuple[NodePython, ...] = ()
