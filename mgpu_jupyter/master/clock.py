"""The master's time: seconds since 1970 that never jump while it runs."""

from __future__ import annotations

import time


class SteadyClock:
    """Starts at the wall clock's time and goes on with the monotonic one, so that a clock set anew ends no job early."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Return the time."""
        return time.monotonic() + self._offset
