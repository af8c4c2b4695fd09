"""How long a job is expected to run, learnt from what this user's jobs of this name took before. Pure."""

from __future__ import annotations

from collections import deque

import msgspec

REMEMBERED = 3
"""Jobs of one user and name that are looked back at."""
MARGIN = 1.5
"""A job is planned to run this much longer than those before it, since one that outlives its plan delays a promise."""
MAX_KEYS = 10_000


class Ran(msgspec.Struct, frozen=True):
    """How long one job ran."""

    user: str
    name: str
    seconds: float


class Estimates:
    """What was learnt from jobs that ended by themselves."""

    def __init__(self) -> None:
        self._past: dict[tuple[str, str | None], deque[float]] = {}

    def learn(self, ran: Ran) -> None:
        """Take in how long a job ran."""
        for name in (ran.name, None):
            past = self._past.get((ran.user, name))
            if past is None:
                if len(self._past) >= MAX_KEYS:
                    self._past.pop(next(iter(self._past)))
                past = self._past[ran.user, name] = deque(maxlen=REMEMBERED)
            past.append(ran.seconds)

    def expect(self, user: str, name: str) -> float | None:
        """Return how long such a job is expected to run, or None when nothing is known."""
        past = self._past.get((user, name)) or self._past.get((user, None))
        return sum(past) / len(past) if past else None
