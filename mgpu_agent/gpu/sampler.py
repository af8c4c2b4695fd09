"""Reads the GPUs in a thread of its own, so that a driver that hangs never holds up the agent's loop; marks
the processes on them that belong to no job.

A process belongs to a job of this node, or is an outside one. Reads /proc; sends no signals.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from mgpu_agent.gpu.source import GpuSource
from mgpu_agent.keeper.trees import read_marker, read_process, uid_of
from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuSample

_MAX_DEPTH = 64  # a longer chain of parents is no job's


class Owners:
    """Marks outside processes; remembers those of jobs, since a process that is ending has no marker."""

    def __init__(self) -> None:
        self._ours: frozenset[int] = frozenset()

    def mark(
        self, samples: Iterable[GpuSample], marker_prefix: bytes, leaders: Collection[int]
    ) -> tuple[GpuSample, ...]:
        """Return the readings with every process marked that belongs to no job of this node."""
        listed = list(samples)
        pids = {process.pid for sample in listed for process in sample.processes}
        self._ours = frozenset(
            pid for pid in pids if pid in self._ours or is_ours(pid, marker_prefix, leaders)
        )
        return tuple(self._marked(sample) if sample.processes else sample for sample in listed)

    def _marked(self, sample: GpuSample) -> GpuSample:
        return replace(
            sample,
            processes=tuple(replace(one, outside=one.pid not in self._ours) for one in sample.processes),
        )


def is_ours(pid: int, marker_prefix: bytes, leaders: Collection[int]) -> bool:
    """Tell whether a process belongs to a job: by the marker in its environment, its session, or its descent.

    Anybody can write a marker: it counts only on processes of the users whom jobs of this node run as.
    """
    if (
        marker_prefix
        and read_marker(pid).startswith(marker_prefix)
        and uid_of(pid) in {os.getuid(), *map(uid_of, leaders)}
    ):
        return True
    for _ in range(_MAX_DEPTH):
        process = read_process(pid)
        if process is None:
            return False
        if pid in leaders or process.session in leaders:
            return True
        pid = process.parent
    return False


log = logging.getLogger("mgpu.gpus")


class GpuReadings(msgspec.Struct, frozen=True):
    """One round over all GPUs, and when it began."""

    samples: tuple[GpuSample, ...] = ()
    begun_at: float = 0.0


class Sampler:
    """One reader of one source. Owns its thread and the source."""

    def __init__(
        self, source: GpuSource, offered: frozenset[GpuUuid], on_urgent: Callable[[], None] = lambda: None
    ) -> None:
        self._source = source
        self._offered = offered
        self._on_urgent = on_urgent
        self._period_s = 0.0
        self._held: Mapping[GpuUuid, int] = {}
        self._marker_prefix = b""
        self._owners = Owners() if any(not gpu.simulated for gpu in source.gpus) else None
        self._latest = GpuReadings()
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
        """Read once as soon as possible, then call `on_urgent` (from the thread)."""
        self._is_urgent = True
        self._changed.set()

    def set_held(self, held: Mapping[GpuUuid, int]) -> None:
        """Set which GPUs are in use by jobs."""
        self._held = held

    def set_marker(self, prefix: bytes) -> None:
        """Set how markers of this node's jobs begin; processes without one are outside ones."""
        self._marker_prefix = prefix

    def take(self) -> GpuReadings:
        """Return the newest readings once; empty when there are no new ones."""
        with self._lock:
            latest, self._latest = self._latest, GpuReadings()
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
            except Exception:  # the thread must live: one failed reading is no reason to stop
                log.exception("reading the GPUs failed")
                continue
            with self._lock:
                self._latest = readings
            if is_urgent:
                self._on_urgent()

    def _read(self) -> GpuReadings:
        begun_at = time.monotonic()
        held = self._held
        leaders = frozenset(held.values()) - {0}
        samples = tuple(sample for sample in self._source.sample(held) if sample.uuid in self._offered)
        if self._owners is not None:
            samples = self._owners.mark(samples, self._marker_prefix, leaders)
        return GpuReadings(samples, begun_at)
