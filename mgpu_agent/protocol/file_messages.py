"""Messages about files of jobs: pieces of folders to nodes, results back. Part of the unions in
`messages`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.bounds import FILES, SEVERAL, Line, Name, Part
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.model import (
    ResultFile,
)


class Piece(msgspec.Struct, frozen=True, kw_only=True, tag="piece"):
    """A piece of a folder, as it was asked for."""

    digest: str
    data: memoryview | None = None
    """None if the master does not have it. A received one is a view of the frame: large, and never copied."""


class CollectResult(msgspec.Struct, frozen=True, kw_only=True, tag="collect_result"):
    """Send this part of the file with this number in `FoundResults`."""

    key: AttemptKey
    number: int
    offset: int
    size: int


class FetchPieces(msgspec.Struct, frozen=True, kw_only=True, tag="fetch_pieces"):
    """Send these pieces of the folder of this attempt, or say that they are missing."""

    key: AttemptKey
    digests: Annotated[tuple[Name, ...], Meta(max_length=SEVERAL)]


class FoundResults(msgspec.Struct, frozen=True, kw_only=True, tag="found_results"):
    """All of this attempt on this node has ended, and these files can be collected. Sent on each connection
    until forgotten.
    """

    key: AttemptKey
    files: Annotated[tuple[ResultFile, ...], Meta(max_length=FILES)] = ()
    problems: Annotated[tuple[Line, ...], Meta(max_length=SEVERAL)] = ()
    """Files that match a pattern and could not be read."""


class ResultChunk(msgspec.Struct, frozen=True, kw_only=True, tag="result_chunk"):
    """A part of a file, as it was asked for."""

    key: AttemptKey
    number: int
    offset: int
    data: Part
    """A received one is a view of the frame."""
    problem: Line = ""
    """Why it cannot be read any more."""
