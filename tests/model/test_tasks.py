"""How many processes a request means."""

from __future__ import annotations

import msgspec
import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.launchers import tasks_of, tasks_on, workers_on


@pytest.mark.parametrize(
    ("fields", "gpus", "tasks", "workers"),
    [
        ({}, 4, 1, 1),
        ({"ntasks_per_node": 3}, 4, 3, 3),
        ({"distributed": True}, 4, 4, 4),
        ({"distributed": True}, 0, 1, 1),
        ({"distributed": True, "ntasks_per_node": 2}, 4, 2, 2),
        ({"distributed": True, "command": ["torchrun", "x.py"]}, 4, 1, 4),
        ({"distributed": True, "ntasks_per_node": 2, "command": ["torchrun", "x.py"]}, 4, 1, 2),
        ({"command": ["torchrun", "x.py"]}, 4, 1, 1),
    ],
)
def test_processes_on_a_node(fields: dict[str, object], gpus: int, tasks: int, workers: int) -> None:
    spec = msgspec.convert({"command": ["true"], **fields}, JobSpec)
    assert (tasks_on(spec, gpus), workers_on(spec, gpus)) == (tasks, workers)


def test_processes_of_a_request_with_unlike_nodes() -> None:
    assert tasks_of(JobSpec(command=("true",), node_gpu_ids={"a": (0, 1), "b": (2,)}, distributed=True)) == 3


def test_more_processes_than_anybody_could_want_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="at most 100000"):
        check(JobSpec(command=("true",), nodes=1000, ntasks_per_node=1000))
