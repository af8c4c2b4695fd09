"""Recent readings by GPU: a history that is fetched once, and live readings since. Bounded; knows no
server.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
LEAST_STEP_S = 1.0


class Track(Generic[K]):
    """Series of points that forget what is older than a span; None keeps all."""

    def __init__(self, span_s: float | None, most: int = 1_200) -> None:
        self.lines: dict[K, tuple[list[float], list[float | None]]] = {}
        self._span_s = span_s
        self._most = most

    def clear(self) -> None:
        """Forget all."""
        self.lines.clear()

    def add(self, key: K, at: float, value: float | None) -> None:
        """Add a point that is newer than the last one; ignore one less than a second later."""
        times, values = self.lines.setdefault(key, ([], []))
        if times and at - times[-1] < LEAST_STEP_S:
            return
        times.append(at)
        values.append(value)
        if self._span_s is not None and times[0] < at - self._span_s - 60:
            first = next(number for number, one in enumerate(times) if one >= at - self._span_s)
            del times[:first], values[:first]
        elif len(times) > self._most:
            times[:], values[:] = times[::2], values[::2]
