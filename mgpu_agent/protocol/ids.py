"""Names of things that are known to several processes. No behaviour beyond what an id itself means."""

from __future__ import annotations

from typing import NewType

import msgspec

from mgpu_agent.protocol.bounds import Name

JobId = NewType("JobId", Name)
"""Eight characters out of A-Z and 0-9."""

NodeId = NewType("NodeId", Name)
GpuUuid = NewType("GpuUuid", Name)

JOB_ID_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
JOB_ID_LENGTH = 8
JOB_ID_PATTERN = r"^[A-Z0-9]{8}$"
NODE_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$(?!\n)"  # `$` alone lets a newline follow


class AttemptKey(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One attempt at one job; `epoch` rises with every attempt of any job and is never reused."""

    job_id: JobId
    attempt: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}.{self.epoch}"
