"""A job with `--mpi`: one process that counts, on the first node; the others wait there for it and end with
it.
"""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.commands import SaveJob, StopTask
from mgpu_jupyter.scheduler.events import NodeDeclaredLost, TaskReported
from mgpu_jupyter.scheduler.launch import launch_spec
from mgpu_jupyter.scheduler.model import StopCause
from tests.builders import Cluster, ended, status


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(("n1", 2), ("n2", 2))


@pytest.fixture
def job(cluster: Cluster):
    job = cluster.started(nodes=2, gpus_per_node=2, mpi=True)
    for rank in (0, 1):
        cluster.tell(TaskReported(at=10.0, status=status(job, rank)))
    return cluster.job(job.id)


def last_saved(commands):
    return [command.job for command in commands if isinstance(command, SaveJob)][-1]


def test_there_is_one_process_on_each_node_and_slots_for_every_gpu(job):
    specs = [launch_spec(job, placement, 15.0) for placement in job.placements]

    assert [[task.rank for task in spec.tasks] for spec in specs] == [[0], [1]]
    assert {spec.env["MGPU_MPI_HOSTS"] for spec in specs} == {"n1:2,n2:2"}
    assert all(spec.mpi and not any(name.startswith("SLURM_") for name in spec.env) for spec in specs)


def test_when_the_first_ends_well_the_others_are_ended_and_the_job_is_completed(cluster, job):
    commands = cluster.tell(TaskReported(at=20.0, status=ended(job, 0)))
    assert (
        StopTask(NodeId("n2"), job.attempt_key, 15.0, "Its first process is over.", StopCause.FIRST_DONE)
        in commands
    )
    saved = last_saved(cluster.tell(TaskReported(at=21.0, status=ended(job, 1, exit_code=None, signal=15))))
    assert (saved.state, saved.exit_code) == (JobState.COMPLETED, 0)


def test_a_node_that_is_lost_then_changes_nothing(cluster, job):
    cluster.tell(TaskReported(at=20.0, status=ended(job, 0)))
    commands = cluster.tell(NodeDeclaredLost(at=21.0, node_id=NodeId("n2"), reason="burnt"))

    assert [command.job.state for command in commands if isinstance(command, SaveJob)] == [JobState.COMPLETED]


@pytest.mark.parametrize("rank", [0, 1])
def test_one_that_fails_fails_the_job(cluster, job, rank):
    cluster.tell(TaskReported(at=20.0, status=ended(job, rank, exit_code=7)))
    saved = last_saved(
        cluster.tell(TaskReported(at=21.0, status=ended(job, 1 - rank, exit_code=None, at=21.0, signal=15)))
    )

    assert (saved.state, saved.exit_code) == (JobState.FAILED, 7)


def test_another_that_ends_before_the_first_does_not_end_the_job(cluster, job):
    cluster.tell(TaskReported(at=20.0, status=ended(job, 1)))
    assert cluster.job(job.id).state is JobState.RUNNING
    assert last_saved(cluster.tell(TaskReported(at=21.0, status=ended(job, 0)))).state is JobState.COMPLETED
