"""How much of the disk each user has of one kind (output, results), counted as it comes and goes. Reads and deletes no file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

UNBOUNDED = 1 << 62


class Shares:
    """Bytes by user, and the most that one may have. Safe to use from several threads."""

    def __init__(
        self, limit_bytes: int = 0, used: Mapping[str, int] | None = None, is_exempt: Callable[[str], bool] = lambda _: False
    ) -> None:
        self.limit_bytes = limit_bytes
        """0 for no limit."""
        self._used = dict(used or {})
        self._is_exempt = is_exempt
        """Those who run the cluster have no share of it: they have all."""
        self._lock = threading.Lock()

    def used(self, user: str) -> int:
        """Return how much a user has."""
        return self._used.get(user, 0)

    def room(self, user: str) -> int:
        """Return how much more a user may have."""
        if not self.limit_bytes or self._is_exempt(user):
            return UNBOUNDED
        return max(0, self.limit_bytes - self.used(user))

    def add(self, user: str, size: int) -> None:
        """Count what came, or with a minus what is gone."""
        with self._lock:
            left = self._used.get(user, 0) + size
            if left > 0:
                self._used[user] = left
            else:
                self._used.pop(user, None)

    def take(self, user: str, size: int) -> bool:
        """Count this if there is room for all of it; tell whether there was."""
        with self._lock:
            if self.limit_bytes and not self._is_exempt(user) and self._used.get(user, 0) + size > self.limit_bytes:
                return False
            self._used[user] = self._used.get(user, 0) + size
            return True
