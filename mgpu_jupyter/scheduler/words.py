"""Small pieces of sentences: numbers with nouns, lists that end in time, the nearest known name, times for people. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

NAMED = 4  # more names make a sentence that nobody reads


def count(number: int, noun: str) -> str:
    """Return `1 GPU` or `2 GPUs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def several(words: Sequence[str], total: int | None = None) -> str:
    """Return the first few and how many more there are; of `total`, when only the first few are given."""
    rest = (len(words) if total is None else total) - NAMED
    shown = ", ".join(words[:NAMED])
    return f"{shown} and {rest} more" if rest > 0 else shown


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean x?)` when something known is near, else nothing."""
    near = difflib.get_close_matches(word, list(known), 1, 0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def gib(number: int) -> str:
    """Return bytes as GiB."""
    return f"{number / (1 << 30):.3g} GiB"


def span(seconds: float) -> str:
    """Return a time span in the unit that reads best."""
    for unit, name in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{max(0.0, seconds):.0f} s"
