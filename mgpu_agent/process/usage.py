"""What attempts used of their GPUs: the most memory and the mean load, from the readings while they ran. Reads nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, GpuUuid
from mgpu_agent.protocol.model import GpuSample


class Used(msgspec.Struct, frozen=True):
    """What one attempt used here; None where no GPU told."""

    memory_peak_bytes: int | None = None
    """The most that all its GPUs had in use at one reading."""
    utilisation_percent: float | None = None


class Usage:
    """The attempts that run, and their readings so far."""

    def __init__(self) -> None:
        self._peaks: dict[AttemptKey, int] = {}
        self._loads: dict[AttemptKey, tuple[float, int]] = {}

    def take(self, samples: Iterable[GpuSample], held: Mapping[AttemptKey, Iterable[GpuUuid]]) -> None:
        """Take in one reading of all GPUs."""
        by_gpu = {sample.uuid: sample for sample in samples}
        for key, gpus in held.items():
            mine = [by_gpu[uuid] for uuid in gpus if uuid in by_gpu]
            used = [sample.memory_used_bytes for sample in mine if sample.memory_used_bytes is not None]
            if used:
                self._peaks[key] = max(self._peaks.get(key, 0), sum(used))
            for sample in mine:
                if sample.utilisation_percent is not None:
                    total, count = self._loads.get(key, (0.0, 0))
                    self._loads[key] = (total + sample.utilisation_percent, count + 1)

    def of(self, key: AttemptKey) -> Used:
        """Return what an attempt used so far."""
        total, count = self._loads.get(key, (0.0, 0))
        return Used(self._peaks.get(key), round(total / count, 1) if count else None)

    def forget(self, key: AttemptKey) -> None:
        """Know an attempt no more."""
        self._peaks.pop(key, None)
        self._loads.pop(key, None)
