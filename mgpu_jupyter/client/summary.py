"""The summary of a job as text."""

from __future__ import annotations

from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api.results import NodeUse, RankSummary, Summary

_GIB = 1024**3


def as_lines(told: Summary) -> list[str]:
    """Return a job on one page."""
    code = "" if told.exit_code is None else f", exit code {told.exit_code}"
    name = f" {printable(told.name)}" if told.name else ""
    lines = [f"Job {told.job_id}{name} of {printable(told.user)}: {told.state}{code}"]
    if told.reason:
        lines.append(f"  {printable(told.reason)}")
    waited = "has not started" if told.waited_s is None else f"waited {told.waited_s:.1f} s"
    ran = "" if told.ran_s is None else f", ran {told.ran_s:.1f} s"
    limit = "" if told.time_limit_s is None else f" of {told.time_limit_s:g} s ({told.time_used_percent or 0:g} %)"
    lines.append(f"  {waited}{ran}{limit}, attempt {told.attempt}")
    lines.append(f"  asked for {told.gpus_requested} GPUs on {told.nodes_requested} nodes; {told.gpu_s:.1f} GPU-seconds")
    if told.gpu_memory_peak_bytes is not None or told.gpu_utilisation_percent is not None:
        asked = f" (asked for {told.gpu_memory_requested_bytes / _GIB:.1f} GiB on each)" if told.gpu_memory_requested_bytes else ""
        lines.append(f"  GPU memory at most {_memory(told.gpu_memory_peak_bytes)}{asked}, mean load {_load(told.gpu_utilisation_percent)}")
    lines += [_node_line(node) for node in told.nodes]
    lines += [_rank_line(rank) for rank in told.ranks]
    return lines


def _node_line(node: NodeUse) -> str:
    gpus = ",".join(map(str, node.gpu_indices)) or "none"
    return f"  {node.node}: GPUs {gpus}; memory {_memory(node.gpu_memory_peak_bytes)}, load {_load(node.gpu_utilisation_percent)}"


def _rank_line(rank: RankSummary) -> str:
    how = f"signal {rank.signal}" if rank.signal is not None else "runs" if rank.ended_at is None else f"exit code {rank.exit_code}"
    took = "" if rank.ended_at is None else f" after {max(0.0, rank.ended_at - rank.started_at):.1f} s"
    return f"  rank {rank.rank} on {rank.node}: {how}{took}"


def _memory(size: int | None) -> str:
    return "not known" if size is None else f"{size / _GIB:.2f} GiB"


def _load(percent: float | None) -> str:
    return "not known" if percent is None else f"{percent:g} %"
