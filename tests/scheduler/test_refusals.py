"""Launches that a node refuses, and jobs that run again."""

from __future__ import annotations

from msgspec.structs import replace

from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Retries, Scheduling
from mgpu_jupyter.scheduler.commands import SaveAttempt, SaveJob, SaveNode, StopTask
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    LaunchWasRefused,
    TimePassed,
)
from mgpu_jupyter.scheduler.explain.waiting import Waiting, waiting
from mgpu_jupyter.scheduler.model import GivenUp, Policy, Reason, StopCause
from tests.builders import Cluster, ended, job_id, key, status
from tests.scheduler.test_attempts import report

# --- refusals -------------------------------------------------------------------------------------


def refusal(job, fault="node", at=3.0, node="n1", **changes):
    return LaunchWasRefused(
        at=at, node_id=node, key=job.attempt_key, code="spawn", message="It cannot.", fault=fault, **changes
    )


def test_a_program_that_does_not_exist_fails_the_job_as_a_shell_would():
    cluster = Cluster(("n1", 1))
    job = cluster.started()

    (save,) = cluster.tell(refusal(job, "request", exit_code=127))

    failed = replace(
        job,
        state=JobState.FAILED,
        refused=(0,),
        stop=StopCause.RANK_FAILED,
        exit_code=127,
        given_up=(GivenUp(ranks=(0,), at=3.0, text="It cannot."),),
        reason=Reason("spawn", "It could not be started on n1: It cannot."),
        ended_at=3.0,
    )
    assert save == SaveJob(failed)


def test_a_node_that_cannot_start_it_costs_a_try_and_a_pause_and_comes_last():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started()

    record, save, node = cluster.tell(refusal(job))

    assert (type(record), node) == (SaveAttempt, SaveNode("n1"))
    again = save.job
    assert (again.state, again.failed_starts, again.failed_nodes) == (JobState.QUEUED, 1, ("n1",))
    assert 3.75 <= again.not_before <= 4.25
    assert job.id not in cluster.state.queue
    assert waiting(cluster.state, job.id, 3.0) == Waiting(
        None, Reason("delayed", "Tries again in 1 s after: It could not be started on n1: It cannot.")
    )
    cluster.tell(TimePassed(at=3.5))
    assert job.id not in cluster.state.queue
    cluster.tell(TimePassed(at=5.0))
    assert cluster.state.wants_pass
    cluster.schedule()
    second = cluster.job(job.id)
    assert (second.attempt, second.epoch, second.placements[0].node_id) == (2, 2, "n2")


def test_a_delayed_job_that_was_cancelled_does_not_come_back():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    cluster.tell(refusal(job))
    cluster.tell(CancelRequested(at=3.5, job_id=job.id, by="ann"))

    assert cluster.tell(TimePassed(at=10.0)) == []
    assert cluster.state.jobs == {}


def test_after_the_last_try_the_job_fails_and_says_how_often():
    cluster = Cluster(("n1", 1), policy=Policy(scheduling=Scheduling(retries=Retries(max_failed_starts=2))))
    job = cluster.started()
    cluster.tell(refusal(job, at=3.0))
    cluster.tell(TimePassed(at=100.0))
    cluster.schedule(at=100.0)

    save, *_ = cluster.tell(refusal(cluster.job(job.id), at=101.0))

    assert save.job.state is JobState.FAILED
    assert save.job.reason == Reason(
        "spawn", "It could not be started 2 times; the last time on n1: It cannot."
    )
    assert save.job.failed_nodes == ("n1",)


def test_launches_that_came_too_late_are_no_failed_starts():
    """As many as a broken network brings: the job waits a little each time and is not given up."""
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    for number in range(1, 12):
        at = 100.0 * number
        text = "The launch came too late: its lease had run out."
        refusal = LaunchWasRefused(
            at=at, node_id="n1", key=job.attempt_key, code="stale", message=text, fault="stale"
        )
        cluster.tell(refusal)
        waiting_job = cluster.job(job.id)
        assert (waiting_job.state, waiting_job.failed_starts, waiting_job.failed_nodes) == (
            JobState.QUEUED,
            0,
            (),
        )
        assert at < waiting_job.not_before < at + 10.0
        cluster.tell(TimePassed(at=at + 50.0))
        cluster.schedule(at=at + 50.0)
        job = cluster.job(job.id)

    assert (job.state, job.attempt) == (JobState.STARTING, 12)


def test_pauses_grow_up_to_the_cap():
    cluster = Cluster(
        ("n1", 1),
        policy=Policy(
            scheduling=Scheduling(
                retries=Retries(max_failed_starts=9, backoff_base_s=1.0, backoff_cap_s=4.0, node_failures=99)
            )
        ),
    )
    job, at, pauses = cluster.started(), 0.0, []
    for _ in range(5):
        cluster.tell(refusal(cluster.job(job.id), at=at))
        pauses.append(cluster.job(job.id).not_before - at)
        at = cluster.job(job.id).not_before
        cluster.tell(TimePassed(at=at))
        cluster.schedule(at=at)

    for pause, nominal in zip(pauses, [1.0, 2.0, 4.0, 4.0, 4.0], strict=True):
        assert 0.75 * nominal <= pause <= 1.25 * nominal


def test_a_refused_rank_takes_its_gang_down_and_the_job_waits_for_all_of_it():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started(nodes=2)
    report(cluster, status(job, 1))

    commands = cluster.tell(refusal(job, "node"))
    assert commands[1:] == [
        StopTask("n2", key(job.id), 15.0, "It could not be started on n1: It cannot.", StopCause.REQUEUE),
        SaveNode("n1"),
    ]
    assert cluster.job(job.id).state is JobState.STOPPING
    record, save = report(cluster, ended(job, 1, exit_code=None, signal=15))
    assert (type(record), save.job.state) == (SaveAttempt, JobState.QUEUED)


def test_a_stop_that_met_no_process_ends_the_job():
    """The node answers a stop of something it never started with a refusal."""
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    cluster.tell(CancelRequested(at=3.0, job_id=job.id, by="ann"))

    (save,) = cluster.tell(refusal(job, "stale", at=4.0))

    assert (save.job.state, save.job.ended_at) == (JobState.CANCELLED, 4.0)


def test_stale_refusals_change_nothing():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started()

    assert cluster.tell(refusal(replace(job, epoch=99))) == []
    assert cluster.tell(refusal(job, node="n2")) == []
    cluster.tell(refusal(job))
    assert cluster.tell(refusal(job)) == []
    assert cluster.tell(refusal(replace(job, id=job_id(77)))) == []


def test_a_job_that_fails_runs_again_as_often_as_it_may():
    cluster = Cluster(("n1", 1))
    job = cluster.started(retries=1)

    record, again = report(cluster, ended(job, exit_code=3))

    assert isinstance(record, SaveAttempt)
    assert (again.job.state, again.job.retried, again.job.reason.text) == (
        JobState.QUEUED,
        1,
        "It ended with exit code 3 on n1.",
    )
    assert again.job.not_before > record.job.ended_at
    cluster.tell(TimePassed(at=again.job.not_before))
    second = next(
        command.job
        for command in cluster.schedule(at=again.job.not_before + 1.0)
        if isinstance(command, SaveJob)
    )
    (end,) = report(cluster, ended(second, exit_code=4), at=again.job.not_before + 50.0)
    assert (second.attempt, end.job.state, end.job.exit_code) == (2, JobState.FAILED, 4)


def test_a_job_that_was_cancelled_or_never_started_does_not_run_again():
    cluster = Cluster(("n1", 1))
    job = cluster.started(retries=3)
    cluster.tell(CancelRequested(at=15.0, job_id=job.id, by="me"))

    (end,) = report(cluster, ended(job, signal=15, exit_code=None))

    assert end.job.state is JobState.CANCELLED
    job = cluster.started(retries=3)
    refusal = LaunchWasRefused(
        at=30.0,
        node_id="n1",
        key=job.attempt_key,
        code="not-found",
        message="No.",
        fault="request",
        exit_code=127,
    )
    assert cluster.tell(refusal)[0].job.state is JobState.FAILED
