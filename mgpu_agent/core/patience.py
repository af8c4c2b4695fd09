"""How long the agent waits for what, and how it tries again ever more slowly. Pure."""

from __future__ import annotations

ANSWER_S = 3.0  # a master on the same machine answers in milliseconds; after this the key is taken as unknown to it
SILENCE_S = 120.0  # an end is told every 10 s: a master that takes none of twelve does not hear us
LONELY_S = 60.0
BACK_OFF_S = (0.1, 2.0)
REFUSED_BACK_OFF_S = (1.0, 30.0)


class BackOff:
    """Delays that double with each failure in a row."""

    def __init__(self) -> None:
        self._failures = 0

    def next_s(self, limits: tuple[float, float] = BACK_OFF_S) -> float:
        """Return the delay before the next try, between these limits."""
        first, most = limits
        delay_s = min(most, first * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return delay_s

    def reset(self) -> None:
        """Begin anew: it worked."""
        self._failures = 0
