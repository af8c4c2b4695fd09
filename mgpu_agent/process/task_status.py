"""The report about a process for the master: what the ledger knows of it, and what its attempt used of its
GPUs. Reads nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from mgpu_agent.keeper.messages import TaskRecord
from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuSample, TaskStatus


def status_of(record: TaskRecord, used: Used, *, node_id: NodeId, host: str, address: str) -> TaskStatus:
    """Return the report about one process."""
    return TaskStatus(
        key=record.key,
        rank=record.rank,
        node_id=node_id,
        host=host,
        address=address,
        pid=record.pid,
        started_at=record.started_at,
        gpus=record.gpus,
        cwd=record.cwd,
        python=record.python,
        note=record.note,
        ended_at=record.ended_at,
        exit_code=record.exit_code,
        signal=record.signal,
        reason=record.reason,
        lost=record.lost,
        stdout_bytes=record.stdout_bytes,
        stderr_bytes=record.stderr_bytes,
        collects=record.collect is not None,
        gpu_memory_peak_bytes=used.memory_peak_bytes,
        gpu_utilisation_percent=used.utilisation_percent,
    )


class Used(msgspec.Struct, frozen=True):
    """What one attempt used here; None where no GPU reports it."""

    memory_peak_bytes: int | None = None
    """The most that all its GPUs had in use at one reading."""
    utilisation_percent: float | None = None


class Usage:
    """The attempts that run, and their readings so far."""

    def __init__(self) -> None:
        self._peaks: dict[AttemptKey, int] = {}
        self._loads: dict[AttemptKey, tuple[float, int]] = {}

    def take(self, samples: Iterable[GpuSample], held: Mapping[AttemptKey, Iterable[GpuUuid]]) -> None:
        """Add one reading of all GPUs."""
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
        """Forget an attempt."""
        self._peaks.pop(key, None)
        self._loads.pop(key, None)
