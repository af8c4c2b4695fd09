"""A job on one page, as text: whole pages."""

from __future__ import annotations

from typing import Any

import pytest

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api.traces import NodeUse, RankSummary, Summary
from mgpu_jupyter.client.reports import summary_lines
from mgpu_jupyter.model.job import JobState

BARE: dict[str, Any] = {
    "job_id": JobId("ABCD1234"),
    "name": "",
    "user": "ann",
    "state": JobState.QUEUED,
    "attempt": 0,
    "exit_code": None,
    "reason": "",
    "submitted_at": 1.0,
    "started_at": None,
    "ended_at": None,
    "waited_s": None,
    "ran_s": None,
    "gpus_requested": 1,
    "nodes_requested": 1,
    "time_limit_s": None,
    "time_used_percent": None,
    "gpu_memory_requested_bytes": 0,
    "gpu_memory_peak_bytes": None,
    "gpu_utilisation_percent": None,
    "gpu_s": 0.0,
}
GIB = 1024**3
N1, N2 = NodeId("n1"), NodeId("n2")
NODES = (
    NodeUse(
        node=N1, gpus=2, gpu_indices=(0, 3), gpu_memory_peak_bytes=GIB // 2, gpu_utilisation_percent=12.5
    ),
    NodeUse(node=N2, gpus=0),
)
RANKS = (
    RankSummary(rank=0, node=N1, gpus=2, started_at=10.0, ended_at=12.5, exit_code=3),
    RankSummary(rank=1, node=N2, gpus=0, started_at=10.0, ended_at=9.0, signal=9),
    RankSummary(rank=2, node=N2, gpus=0, started_at=10.0),
)


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        (
            {},
            [
                "Job ABCD1234 of ann: queued",
                "  has not started, attempt 0",
                "  asked for 1 GPU on 1 node; 0.0 GPU-seconds",
            ],
        ),
        (
            {
                "name": "tra\x1bin",
                "state": JobState.FAILED,
                "attempt": 2,
                "exit_code": 3,
                "reason": "It ended with\nexit code 3.",
                "waited_s": 40.0,
                "ran_s": 124.0,
                "gpus_requested": 4,
                "nodes_requested": 2,
                "time_limit_s": 3600.0,
                "time_used_percent": 3.4,
                "gpu_memory_requested_bytes": 20 * GIB,
                "gpu_memory_peak_bytes": 3 * GIB // 2,
                "gpu_utilisation_percent": 50.0,
                "gpu_s": 496.04,
                "nodes": NODES,
                "ranks": RANKS,
            },
            [
                "Job ABCD1234 tra\ufffdin of ann: failed, exit code 3",
                "  It ended with exit code 3.",
                "  waited 40 s, ran 2 m 04 s of 1 h 00 m (3.4 %), attempt 2",
                "  asked for 4 GPUs on 2 nodes; 496.0 GPU-seconds",
                "  GPU memory at most 1.5 GiB (asked for 20 GiB on each), mean load 50 %",
                "  n1: GPUs 0,3; memory 512 MiB, load 12.5 %",
                "  n2: GPUs none; memory not known, load not known",
                "  rank 0 on n1: exit code 3 after 2.5 s",
                "  rank 1 on n2: signal 9 after 0.0 s",
                "  rank 2 on n2: runs",
            ],
        ),
        (
            {"time_limit_s": 60.0, "gpu_memory_peak_bytes": GIB, "waited_s": 0.5, "exit_code": 0},
            [
                "Job ABCD1234 of ann: queued, exit code 0",
                "  waited 0.5 s of 1 m 00 s (0 %), attempt 0",
                "  asked for 1 GPU on 1 node; 0.0 GPU-seconds",
                "  GPU memory at most 1 GiB, mean load not known",
            ],
        ),
        (
            {"gpu_utilisation_percent": 7.0},
            [
                "Job ABCD1234 of ann: queued",
                "  has not started, attempt 0",
                "  asked for 1 GPU on 1 node; 0.0 GPU-seconds",
                "  GPU memory at most not known, mean load 7 %",
            ],
        ),
    ],
)
def test_a_page(changes: dict[str, Any], lines: list[str]) -> None:
    assert summary_lines(Summary(**(BARE | changes))) == lines
