"""How durations, sizes and numbers of things are worded, for every sentence of agents, masters and clients.

Knows nothing of what it counts. Sizes are in units of 1024 with the names of such units, as GPUs are sold and
`nvidia-smi` counts: nothing else divides bytes for people, and a test looks for it. Pure, and of the standard
library of Python 3.8, because cells load it, too.
"""

from __future__ import annotations

MINUTE, HOUR, DAY = 60, 3600, 86_400
_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_WHOLE = 99.95
"""From here on a number has no fraction."""


def count(number: int, noun: str) -> str:
    """Return `1 GPU` or `2 GPUs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """Return a time span: 34 ms, 3.2 s, 40 s, 2 m 04 s, 1 h 12 m, 3 d 4 h."""
    seconds = max(seconds, 0.0)
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 9.95 else rounded(seconds)


def rounded(seconds: float) -> str:
    """Return a time span in whole seconds, for what is only expected: 3 s, 2 m 04 s, 1 h 12 m, 3 d 4 h."""
    if seconds == float("inf"):
        return "unknown time"
    whole = max(round(seconds), 0)
    if MINUTE <= whole < HOUR:
        return f"{whole // MINUTE} m {whole % MINUTE:02} s"
    return span(whole)


def span(seconds: float) -> str:
    """Return a time in its largest units, for rows that must not tick: 40 s, 42 m, 3 h 04 m, 3 d 4 h."""
    whole = max(int(seconds), 0)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} m"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE:02} m"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def size(number: float) -> str:
    """Return a number of bytes, rounded: 512 B, 1.5 KiB, 412 MiB, 79.6 GiB, 80 GiB."""
    unit, factor = _unit(number)
    return f"{_rounded(number / factor)} {unit}"


def exact(number: int) -> str:
    """Return a number of bytes that somebody asked for as it was written: 20 GiB, 1500 MiB, not 1.5 GiB."""
    for unit, factor in _UNITS[:3]:
        if number >= factor and number % factor == 0:
            return f"{number // factor} {unit}"
    return size(number)


def used_of(used: float, total: float) -> tuple[str, str]:
    """Return what is used and the whole, in the unit of the whole: 57.1 and 80 GiB."""
    unit, factor = _unit(total)
    return f"{used / factor:.1f}", f"{_rounded(total / factor)} {unit}"


def _unit(number: float) -> tuple[str, int]:
    for unit, factor in _UNITS:
        if number >= factor - 0.5 * (factor >> 10):  # what is rounded up to a whole unit counts as one
            return unit, factor
    return "B", 1


def _rounded(value: float) -> str:
    text = f"{value:.0f}" if value >= _WHOLE else f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text
