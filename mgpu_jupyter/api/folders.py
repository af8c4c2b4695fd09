"""Bodies about folders that travel with jobs. Values only."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.folders import DIGEST_PATTERN

MAX_DIGESTS = 10_000
MAX_PIECES = 1_000
MAX_SENT_BYTES = 9 * 1024 * 1024
"""In one request, before it is written as text; the list of a folder is at most so long."""

RAW = "application/octet-stream"
"""The type of a body that is one piece as it is."""

Digest = Annotated[str, Meta(pattern=DIGEST_PATTERN)]


class Nearby(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of the server. A program that finds this very one, by device and inode, need not have its bytes sent."""

    path: str
    device: int
    inode: int


class Digests(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of pieces: SHA-256 in hexadecimal."""

    digests: Annotated[tuple[Digest, ...], Meta(max_length=MAX_DIGESTS)]


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Which of them you have not sent yet."""

    missing: tuple[str, ...]
    tray: Nearby | None = None
    """A directory of the server, told to its own user: a piece that lies there under its digest is taken at the next question for it."""


class Pieces(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of files, and the list of a folder, in base64; the answer names each by its digest."""

    pieces: Annotated[tuple[bytes, ...], Meta(min_length=1, max_length=MAX_PIECES)]
