"""Whose a process on a GPU is: of a job of this node, or of somebody outside. Reads /proc; signals nobody."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from mgpu_agent.keeper.trees import read_marker, read_process
from mgpu_agent.protocol.model import GpuProcess, GpuSample

_MAX_DEPTH = 64  # a chain of parents longer than this is no job's


def with_owners(sample: GpuSample, marker_prefix: bytes, leaders: Collection[int]) -> GpuSample:
    """Return the reading with every process marked that belongs to no job of this node."""
    if not sample.processes:
        return sample
    return replace(sample, processes=tuple(_marked(process, marker_prefix, leaders) for process in sample.processes))


def _marked(process: GpuProcess, marker_prefix: bytes, leaders: Collection[int]) -> GpuProcess:
    return process if is_ours(process.pid, marker_prefix, leaders) else replace(process, outside=True)


def is_ours(pid: int, marker_prefix: bytes, leaders: Collection[int]) -> bool:
    """Tell whether a process belongs to a job: by the mark in its environment, its session, or its descent."""
    if marker_prefix and read_marker(pid).startswith(marker_prefix):
        return True
    for _ in range(_MAX_DEPTH):
        process = read_process(pid)
        if process is None:
            return False
        if pid in leaders or process.session in leaders:
            return True
        pid = process.parent
    return False
