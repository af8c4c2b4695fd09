"""What a site lets its users ask for, as they see it: partitions, classes of service, quotas. Values only."""

from __future__ import annotations

import msgspec


class PartitionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are used together, and what one job may have of them; None for no limit."""

    nodes: tuple[str, ...] = ()
    """Patterns of node ids; empty for all."""
    default: bool = False
    policy: str = ""
    max_time_s: float | None = None
    max_nodes: int | None = None
    max_gpus: int | None = None


class QuotaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Most that one user may have at once; None for no limit."""

    gpus: int | None = None
    running: int | None = None
    queued: int | None = None


class QosInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A class of service."""

    priority: float = 0.0
    preemptible: bool = False
    quota: QuotaInfo = QuotaInfo()
