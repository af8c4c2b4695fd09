"""Which process of an attempt a GPU is for."""

from __future__ import annotations

from msgspec.structs import replace

from mgpu_agent.core.attempts import Attempts
from mgpu_agent.protocol.ids import GpuUuid
from tests.agent.core_world import a_status


def test_processes_share_the_gpus_of_their_attempt_in_the_order_of_their_ranks() -> None:
    gpus = tuple(GpuUuid(f"g{number}") for number in range(4))
    attempts = Attempts()
    attempts.expect(a_status().key, gpus, (4, 5))
    before = attempts.held_gpus()
    attempts.take(replace(a_status(gpus=gpus), rank=5, pid=55), 1.0)
    one = attempts.held_gpus()
    attempts.take(replace(a_status(gpus=gpus), rank=4, pid=44), 1.0)
    both = attempts.held_gpus()
    attempts.take(replace(a_status(gpus=gpus), rank=5, pid=55, ended_at=2.0), 2.0)

    assert [list(held.values()) for held in (before, one, both, attempts.held_gpus())] == [
        [0, 0, 0, 0],
        [0, 0, 55, 55],
        [44, 44, 55, 55],
        [44, 44, 0, 0],
    ]
