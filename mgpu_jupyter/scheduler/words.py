"""Small pieces of sentences: shortened lists, the nearest known name. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

NAMED = 4  # more names make a sentence that nobody reads


def several(words: Sequence[str], total: int | None = None) -> str:
    """Return the first few and how many more there are; of `total`, when only the first few are given."""
    rest = (len(words) if total is None else total) - NAMED
    shown = ", ".join(words[:NAMED])
    return f"{shown} and {rest} more" if rest > 0 else shown


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean x?)` when a known name is similar, else an empty string."""
    near = difflib.get_close_matches(word, list(known), 1, 0.6)
    return f" (did you mean {near[0]}?)" if near else ""
