"""Lines of the log about nodes: each kind of line about each node once in a while, so that none fills the log. Used by one thread."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mgpu_agent.protocol.text import printable

AGAIN_S = 600.0
REMEMBERED = 10_000


class Sayings:
    """Which lines were written lately."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._said: dict[str, float] = {}

    def warn(self, what: str, sentence: str) -> None:
        """Write a warning, unless one of its kind was written lately."""
        if self.may(what, AGAIN_S):
            self._log.warning("%s Further ones like it are not logged for a while.", printable(sentence))

    def may(self, what: str, again_s: float) -> bool:
        """Tell whether a line of this kind may be written now; then it counts as written."""
        now = self._clock()
        if now - self._said.get(what, -again_s) < again_s:
            return False
        self._said.pop(what, None)
        while len(self._said) >= REMEMBERED:
            del self._said[next(iter(self._said))]
        self._said[what] = now
        return True
