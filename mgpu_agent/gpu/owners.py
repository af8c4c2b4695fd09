"""Whose a process on a GPU is: of a job of this node, or of somebody outside. Reads /proc; signals nobody."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from mgpu_agent.keeper.trees import read_marker, read_process, uid_of
from mgpu_agent.protocol.model import GpuSample

_MAX_DEPTH = 64  # a chain of parents longer than this is no job's


class Owners:
    """Marks the processes of each round of readings; remembers those that were ours, since a process that ends has no mark any more."""

    def __init__(self) -> None:
        self._ours: frozenset[int] = frozenset()

    def mark(self, samples: Iterable[GpuSample], marker_prefix: bytes, leaders: Collection[int]) -> tuple[GpuSample, ...]:
        """Return the readings with every process marked that belongs to no job of this node."""
        listed = list(samples)
        pids = {process.pid for sample in listed for process in sample.processes}
        self._ours = frozenset(pid for pid in pids if pid in self._ours or is_ours(pid, marker_prefix, leaders))
        return tuple(self._marked(sample) if sample.processes else sample for sample in listed)

    def _marked(self, sample: GpuSample) -> GpuSample:
        return replace(sample, processes=tuple(replace(one, outside=one.pid not in self._ours) for one in sample.processes))


def is_ours(pid: int, marker_prefix: bytes, leaders: Collection[int]) -> bool:
    """Tell whether a process belongs to a job: by the mark in its environment, its session, or its descent.

    A mark is only what somebody wrote there: it counts for the users whom jobs of this node run as.
    """
    if marker_prefix and read_marker(pid).startswith(marker_prefix) and uid_of(pid) in {os.getuid(), *map(uid_of, leaders)}:
        return True
    for _ in range(_MAX_DEPTH):
        process = read_process(pid)
        if process is None:
            return False
        if pid in leaders or process.session in leaders:
            return True
        pid = process.parent
    return False
