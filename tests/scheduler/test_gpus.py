"""GPUs in trouble: skipped by placement, named in reasons, and the end of jobs whose GPU is lost."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.model import GpuTrouble, Trouble
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.commands import SaveAttempt, SaveJob, SaveNode, StopTask
from mgpu_jupyter.scheduler.events import GpusChanged, NodeJoined
from mgpu_jupyter.scheduler.explain.waiting import Waiting, waiting
from mgpu_jupyter.scheduler.model import Policy, Reason, StopCause
from tests.builders import Cluster, ended, facts, status
from tests.scheduler.test_attempts import report
from tests.scheduler.test_refusals import refusal

OUTSIDE = GpuTrouble(Trouble.OUTSIDE, "In use outside mgpu by pid 8 of bob.")
MEMORY = GpuTrouble(Trouble.MEMORY, "2.0 GB is not back.")
LOST = GpuTrouble(Trouble.LOST, "GPU is lost.")


def tell(cluster, node="n1", at=5.0, **troubles):
    """Say which GPUs of a node are in trouble, by index."""
    return cluster.tell(
        GpusChanged(
            at=at,
            node_id=node,
            troubles={f"GPU-{node}-{name[1:]}": trouble for name, trouble in troubles.items()},
        )
    )


def test_a_blocked_gpu_is_not_handed_out_and_the_reason_says_why():
    cluster = Cluster(("n1", 3))
    cluster.schedule()

    assert tell(cluster, g0=OUTSIDE, g1=MEMORY) == [SaveNode("n1")]
    assert cluster.state.wants_pass
    assert tell(cluster, g0=OUTSIDE, g1=MEMORY) == []

    job = cluster.started()
    assert job.placements[0].gpus == ("GPU-n1-2",)
    new = cluster.submit()
    cluster.schedule()
    text = (
        "Waits for 1 GPU free on one node: n1 has 0. GPU 0 of n1: In use outside mgpu by pid 8 of bob. "
        "GPU 1 of n1: 2.0 GB is not back."
    )
    assert waiting(cluster.state, new, 0.0) == Waiting(1, Reason("busy", text), 3605.0)

    tell(cluster, g1=MEMORY)
    cluster.schedule()
    assert cluster.job(new).placements[0].gpus == ("GPU-n1-0",)


def test_jobs_without_gpus_do_not_hear_of_them():
    cluster = Cluster(("n1", 1))
    tell(cluster, g0=OUTSIDE)
    cluster.started(gpus=0, cpus=8)
    new = cluster.submit(gpus=0, cpus=1)
    cluster.schedule()

    assert waiting(cluster.state, new, 0.0) == Waiting(
        1, Reason("busy", "Waits for 1 CPU free on one node: n1 has 0."), 3605.0
    )


def test_a_held_gpu_in_trouble_is_not_named_as_the_reason():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    tell(cluster, g0=OUTSIDE)
    new = cluster.submit()
    cluster.schedule()

    assert cluster.job(job.id) == job
    assert waiting(cluster.state, new, 0.0) == Waiting(
        1, Reason("busy", "Waits for 1 GPU free on one node: n1 has 0.")
    )


def test_busy_gpus_are_shared_where_the_site_says_so():
    cluster = Cluster(("n1", 2), policy=Policy(share_busy_gpus=True))

    assert tell(cluster, g0=OUTSIDE, g1=MEMORY) == [SaveNode("n1")]
    assert cluster.started().placements[0].gpus == ("GPU-n1-0",)


def test_unknown_nodes_and_gpus_change_nothing():
    cluster = Cluster(("n1", 1))

    assert tell(cluster, "n9", g0=LOST) == []
    assert tell(cluster, g7=LOST) == []
    assert cluster.state.nodes["n1"].blocked == {}


def test_the_job_of_a_lost_gpu_fails_with_that_reason():
    cluster = Cluster(("n1", 2))
    job = cluster.started(gpus=2)
    report(cluster, status(job))
    running = cluster.job(job.id)
    reason = Reason("gpu-lost", "GPU 1 of n1 was lost: GPU is lost.")
    stopping = replace(
        running,
        state=JobState.STOPPING,
        stop=StopCause.RANK_FAILED,
        reason=reason,
        kill_at=cluster.state.now + 15.0,
    )

    assert tell(cluster, g1=LOST) == [
        SaveNode("n1"),
        SaveJob(stopping),
        StopTask("n1", job.attempt_key, 15.0, reason.text, stopping.stop),
    ]
    assert tell(cluster, g0=LOST, g1=LOST) == [SaveNode("n1")]
    killed = ended(running, exit_code=None, signal=15)
    assert report(cluster, killed) == [
        SaveJob(replace(stopping, state=JobState.FAILED, tasks=(killed,), ended_at=20.0, exit_code=143)),
    ]
    assert tell(cluster) == [SaveNode("n1")]
    assert cluster.started(gpus=2).placements[0].gpus == ("GPU-n1-0", "GPU-n1-1")


def test_a_job_that_is_not_known_to_run_tries_again_elsewhere():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    reason = Reason("gpu-lost", "GPU 0 of n1 was lost: GPU is lost.")
    stopping = replace(job, state=JobState.STOPPING, stop=StopCause.REQUEUE, reason=reason, kill_at=20.0)

    assert tell(cluster, g0=LOST) == [
        SaveNode("n1"),
        SaveJob(stopping),
        StopTask("n1", job.attempt_key, 15.0, reason.text, stopping.stop),
    ]
    record, again, _ = cluster.tell(refusal(job, "node"))
    assert (type(record), again.job.state, again.job.attempt) == (SaveAttempt, JobState.QUEUED, 1)
    cluster.join("n2", 1)
    cluster.schedule()
    assert cluster.job(job.id).placements[0].node_id == "n2"


@pytest.mark.parametrize(
    ("kind", "state"), [(Trouble.LOST, JobState.STOPPING), (Trouble.SILENT, JobState.RUNNING)]
)
def test_a_node_that_joins_tells_its_troubles_too(kind, state):
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    report(cluster, status(job))
    troubles = {"GPU-n1-0": GpuTrouble(kind, "Told."), "GPU-of-nobody": LOST}

    cluster.tell(
        NodeJoined(at=6.0, node_id="n1", facts=facts("n1", 1), tasks=(status(job),), troubles=troubles)
    )

    assert (cluster.job(job.id).state, cluster.state.nodes["n1"].blocked) == (
        state,
        {"GPU-n1-0": GpuTrouble(kind, "Told.")},
    )
