"""Reads the GPUs in a thread of its own, so that a driver that hangs never holds up the agent's loop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from mgpu_agent.gpu.owners import Owners
from mgpu_agent.gpu.source import GpuSource
from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuSample

log = logging.getLogger("mgpu.gpus")


class Readings(msgspec.Struct, frozen=True):
    """One round over all GPUs, and when it began."""

    samples: tuple[GpuSample, ...] = ()
    begun_at: float = 0.0


class Sampler:
    """One reader of one source. Owns its thread and the source."""

    def __init__(self, source: GpuSource, offered: frozenset[GpuUuid], on_urgent: Callable[[], None] = lambda: None) -> None:
        self._source = source
        self._offered = offered
        self._on_urgent = on_urgent
        self._period_s = 0.0
        self._held: Mapping[GpuUuid, int] = {}
        self._marker_prefix = b""
        self._owners = Owners() if any(not gpu.simulated for gpu in source.gpus) else None
        self._latest = Readings()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._is_urgent = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="mgpu-gpu-sampler", daemon=True)
        self._thread.start()

    def set_pace(self, period_s: float) -> None:
        """Read every `period_s` from now on; 0 pauses."""
        self._period_s = period_s
        self._changed.set()

    def hurry(self) -> None:
        """Read once as soon as possible, and call `on_urgent` (from the thread) when that is done."""
        self._is_urgent = True
        self._changed.set()

    def set_held(self, held: Mapping[GpuUuid, int]) -> None:
        """Say which GPUs are in use by jobs."""
        self._held = held

    def set_marker(self, prefix: bytes) -> None:
        """Say how the marks of this node's jobs begin; processes without one are from outside."""
        self._marker_prefix = prefix

    def take(self) -> Readings:
        """Return the newest readings once; empty when there are no new ones."""
        with self._lock:
            latest, self._latest = self._latest, Readings()
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
            is_urgent, self._is_urgent = self._is_urgent, False
            if self._is_closed or not (self._period_s or is_urgent):
                continue
            try:
                readings = self._read()
            except Exception:  # the thread must live: one bad reading is no reason to have none any more
                log.exception("reading the GPUs failed")
                continue
            with self._lock:
                self._latest = readings
            if is_urgent:
                self._on_urgent()

    def _read(self) -> Readings:
        begun_at = time.monotonic()
        held = self._held
        leaders = frozenset(held.values()) - {0}
        samples = tuple(sample for sample in self._source.sample(held) if sample.uuid in self._offered)
        if self._owners is not None:
            samples = self._owners.mark(samples, self._marker_prefix, leaders)
        return Readings(samples, begun_at)
