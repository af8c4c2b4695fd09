"""When a job is expected to start, and who is expected on a node: the pass itself in virtual time, on
copies.
"""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.model.explanations import Forecast, NodeOutlook, Planned
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.waits import After, Dependency
from mgpu_jupyter.scheduler.events import CancelRequested, JobSubmitted, TaskReported
from mgpu_jupyter.scheduler.explain import outlook
from mgpu_jupyter.scheduler.explain import outlook as ahead
from mgpu_jupyter.scheduler.explain.outlook import forecast
from mgpu_jupyter.scheduler.explain.questions import explain_node
from mgpu_jupyter.scheduler.explain.snapshot import StateSnapshot, try_pass
from mgpu_jupyter.scheduler.placement.pool import FOREVER
from tests.builders import a_spec, ended
from tests.scheduler.test_explain import a_cluster, explained, requested


def test_the_forecast_is_what_comes_true():
    cluster = a_cluster(("n1", 2))
    cluster.started(gpus=2, time_limit_s=100.0)
    queued = [cluster.submit(gpus=2, time_limit_s=50.0) for _ in range(3)]
    cluster.schedule()
    expected = [explained(cluster, job).expected.at for job in queued]
    assert expected == [102.0, 152.0, 202.0]
    running, at = JobId("JOB00001"), 0.0
    for job, when in zip(queued, expected, strict=True):
        at = when or 0.0
        cluster.tell(TaskReported(at=at, status=ended(cluster.job(running), at=at)))
        cluster.schedule(at)
        assert cluster.job(job).state is JobState.STARTING
        running = job


def test_a_forecast_that_takes_too_long_is_broken_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ahead, "MIN_PASSES", 1)
    monkeypatch.setattr(ahead, "MAX_LOOKS", 0)
    cluster = a_cluster(("n1", 1))
    cluster.started(gpus=1, time_limit_s=100.0)
    queued = [cluster.submit(gpus=1, time_limit_s=50.0) for _ in range(3)]
    cluster.schedule()
    assert explained(cluster, queued[1]).expected == Forecast(later_than=102.0)


def test_what_runs_for_ever_lets_nobody_say_when():
    cluster = a_cluster(("n1", 1))
    cluster.started(gpus=1)
    cluster.state.pool.expect_end(JobId("JOB00001"), FOREVER)
    waits = cluster.submit(gpus=1)
    cluster.schedule()
    assert explained(cluster, waits).expected == Forecast()
    assert explained(cluster, waits).plan == ()


def test_a_request_is_told_who_is_in_its_way():
    cluster = a_cluster(("n1", 2), ("n2", 1))
    running = cluster.started(gpus=2, nodelist=("n1",), time_limit_s=100.0)
    cluster.started(gpus=1, nodelist=("n2",), time_limit_s=50.0)
    told = requested(cluster, gpus=2, time_limit_s=10.0)
    assert told.plan == (
        Planned(job_id=JobId(""), nodes=("n1",), start_at=102.0, end_at=112.0),
        Planned(job_id=running.id, nodes=("n1",), end_at=102.0),
    )


def test_a_node_is_told_who_is_expected_on_it(monkeypatch: pytest.MonkeyPatch):
    cluster = a_cluster(("n1", 2), ("n2", 1))
    cluster.started(gpus=2, nodelist=("n1",), time_limit_s=100.0)
    cluster.started(gpus=1, nodelist=("n2",), time_limit_s=50.0)
    first, elsewhere, last = (cluster.submit(gpus=gpus, time_limit_s=10.0) for gpus in (2, 1, 2))
    cluster.schedule()
    on_n1 = (
        Planned(job_id=first, nodes=("n1",), start_at=102.0, end_at=112.0),
        Planned(job_id=last, nodes=("n1",), start_at=112.0, end_at=122.0),
    )
    on_n2 = (Planned(job_id=elsewhere, nodes=("n2",), start_at=52.0, end_at=62.0),)
    assert explain_node(StateSnapshot(cluster.state, 2.0), NodeId("n1")) == NodeOutlook(
        node=NodeId("n1"), jobs=on_n1
    )
    assert explain_node(StateSnapshot(cluster.state, 2.0), NodeId("n2")).jobs == on_n2
    monkeypatch.setattr(outlook, "MOST_JOBS", 1)
    assert explain_node(StateSnapshot(cluster.state, 2.0), NodeId("n1")).jobs == on_n1[:1]


def test_who_is_about_to_start_on_a_node_is_expected_there():
    cluster = a_cluster(("n1", 1))
    starts = cluster.submit(gpus=1, time_limit_s=10.0)
    assert explain_node(StateSnapshot(cluster.state, 5.0), NodeId("n1")).jobs == (
        Planned(job_id=starts, nodes=("n1",), start_at=5.0, end_at=15.0),
    )


def test_what_outlived_its_time_is_expected_to_go_on():
    cluster = a_cluster(("n1", 1))
    cluster.started(gpus=1, time_limit_s=10.0)
    cluster.submit(gpus=1, time_limit_s=10.0)
    last = cluster.submit(gpus=1, time_limit_s=10.0)
    cluster.schedule()
    state = StateSnapshot(cluster.state, 50.0).state()
    assert forecast(state, last) == Forecast(at=204.0)


def test_a_job_that_waits_for_another_starts_when_that_is_over():
    cluster = a_cluster(("n1", 2))
    cluster.started(gpus=1, time_limit_s=100.0)
    waits = JobId("JOB00002")
    after = (Dependency(After.OK, "JOB00001"),)
    cluster.tell(JobSubmitted(at=2.0, job_id=waits, user="ann", spec=a_spec(gpus=1), after=after))
    told = explained(cluster, waits)
    assert (told.code, told.expected) == ("dependency", Forecast(at=102.0))


def test_a_pass_on_a_copy_starts_what_the_pass_would():
    cluster = a_cluster(("n1", 1))
    new, other = cluster.submit(gpus=1), cluster.submit(gpus=1)
    cluster.tell(CancelRequested(at=1.0, job_id=other, by="ann"))
    assert list(try_pass(StateSnapshot(cluster.state, 2.0).state())) == [new]
