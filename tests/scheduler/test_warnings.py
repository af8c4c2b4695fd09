"""Warnings before a time limit: once for each deadline, moved with it, and said again where they may have
been missed.
"""

from __future__ import annotations

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import WarnTask
from mgpu_jupyter.scheduler.events import JobChanged, NodeLeft, RequeueRequested, TaskReported, TimePassed
from tests.builders import Cluster, ended, status

N1 = NodeId("n1")


def running(cluster: Cluster, **spec: object):
    job = cluster.started(**spec)
    cluster.tell(TaskReported(at=10.0, status=status(job)))
    return cluster.job(job.id)


def warnings(commands: list) -> list[WarnTask]:
    return [command for command in commands if isinstance(command, WarnTask)]


def test_a_job_is_warned_once_so_long_before_its_end():
    cluster = Cluster(("n1", 1))
    job = running(cluster, signal="USR1@60", time_limit_s=100.0)
    deadline = job.started_at + 100.0

    assert books.next_due_at(cluster.state) == deadline - 60.0
    assert warnings(cluster.tell(TimePassed(at=deadline - 61.0))) == []
    assert warnings(cluster.tell(TimePassed(at=deadline - 60.0))) == [
        WarnTask(N1, job.attempt_key, 10, deadline)
    ]
    assert warnings(cluster.tell(TimePassed(at=deadline - 59.0))) == []


def test_no_limit_no_warning_and_no_wish_no_warning():
    cluster = Cluster(("n1", 2))
    running(cluster, signal="USR1@60")
    running(cluster, time_limit_s=100.0)

    assert cluster.state.warnings == []


def test_another_limit_is_another_warning():
    cluster = Cluster(("n1", 1))
    job = running(cluster, signal="USR1@60", time_limit_s=100.0)
    cluster.tell(JobChanged(at=20.0, job_id=job.id, by="ada", time_limit_s=500.0))

    assert warnings(cluster.tell(TimePassed(at=60.0))) == []
    assert [warning.serial for warning in warnings(cluster.tell(TimePassed(at=460.0)))] == [
        job.started_at + 500.0
    ]


def test_a_node_that_comes_back_is_told_again_and_an_ended_job_is_not():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = running(cluster, signal="USR1@60", time_limit_s=100.0)
    early = running(cluster, signal="USR1@1", time_limit_s=100.0)
    warned = warnings(cluster.tell(TimePassed(at=job.started_at + 40.0)))
    cluster.tell(NodeLeft(at=60.0, node_id=N1, reason="gone"))

    assert warnings(cluster.join("n1", 1, at=61.0, tasks=(status(job),))) == warned
    cluster.tell(TaskReported(at=62.0, status=ended(job)))
    assert warnings(cluster.join("n1", 1, at=63.0)) == []
    assert warnings(cluster.tell(TimePassed(at=early.started_at + 99.0)))[0].key == early.attempt_key
    assert list(cluster.state.deadline_of) == [early.id]


def test_a_job_that_is_stopping_or_in_its_next_attempt_is_not_warned():
    cluster = Cluster(("n1", 1))
    job = running(cluster, signal="USR1@60", time_limit_s=100.0)
    cluster.tell(RequeueRequested(at=20.0, job_id=job.id, by="ada"))

    assert warnings(cluster.tell(TimePassed(at=60.0))) == []
