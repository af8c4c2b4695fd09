"""What people send to a running job over its WebSocket, and how they hear that it was read. Values only."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_jupyter.model.job import TerminalSize

_MAX_NUMBER = 2**53
MAX_INPUT_BYTES = 64 * 1024
"""In one frame."""
INPUT_WINDOW_BYTES = 128 * 1024
"""How far a sender may be ahead of what the job has read."""
WRITER_PATTERN = r"^[A-Za-z0-9]{8,40}$(?!\n)"
"""A name that a sender makes up, by which it goes on after a break."""


class StdinAckFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="stdin_ack", omit_defaults=True):
    """The job has read what you sent up to `offset`; the first one says that it runs and takes input."""

    offset: int
    attempt: int = 1
    again: bool = False
    """Something was lost on the way: send again from `offset` on."""
    closed: bool = False
    """Nothing more is taken."""


class StdinFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="stdin", omit_defaults=True, forbid_unknown_fields=True):
    """Bytes (base64 in JSON) for the job's stdin, from `offset` on of all that you sent to this attempt."""

    offset: Annotated[int, Meta(ge=0, le=_MAX_NUMBER)]
    attempt: Annotated[int, Meta(ge=0, le=_MAX_NUMBER)] = 1
    data: bytes = b""
    eof: bool = False
    """Nothing follows: the job's stdin ends."""


class ResizeFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="resize", forbid_unknown_fields=True):
    """Your terminal has this size now."""

    rows: TerminalSize
    columns: TerminalSize


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """What one writer sends to one attempt."""

    writer: str
    attempt: int
    offset: int = 0
    data: bytes = b""
    eof: bool = False
