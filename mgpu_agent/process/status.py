"""What the ledger knows of a process, as it is told to the master. Pure."""

from __future__ import annotations

from mgpu_agent.keeper.messages import TaskRecord
from mgpu_agent.process.usage import Used
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import TaskStatus


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
