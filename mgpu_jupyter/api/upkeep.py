"""Bodies about keeping a master tidy. Values only."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class PurgeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs that are over are to be forgotten, with their output."""

    older_than_s: Annotated[float, Meta(ge=0, le=100 * 365 * 86_400)] = 30 * 86_400.0
    """Only those that ended so long ago."""
    user: Annotated[str, Meta(max_length=200)] | None = None
    """Whose; your own if it is left out. Others' are for administrators."""
    everybody: bool = False
    """Those of all users; for administrators."""
    dry_run: bool = False
    """Only count them."""


class PurgeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was forgotten, or would be."""

    jobs: int
    output_bytes: int
    """How much space their output took."""
    dry_run: bool = False


class ReplaceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be otherwise about a job that waits."""

    patch: dict[str, Any]
    """Fields of the request to set, as an offer of `explain` names them; null takes one out."""
