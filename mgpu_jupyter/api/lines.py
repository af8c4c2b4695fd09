"""Bodies about a line that is to be read, as a form shows it. Values only."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_jupyter.model.job import MAX_SCRIPT_CHARS, JobSpec

MAX_LINE_CHARS = 20_000  # more than people type belongs into a script


class LineRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line as somebody typed it or a form shows it, and what stands below it."""

    line: Annotated[str, Meta(max_length=MAX_LINE_CHARS)]
    """What stands behind `mgpu_srun`; the program or magic itself may stand before it."""
    cell: Annotated[str, Meta(max_length=MAX_SCRIPT_CHARS)] | None = None
    """The body of a cell, in place of a command."""


class LineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the line asks for. Nothing was submitted."""

    spec: JobSpec
    inputs: tuple[str, ...] = ()
    """Variables of a notebook that the cell is to be given: only its kernel has them."""
    background: bool = False
    """Whether it returns at once."""
