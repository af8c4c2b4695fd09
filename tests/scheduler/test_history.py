"""What waiting jobs were told: recorded once for all of one shape, and only when it changed."""

from __future__ import annotations

from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.model.explanations import Record, UnitAnswer
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Planning, Quota, Scheduling, Weights
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import RecordAnswer
from mgpu_jupyter.scheduler.events import CancelRequested, NodeSilent, StateRecovered, TaskReported
from mgpu_jupyter.scheduler.explain import history
from mgpu_jupyter.scheduler.explain.history import keys_of, merged, shape_key, waits
from mgpu_jupyter.scheduler.machine import handle
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.scheduler.state import ClusterState
from tests.builders import Cluster, ended
from tests.scheduler.test_refusals import refusal


def a_cluster(*nodes: tuple[str, int], **settings: object) -> Cluster:
    planning = Planning(weights=Weights(duration=0.0, fair_share=0.0), learn=False)
    return Cluster(*nodes, policy=Policy(scheduling=Scheduling(planning=planning, **settings)))


def told(cluster: Cluster, job: JobId) -> list[tuple[float, str]]:
    """What the job's own history says, as the store would give it."""
    now = cluster.job(job)
    own, *shared = (
        [one.record for one in cluster.records if one.key == key] for key in keys_of(cluster.state, now)
    )
    return [
        (record.at, record.code)
        for since, until in waits(now, [one for one in cluster.attempts if one.id == job])
        for record in merged(own, shared, since, until)
    ]


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
    assert promised == [
        (3.0, "It is promised to start in 1 m 39 s on n1."),
        (5.0, "It is promised to start in 6 m 35 s on n1."),
    ]


def test_a_quota_is_recorded_for_all_whom_it_keeps_and_so_is_its_end():
    cluster = a_cluster(("n1", 4), quota=Quota(gpus=1))
    running = cluster.started(gpus=1)
    waits, other = cluster.submit(gpus=1), cluster.submit(gpus=1, name="other")
    cluster.schedule(3.0)
    quota = [one for one in cluster.records if one.record.code == "quota"]
    assert [one.record.text for one in quota] == [
        "User ann may have 1 GPU at once and has 1; this asks for 1."
    ]
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

    records = [
        record(9.0, "late"),
        record(1.0, "busy"),
        record(2.0, "away"),
        record(5.0, "away"),
        record(6.0, "away", 2),
    ]
    assert merged([], [records], since=3.0, until=8.0) == (
        replace(record(2.0, "away"), at=3.0),
        record(6.0, "away", 2),
    )
    assert merged([], [records[:1]], since=3.0, until=8.0) == ()
    assert merged([], [records], since=3.0, until=3.5) == ()
    own = record(3.0, "held")
    assert merged([record(2.5, "held"), own], [records], since=3.0, until=6.0) == (own, record(5.0, "away"))
    many = [record(float(number), str(number)) for number in range(1, 101)]
    assert [one.at for one in merged([], [many], 0.0, None)] == [float(number) for number in range(51, 101)]


def test_a_job_that_starts_at_once_is_not_told_what_one_before_it_waited_for():
    cluster = a_cluster(("n1", 1))
    first = cluster.started()
    gone = cluster.submit()
    cluster.schedule(3.0)
    assert told(cluster, gone)[-1] == (3.0, "busy")
    cluster.tell(CancelRequested(at=4.0, job_id=gone, by="ann"))
    cluster.tell(TaskReported(at=5.0, status=ended(first, at=5.0)))
    later = cluster.submit(at=60.0)
    cluster.schedule(62.0)
    behind = cluster.submit(at=63.0)
    cluster.schedule(64.0)
    assert (cluster.job(later).state, told(cluster, later)) == (JobState.STARTING, [])
    assert told(cluster, behind)[-1] == (64.0, "busy")


def test_a_job_behind_others_of_its_shape_is_told_what_they_were_told():
    cluster = a_cluster(("n1", 1))
    cluster.started()
    first = cluster.submit()
    cluster.schedule(3.0)
    second = cluster.submit(at=60.0)
    cluster.schedule(61.0)
    assert told(cluster, second) == [(60.0, "busy")]
    cluster.tell(CancelRequested(at=62.0, job_id=first, by="ann"))
    cluster.schedule(63.0)
    assert told(cluster, second)[0] == (60.0, "busy")


def test_what_a_master_before_told_ends_with_the_lane_too():
    cluster = a_cluster(("n1", 1))
    cluster.started()
    waits_on = cluster.submit()
    cluster.schedule(3.0)
    shape = shape_key(books.shape(cluster.state, cluster.job(waits_on)))
    jobs = tuple(cluster.state.jobs.values())
    again = ClusterState(cluster.state.policy)
    handle(again, StateRecovered(at=10.0, jobs=jobs, nodes=(), epoch=5, number=2))
    commands = handle(again, CancelRequested(at=11.0, job_id=waits_on, by="ann"))
    assert RecordAnswer(shape, Record(at=11.0, code="nobody-waits", text="")) in commands


def test_what_others_were_told_while_it_ran_is_not_its_own():
    cluster = a_cluster(("n1", 1), ("n2", 1))
    job = cluster.started(nodelist=("n1",))
    waiting = cluster.submit(nodelist=("n1",))
    cluster.schedule(3.0)
    assert told(cluster, waiting)[-1] == (3.0, "busy")
    cluster.tell(refusal(job, at=4.0))
    assert told(cluster, job.id) == [(4.0, "delayed")]


def test_a_job_was_in_the_queue_before_each_attempt_and_while_it_waits_again():
    first = replace(a_cluster(("n1", 1)).started(), submitted_at=1.0, placed_at=2.0, ended_at=5.0)
    second = replace(first, attempt=2, placed_at=7.0, ended_at=None)
    again = replace(second, state=JobState.QUEUED, placements=())
    assert list(waits(second, [first])) == [(1.0, 2.0), (5.0, 7.0)]
    assert list(waits(second, [first, replace(second, ended_at=9.0)])) == [(1.0, 2.0), (5.0, 7.0)]
    assert list(waits(again, [first, replace(second, ended_at=9.0)])) == [(1.0, 2.0), (5.0, 7.0), (9.0, None)]
