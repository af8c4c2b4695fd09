"""What people order about jobs: hold, release, priority, limit, requeue; and jobs that wait for other
jobs.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.errors import Conflict, Forbidden
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Partition, Scheduling
from mgpu_jupyter.model.waits import After, Dependency
from mgpu_jupyter.scheduler import books, job_orders
from mgpu_jupyter.scheduler.commands import SaveAttempt, SaveJob, StopTask
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    JobChanged,
    JobSubmitted,
    NodeDeclaredLost,
    RequeueRequested,
    StateRecovered,
    TaskReported,
    TimePassed,
)
from mgpu_jupyter.scheduler.explain.waiting import waiting
from mgpu_jupyter.scheduler.model import Policy, Reason, StopCause
from tests.builders import Cluster, a_spec, ended, facts, job_id, status


def change(cluster, new, at=5.0, **what):
    return cluster.tell(JobChanged(at=at, job_id=new, by="ann", **what))


def run(cluster, **spec):
    job = cluster.started(**spec)
    cluster.tell(TaskReported(at=10.0, status=status(job)))
    return cluster.job(job.id)


def after(cluster, *waits, at=3.0, **spec):
    cluster.count += 1
    new = job_id(cluster.count)
    cluster.tell(JobSubmitted(at=at, job_id=new, user="ann", spec=a_spec(**spec), after=tuple(waits)))
    return new


# --- hold, release, priority, limit ----------------------------------------------------------------


def test_a_held_job_starts_only_when_it_is_released():
    cluster = Cluster(("n1", 4))
    new = cluster.submit(hold=True)
    assert cluster.schedule() == []
    assert waiting(cluster.state, new, 2.0).reason.code == "held"

    (saved,) = change(cluster, new, held=False)
    cluster.schedule(6.0)

    assert saved == SaveJob(saved.job)
    assert cluster.job(new).state is JobState.STARTING


def test_a_waiting_job_can_be_held_and_gives_its_promise_away():
    cluster = Cluster(("n1", 1))
    run(cluster)
    head, second = cluster.submit(at=3.0), cluster.submit(at=4.0)
    cluster.schedule(5.0)
    assert [promise.job_id for promise in cluster.state.planner.promises] == [head]

    change(cluster, head, held=True)
    cluster.schedule(6.0)

    assert [promise.job_id for promise in cluster.state.planner.promises] == [second]
    assert change(cluster, head, held=True) == []


def test_who_begins_later_and_is_held_waits_for_both():
    cluster = Cluster(("n1", 4))
    new = cluster.submit(begin_at=100.0, hold=True)
    cluster.tell(TimePassed(at=100.0))
    assert cluster.schedule(100.0) == []
    change(cluster, new, at=101.0, held=False)
    assert cluster.job(new).id in cluster.state.queue


def test_a_new_priority_moves_a_job_ahead():
    cluster = Cluster(("n1", 1))
    run(cluster)
    first, second = cluster.submit(at=3.0), cluster.submit(at=4.0)

    (saved,) = change(cluster, second, priority=1)

    assert list(cluster.state.queue) == [second, first]
    assert saved.job.priority == 1
    assert change(cluster, second, priority=1) == []


def test_a_running_job_gets_another_limit_and_its_deadline_moves():
    cluster = Cluster(("n1", 4))
    job = run(cluster, time_limit_s=100.0)
    change(cluster, job.id, at=11.0, time_limit_s=300.0)
    assert cluster.state.pool.held[job.id].end == cluster.state.pool.held[job.id].begun + 300.0
    assert cluster.tell(TimePassed(at=110.0)) == []

    change(cluster, job.id, at=111.0, time_limit_s=120.0)
    assert books.next_due_at(cluster.state) == 130.0
    (saved, _stop) = cluster.tell(TimePassed(at=130.0))

    assert saved.job.reason == Reason("timeout", "Stopped at its time limit of 120 s.")
    assert change(cluster, job.id, at=131.0, time_limit_s=900.0) == []


def test_a_job_that_starts_or_waits_gets_another_limit():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    new = cluster.submit(at=3.0)
    change(cluster, job.id, time_limit_s=50.0)
    change(cluster, new, time_limit_s=60.0)
    cluster.schedule(6.0)

    assert cluster.state.pool.held[job.id].end == 52.0
    assert cluster.state.deadlines == []
    assert cluster.state.queue.entry(new).duration == 60.0


def test_changes_of_a_job_that_is_over_or_started_do_nothing():
    cluster = Cluster(("n1", 4))
    job = run(cluster)
    assert change(cluster, job.id, priority=5, held=True) == []
    assert change(cluster, job_id(99), priority=5) == []


POLICY = Policy(
    scheduling=Scheduling(partitions={"short": Partition(default=True, max_time_s=100.0)}, max_time_s=1000.0)
)


@pytest.mark.parametrize(
    ("state", "what", "kind", "code"),
    [
        (JobState.COMPLETED, {"priority": 1}, Conflict, "job-over"),
        (JobState.RUNNING, {"priority": 1}, Conflict, "job-started"),
        (JobState.STARTING, {"held": True}, Conflict, "job-started"),
        (JobState.STOPPING, {"time_limit_s": 1.0}, Conflict, "job-ending"),
        (JobState.RUNNING, {"time_limit_s": 101.0}, Forbidden, "limit-too-long"),
    ],
)
def test_what_comes_too_late_or_is_not_allowed_is_refused(state, what, kind, code):
    cluster = Cluster(("n1", 4), policy=POLICY)
    job = replace(cluster.job(cluster.submit()), state=state)
    with pytest.raises(kind) as caught:
        job_orders.check_change(
            cluster.state, job, JobChanged(at=1.0, job_id=job.id, by="ann", **what), is_admin=False
        )
    assert caught.value.code == code


def test_an_administrator_goes_beyond_what_the_partition_allows():
    cluster = Cluster(("n1", 4), policy=POLICY)
    job = run(cluster)
    event = JobChanged(at=11.0, job_id=job.id, by="root", time_limit_s=5000.0)
    job_orders.check_change(cluster.state, job, event, is_admin=True)
    job_orders.check_change(
        cluster.state, job, JobChanged(at=11.0, job_id=job.id, by="ann", time_limit_s=100.0), is_admin=False
    )
    job_orders.check_change(
        cluster.state, job, JobChanged(at=11.0, job_id=job.id, by="ann", held=False), is_admin=False
    )
    cluster.tell(event)
    assert cluster.tell(TimePassed(at=1500.0)) == []
    assert books.time_limit_s(cluster.state, cluster.job(job.id)) == 5000.0


# --- requeue ---------------------------------------------------------------------------------------


def test_a_running_job_is_ended_and_waits_in_its_old_place():
    cluster = Cluster(("n1", 1))
    job = run(cluster)
    later = cluster.submit(at=12.0)

    saved, stop = cluster.tell(RequeueRequested(at=13.0, job_id=job.id, by="ann"))
    assert (saved.job.state, stop) == (
        JobState.STOPPING,
        StopTask(NodeId("n1"), job.attempt_key, 15.0, "Queued again by ann.", StopCause.REQUEUE),
    )
    assert cluster.tell(RequeueRequested(at=14.0, job_id=job.id, by="ann")) == []
    record, _again = cluster.tell(
        TaskReported(at=15.0, status=ended(job, exit_code=None, signal=15, at=15.0))
    )
    assert record == SaveAttempt(record.job)
    assert list(cluster.state.queue) == [job.id, later]

    cluster.schedule(16.0)
    job = cluster.job(job.id)
    assert (job.state, job.attempt, job.failed_starts, job.preempted) == (JobState.STARTING, 2, 0, 0)


def test_what_waits_or_is_over_is_not_queued_again():
    cluster = Cluster(("n1", 1))
    job = run(cluster)
    later = cluster.submit(at=12.0)
    assert cluster.tell(RequeueRequested(at=13.0, job_id=later, by="ann")) == []
    assert cluster.tell(RequeueRequested(at=13.0, job_id=job_id(99), by="ann")) == []
    job_orders.check_requeue(job)
    for changes, code in (
        ({"state": JobState.COMPLETED}, "job-over"),
        ({"stop": StopCause.CANCELLED}, "job-ending"),
    ):
        with pytest.raises(Conflict) as caught:
            job_orders.check_requeue(replace(job, **changes))
        assert caught.value.code == code
        assert "submit it again" in caught.value.message


def test_a_job_that_is_queued_again_stays_so_when_its_node_is_lost_meanwhile():
    cluster = Cluster(("n1", 1))
    job = run(cluster, requeue=False)
    cluster.tell(RequeueRequested(at=13.0, job_id=job.id, by="ann"))
    cluster.tell(NodeDeclaredLost(at=14.0, node_id=NodeId("n1"), reason="Burnt."))
    assert (cluster.job(job.id).state, cluster.job(job.id).reason.code) == (JobState.QUEUED, "requeued")


def test_a_requeue_can_be_cancelled():
    cluster = Cluster(("n1", 1))
    job = run(cluster)
    cluster.tell(RequeueRequested(at=13.0, job_id=job.id, by="ann"))
    cluster.tell(CancelRequested(at=14.0, job_id=job.id, by="ann"))
    (saved,) = cluster.tell(TaskReported(at=15.0, status=ended(job, exit_code=None, signal=15)))
    assert saved.job.state is JobState.CANCELLED


# --- dependencies ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "exit_code", "state"),
    [
        (After.OK, 0, JobState.QUEUED),
        (After.OK, 1, JobState.CANCELLED),
        (After.NOT_OK, 1, JobState.QUEUED),
        (After.NOT_OK, 0, JobState.CANCELLED),
        (After.ANY, 0, JobState.QUEUED),
        (After.ANY, 1, JobState.QUEUED),
    ],
)
def test_who_waits_for_a_job_goes_on_or_is_cancelled_when_it_ends(kind, exit_code, state):
    cluster = Cluster(("n1", 4))
    job = run(cluster)
    new = after(cluster, Dependency(kind, job.id))
    assert cluster.schedule(11.0) == []
    assert waiting(cluster.state, new, 11.0).reason.code == "dependency"

    commands = cluster.tell(TaskReported(at=20.0, status=ended(job, exit_code=exit_code)))

    saved = [command.job for command in commands if isinstance(command, SaveJob)][-1]
    assert (saved.id, saved.state, saved.after) == (new, state, ())
    if state is JobState.CANCELLED:
        assert saved.reason.code == "dependency-never"
        assert new not in cluster.state.jobs
    else:
        cluster.schedule(21.0)
        assert cluster.job(new).state is JobState.STARTING


def test_a_chain_of_waits_falls_with_its_first():
    cluster = Cluster(("n1", 4))
    job = run(cluster)
    second = after(cluster, Dependency(After.OK, job.id))
    third = after(cluster, Dependency(After.OK, second))
    cleanup = after(cluster, Dependency(After.ANY, third))

    cluster.tell(CancelRequested(at=12.0, job_id=job.id, by="ann"))
    commands = cluster.tell(TaskReported(at=13.0, status=ended(job, exit_code=None, signal=15)))

    states = [(command.job.id, command.job.state) for command in commands]
    assert states == [
        (job.id, JobState.CANCELLED),
        (second, JobState.CANCELLED),
        (third, JobState.CANCELLED),
        (cleanup, JobState.QUEUED),
    ]
    assert cluster.state.dependents == {}


def test_after_means_started():
    cluster = Cluster(("n1", 4))
    job = cluster.started()
    new = after(cluster, Dependency(After.STARTED, job.id), Dependency(After.OK, job.id))
    only_start = after(cluster, Dependency(After.STARTED, job.id))
    only_success = after(cluster, Dependency(After.OK, job.id))

    commands = cluster.tell(TaskReported(at=10.0, status=status(job)))
    assert [command.job.id for command in commands] == [job.id, only_start]
    assert [cluster.job(one).after for one in (new, only_success)] == [(Dependency(After.OK, job.id),)] * 2
    assert cluster.tell(CancelRequested(at=11.0, job_id=only_start, by="ann"))
    cluster.tell(TaskReported(at=12.0, status=ended(job, at=12.0)))
    assert [cluster.job(one).after for one in (new, only_success)] == [(), ()]


def test_all_waits_of_a_job_must_be_over_and_only_the_last_is_saved():
    cluster = Cluster(("n1", 4))
    jobs = [run(cluster) for _ in range(3)]
    new = after(cluster, *(Dependency(After.OK, job.id) for job in jobs))
    saves = [
        [command.job.id for command in cluster.tell(TaskReported(at=20.0, status=ended(job)))] for job in jobs
    ]
    assert saves == [[jobs[0].id], [jobs[1].id], [jobs[2].id, new]]


def test_waits_survive_a_restart():
    cluster = Cluster(("n1", 4))
    over, going = run(cluster), run(cluster)
    new = after(
        cluster,
        Dependency(After.OK, over.id),
        Dependency(After.OK, going.id),
        Dependency(After.STARTED, going.id),
    )
    started_only = after(cluster, Dependency(After.STARTED, going.id))
    saved = (cluster.job(new), cluster.job(started_only))
    cluster.tell(TaskReported(at=20.0, status=ended(over)))

    again = Cluster()
    again.tell(
        StateRecovered(
            at=30.0,
            jobs=(cluster.job(going.id), *saved),
            nodes=((NodeId("n1"), facts("n1", 4)),),
            epoch=9,
            number=9,
        )
    )

    assert again.job(new).after == (Dependency(After.OK, going.id),)
    assert again.job(started_only).after == ()
    again.tell(TaskReported(at=31.0, status=ended(going)))
    assert again.job(new).id in again.state.queue
