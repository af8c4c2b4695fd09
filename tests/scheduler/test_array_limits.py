"""How many jobs of an array run at once."""

from __future__ import annotations

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Quota, Scheduling
from mgpu_jupyter.scheduler.commands import LaunchTask
from mgpu_jupyter.scheduler.events import (
    JobSubmitted,
    StateRecovered,
    TaskReported,
)
from mgpu_jupyter.scheduler.explain.waiting import waiting
from mgpu_jupyter.scheduler.model import ArrayPart, Policy
from tests.builders import Cluster, a_spec, ended, facts, job_id, status
from tests.scheduler.test_job_orders import run

# --- arrays ----------------------------------------------------------------------------------------


def an_array(cluster, count, throttle):
    ids = []
    for index in range(count):
        cluster.count += 1
        new = job_id(cluster.count)
        part = ArrayPart("ARRAY001", index, throttle, count, 0, count - 1)
        cluster.tell(JobSubmitted(at=1.0, job_id=new, user="ann", spec=a_spec(array="x"), array=part))
        ids.append(new)
    return ids


def running(cluster):
    return sorted(job.id for job in cluster.state.jobs.values() if job.state is not JobState.QUEUED)


def test_no_more_of_an_array_run_at_once_than_it_may_also_after_a_restart():
    cluster = Cluster(("n1", 4))
    ids = an_array(cluster, 4, 2)
    commands = cluster.schedule()
    assert running(cluster) == ids[:2]
    assert (
        waiting(cluster.state, ids[2], 3.0).reason.text
        == "2 jobs of its array run, as many as it may have at once."
    )
    environment = next(command.spec.env for command in commands if isinstance(command, LaunchTask))
    assert {name: value for name, value in environment.items() if "ARRAY" in name} == {
        f"{family}_ARRAY_{name}": value
        for family in ("MGPU", "SLURM")
        for name, value in (
            ("JOB_ID", "ARRAY001"),
            ("TASK_ID", "0"),
            ("TASK_COUNT", "4"),
            ("TASK_MIN", "0"),
            ("TASK_MAX", "3"),
        )
    }

    again = Cluster()
    again.tell(
        StateRecovered(
            at=3.0,
            jobs=tuple(cluster.state.jobs.values()),
            nodes=((NodeId("n1"), facts("n1", 4)),),
            epoch=9,
            number=9,
        )
    )
    first = again.job(ids[0])
    again.join("n1", 4, at=4.0, tasks=(status(first), status(again.job(ids[1]))))
    again.schedule(4.0)
    assert running(again) == ids[:2]
    again.tell(TaskReported(at=20.0, status=ended(first)))
    again.schedule(21.0)
    assert running(again) == ids[1:3]


def test_quotas_count_what_was_given_even_if_a_node_returns_with_less():
    cluster = Cluster(("n1", 2), policy=Policy(scheduling=Scheduling(quota=Quota(gpus=2))))
    job = run(cluster, gpus=2)
    cluster.join("n1", 1, at=11.0, tasks=(status(job),))
    cluster.tell(TaskReported(at=20.0, status=ended(job)))
    assert cluster.state.quotas.counts() == {"jobs": {}, "gpus": {}, "queued": {}, "bytes": {}, "arrays": {}}
