"""Reads the GPUs in a thread of its own, so that a driver that hangs never holds up the agent's loop."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from mgpu_agent.gpu.source import GpuSource
from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuSample


class Sampler:
    """One reader of one source. Owns its thread and the source."""

    def __init__(self, source: GpuSource, offered: frozenset[GpuUuid]) -> None:
        self._source = source
        self._offered = offered
        self._period_s = 0.0
        self._held: Mapping[GpuUuid, int] = {}
        self._latest: tuple[GpuSample, ...] = ()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="mgpu-gpu-sampler", daemon=True)
        self._thread.start()

    def set_pace(self, period_s: float) -> None:
        """Read every `period_s` from now on; 0 pauses."""
        self._period_s = period_s
        self._changed.set()

    def set_held(self, held: Mapping[GpuUuid, int]) -> None:
        """Say which GPUs are in use by jobs."""
        self._held = held

    def take(self) -> tuple[GpuSample, ...]:
        """Return the newest readings once; empty when there are no new ones."""
        with self._lock:
            latest, self._latest = self._latest, ()
        return latest

    def close(self) -> None:
        """End the thread; a driver that hangs is left behind with it."""
        self._is_closed = True
        self._changed.set()
        self._thread.join(timeout=2.0)
        if not self._thread.is_alive():
            self._source.close()

    def _run(self) -> None:
        while not self._is_closed:
            self._changed.wait(self._period_s or None)
            self._changed.clear()
            if self._is_closed or not self._period_s:
                continue
            samples = tuple(sample for sample in self._source.sample(self._held) if sample.uuid in self._offered)
            with self._lock:
                self._latest = samples
