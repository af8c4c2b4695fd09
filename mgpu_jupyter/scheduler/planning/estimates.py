"""How long a job is expected to run, learnt from what jobs like it took before. Pure.

The median of the last three of this user, name and size; else of this user and size; else of this user; else
the mean of all. Few and recent ones are better than many old ones, and a median is not distorted by one run
that crashed at once.
"""

from __future__ import annotations

from statistics import median

import msgspec

REMEMBERED = 3
ENOUGH = 5
"""How many jobs must have ended before the mean of all is used."""
MAX_KEYS = 30_000

_Key = tuple[str, str | None, int | None]


class Ran(msgspec.Struct, frozen=True):
    """How long one job ran."""

    user: str
    name: str
    gpus: int
    seconds: float


class Estimates:
    """What was learnt from jobs that ended by themselves."""

    def __init__(self) -> None:
        self._past: dict[_Key, tuple[float, ...]] = {}
        self._count = 0
        self._total = 0.0

    def learn(self, ran: Ran) -> None:
        """Add how long a job ran."""
        self._count += 1
        self._total += ran.seconds
        for key in _keys(ran.user, ran.name, ran.gpus):
            past = self._past.get(key, ())
            if not past and len(self._past) >= MAX_KEYS:
                self._past.pop(next(iter(self._past)))
            self._past[key] = (*past[1 - REMEMBERED :], ran.seconds)

    def copy(self) -> Estimates:
        """Return a copy."""
        twin = Estimates()
        twin._past, twin._count, twin._total = dict(self._past), self._count, self._total
        return twin

    def expect(self, user: str, name: str, gpus: int) -> float | None:
        """Return how long such a job is expected to run, or None when nothing is known."""
        for key in _keys(user, name, gpus):
            past = self._past.get(key)
            if past:
                return max(1.0, median(past))
        return max(1.0, self._total / self._count) if self._count >= ENOUGH else None


def _keys(user: str, name: str, gpus: int) -> tuple[_Key, ...]:
    return ((user, name, gpus), (user, None, gpus), (user, None, None))
