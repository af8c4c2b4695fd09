"""What others see of GPUs (one state for each, its reason, and who uses it) and of jobs that start or
stop.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import GpuProcess, GpuSample, GpuTrouble, Trouble
from mgpu_jupyter.api import models
from mgpu_jupyter.master.node_views import view_of
from mgpu_jupyter.master.ports import SavedJob
from mgpu_jupyter.master.views import free_gpus, job_view, node_view
from mgpu_jupyter.scheduler.events import CancelRequested, GpusChanged, NodeMet, TaskReported
from mgpu_jupyter.scheduler.model import Policy
from tests.builders import Cluster, everybody_reached, status


@pytest.mark.parametrize(
    ("kind", "is_held", "state", "reason"),
    [
        (None, False, "free", ""),
        (None, True, "held", ""),
        (Trouble.OUTSIDE, False, "outside", "Told."),
        (Trouble.OUTSIDE, True, "held", ""),
        (Trouble.MEMORY, False, "settling", "Told."),
        (Trouble.UNREAD, False, "settling", "Told."),
        (Trouble.SILENT, False, "unhealthy", "Told."),
        (Trouble.SILENT, True, "unhealthy", "Told."),
        (Trouble.LOST, True, "unhealthy", "Told."),
        ("of a newer agent", False, "unhealthy", "Told."),
    ],
)
def test_the_state_of_a_gpu(kind, is_held, state, reason):
    cluster = Cluster(("n1", 1))
    job = cluster.started() if is_held else None
    troubles = {} if kind is None else {"GPU-n1-0": GpuTrouble(kind, "Told.")}
    cluster.tell(GpusChanged(at=1.0, node_id=NodeId("n1"), troubles=troubles))
    process = GpuProcess(pid=3, user="bob", memory_bytes=9, outside=True, name="python")
    sample = GpuSample(uuid="GPU-n1-0", power_w=7.0, processes=(process,))
    node = cluster.state.nodes[NodeId("n1")]
    node.facts = replace(
        node.facts, gpus=(replace(node.facts.gpus[0], nvlinks={"GPU-n1-1": 2}, mig_parent="GPU-p"),)
    )
    view = view_of(cluster.state, node, (sample,), 1, None)

    assert node_view(view).gpus == (
        models.Gpu(
            index=0,
            uuid="GPU-n1-0",
            name="Test GPU",
            memory_bytes=24 << 30,
            simulated=True,
            job_id=job.id if job else None,
            user="ann" if job else None,
            rank=0 if job else None,
            power_w=7.0,
            state=state,
            reason=reason,
            processes=(models.GpuProcess(pid=3, user="bob", memory_bytes=9, outside=True, name="python"),),
            mig_parent="GPU-p",
            nvlinks={"GPU-n1-1": 2},
        ),
    )
    assert free_gpus(view) == (state == "free")


def steps(cluster, job):
    return [placement.step for placement in job_view(SavedJob(cluster.job(job.id), 1)).placements]


def test_how_far_each_node_is_with_the_start():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.job(cluster.submit(nodes=2, distributed=True))
    cluster.schedule()
    job = cluster.job(job.id)
    assert steps(cluster, job) == ["asked", "asked"]
    cluster.prepared(job, 0)
    assert steps(cluster, job) == ["ready", "asked"]
    cluster.prepared(job, 1)
    assert steps(cluster, job) == ["meeting", "meeting"]
    for node in ("n1", "n2"):
        cluster.tell(NodeMet(at=3.0, node_id=NodeId(node), met=everybody_reached(job, node)))
    assert steps(cluster, job) == ["launching", "launching"]
    cluster.tell(TaskReported(at=4.0, status=status(job, started_at=4.0)))
    assert steps(cluster, job) == ["started", "launching"]
    cluster.tell(TaskReported(at=4.0, status=status(job, 1, started_at=4.0)))
    assert steps(cluster, job) == ["", ""]


def test_when_what_is_left_of_a_job_is_killed():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    cluster.tell(TaskReported(at=3.0, status=status(job, started_at=3.0)))
    assert job_view(SavedJob(cluster.job(job.id), 1)).kill_at is None
    for at in (4.0, 9.0):
        cluster.tell(CancelRequested(at=at, job_id=job.id, by="ann"))
        assert job_view(SavedJob(cluster.job(job.id), 1)).kill_at == 4.0 + Policy().kill_grace_s


def test_a_job_says_whether_it_is_distributed_and_where_its_first_rank_is():
    cluster = Cluster(("n1", 1), ("n2", 1))
    waits = cluster.job(cluster.submit(nodes=2, gpus_per_node=1, distributed=True))
    before = job_view(SavedJob(waits, 1))
    cluster.schedule()
    after = job_view(SavedJob(cluster.job(waits.id), 2))

    assert [(one.distributed, one.master_node) for one in (before, after)] == [(True, None), (True, "n1")]
