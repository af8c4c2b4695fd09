"""What waiting jobs were told: recorded once for all of one shape, and only when it changed."""

from __future__ import annotations

from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.model.explanations import Record, UnitAnswer
from mgpu_jupyter.model.settings import Planning, Quota, Scheduling, Weights
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.events import CancelRequested, NodeSilent, TaskReported
from mgpu_jupyter.scheduler.explain import history
from mgpu_jupyter.scheduler.explain.history import keys_of, merged, shape_key
from mgpu_jupyter.scheduler.model import Policy
from tests.builders import Cluster, ended


def a_cluster(*nodes: tuple[str, int], **settings: object) -> Cluster:
    planning = Planning(weights=Weights(duration=0.0, fair_share=0.0), learn=False)
    return Cluster(*nodes, policy=Policy(scheduling=Scheduling(planning=planning, **settings)))


def told(cluster: Cluster, job: JobId) -> list[tuple[float, str]]:
    """What the job's own history says, as the store would give it."""
    keys = keys_of(cluster.state, cluster.job(job))
    records = [one.record for one in cluster.records if one.key in keys]
    return [(record.at, record.code) for record in merged(records, cluster.job(job).submitted_at, 1000.0)]


def test_jobs_of_one_shape_cost_one_record():
    cluster = a_cluster(("n1", 2))
    cluster.started(gpus=2)
    jobs = [cluster.submit(gpus=1) for _ in range(5)]
    cluster.schedule(3.0)
    cluster.schedule(4.0)
    shape = shape_key(books.shape(cluster.state, cluster.job(jobs[1])))
    assert [one.key for one in cluster.records] == [jobs[0], shape]
    assert told(cluster, jobs[0]) == [(3.0, "promised-start"), (3.0, "busy")]
    assert told(cluster, jobs[1]) == [(3.0, "busy")]
    (record,) = [one.record for one in cluster.records if one.key == shape]
    (unit,) = record.units
    assert (record.text, unit.missing) == ("Waits for 1 GPU free on one node: n1 has 0.", 1)
    assert [(out.check, out.nodes) for out in unit.excluded] == [("gpus", ("n1",))]


def test_a_changed_answer_is_recorded_and_numbers_alone_are_no_change():
    cluster = a_cluster(("n1", 4), ("n2", 4))
    first = cluster.started(gpus=3, nodelist=("n1",))
    cluster.started(gpus=2, nodelist=("n2",))
    waits = cluster.submit(gpus=4, nodelist=("n1",))
    cluster.schedule(3.0)
    cluster.tell(NodeSilent(at=4.0, node_id=NodeId("n1"), reason="Silent."))
    cluster.state.wants_pass = True
    cluster.schedule(5.0)
    assert told(cluster, waits)[1:] == [(3.0, "busy"), (5.0, "nodes-away")]
    cluster.tell(TaskReported(at=6.0, status=ended(cluster.job(first.id), at=6.0)))
    cluster.schedule(7.0)
    assert told(cluster, waits)[1:] == [(3.0, "busy"), (5.0, "nodes-away")]


def test_what_is_a_jobs_own_goes_under_its_id():
    cluster = a_cluster(("n1", 1))
    held, later = cluster.submit(hold=True), cluster.submit(begin_at=50.0)
    assert told(cluster, held) == [(1.0, "held")]
    assert told(cluster, later) == [(1.0, "begin")]
    assert {one.key for one in cluster.records} == {held, later}


def test_a_promise_that_moves_little_is_the_same():
    cluster = a_cluster(("n1", 1))
    cluster.started(time_limit_s=100.0)
    waits = cluster.submit()
    cluster.schedule(3.0)
    for at, moved in ((4.0, 110.0), (5.0, 400.0)):
        cluster.state.pool.expect_end(JobId("JOB00001"), moved)
        cluster.state.wants_pass = True
        cluster.schedule(at)
    promised = [(one.record.at, one.record.text) for one in cluster.records if one.key == waits]
    assert promised == [(3.0, "It is promised to start in 1.65 min on n1."), (5.0, "It is promised to start in 6.58 min on n1.")]


def test_a_quota_is_recorded_for_all_whom_it_keeps_and_so_is_its_end():
    cluster = a_cluster(("n1", 4), quota=Quota(gpus=1))
    running = cluster.started(gpus=1)
    waits, other = cluster.submit(gpus=1), cluster.submit(gpus=1, name="other")
    cluster.schedule(3.0)
    quota = [one for one in cluster.records if one.record.code == "quota"]
    assert [one.record.text for one in quota] == ["User ann may have 1 GPU at once and has 1; this asks for 1."]
    assert told(cluster, waits)[0] == told(cluster, other)[0] == (3.0, "quota")
    cluster.state.wants_pass = True
    cluster.schedule(3.5)
    assert [one for one in cluster.records if one.record.code == "quota"] == quota
    cluster.tell(CancelRequested(at=4.0, job_id=other, by="ann"))
    cluster.tell(CancelRequested(at=4.0, job_id=waits, by="ann"))
    cluster.tell(TaskReported(at=5.0, status=ended(running, at=5.0)))
    cluster.schedule(6.0)
    assert [one.record.code for one in cluster.records][-1] == "quota-free"
    assert cluster.state.notes.refused == {}


def test_without_nodes_the_answer_has_no_units():
    cluster = a_cluster()
    waits = cluster.submit()
    cluster.schedule(3.0)
    (record,) = [one.record for one in cluster.records]
    assert record == Record(at=3.0, code="no-nodes", text=record.text)
    assert told(cluster, waits) == [(3.0, "no-nodes")]


def test_only_a_few_lanes_are_looked_at_after_each_pass(monkeypatch):
    monkeypatch.setattr(history, "LOOKS", 0)
    cluster = a_cluster(("n1", 1))
    cluster.started()
    jobs = [cluster.submit(cpus=number) for number in range(1, 4)]
    at = 3.0
    for _ in range(6):
        cluster.state.wants_pass = True
        cluster.schedule(at)
        at += 1.0
    assert [told(cluster, job)[-1] for job in jobs] == [(3.0, "busy"), (4.0, "busy"), (5.0, "busy")]


def test_lanes_that_are_gone_are_forgotten():
    cluster = a_cluster(("n1", 1))
    cluster.started()
    jobs = [cluster.submit(cpus=number) for number in range(1, 4)]
    cluster.schedule(3.0)
    assert len(cluster.state.notes.lanes) == 3
    for job in jobs[:2]:
        cluster.tell(CancelRequested(at=4.0, job_id=job, by="ann"))
    cluster.state.wants_pass = True
    cluster.schedule(5.0)
    assert [lane.shape.groups[0].need.cpus for lane in cluster.state.notes.lanes] == [3]


def test_a_job_is_found_under_all_names_that_it_had():
    cluster = a_cluster(("n1", 1))
    job = cluster.job(cluster.submit())
    plain = keys_of(cluster.state, job)
    after = keys_of(cluster.state, replace(job, failed_nodes=(NodeId("n1"),)))
    assert (len(plain), plain[0]) == (4, job.id)
    assert set(plain) < set(after)


def test_the_changes_of_an_answer_in_order():
    def record(at: float, code: str, missing: int = 1) -> Record:
        unit = UnitAnswer(first=0, count=2, needs="1 GPU", missing=missing, would_do=0)
        return Record(at=at, code=code, text=f"{code} at {at}", units=(unit,))

    records = [record(9.0, "late"), record(1.0, "busy"), record(2.0, "away"), record(5.0, "away"), record(6.0, "away", 2)]
    assert merged(records, since=3.0, until=8.0) == (replace(record(2.0, "away"), at=3.0), record(6.0, "away", 2))
    assert merged(records[:1], since=3.0, until=8.0) == ()
    many = [record(float(number), str(number)) for number in range(1, 101)]
    assert [one.at for one in merged(many, 0.0, 1000.0)] == [float(number) for number in range(51, 101)]
