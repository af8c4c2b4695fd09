"""How busy this machine is: processors and memory, read seldom enough to cost nothing. Knows nothing of GPUs."""

from __future__ import annotations

import os

import psutil

from mgpu_agent.core.events import Measured

INTERVAL_S = 2.0


class Gauge:
    """The machine's own load; a reading is used until the interval is over, and covers the whole of it."""

    def __init__(self) -> None:
        psutil.cpu_percent()  # from here on the first interval is measured
        self._read_at: float | None = None
        self._newest = Measured()

    def read(self, now: float) -> Measured:
        """Return the newest reading."""
        if self._read_at is None:
            self._read_at = now
        if now - self._read_at >= INTERVAL_S:
            self._read_at = now
            self._newest = Measured(
                load=os.getloadavg()[0], cpu_percent=psutil.cpu_percent(), memory_available_bytes=psutil.virtual_memory().available
            )
        return self._newest
