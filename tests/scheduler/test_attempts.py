"""The life of an attempt: what nodes tell, what the job becomes, and what is sent. Stale reports change
nothing.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Scheduling
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import SaveJob, SaveNode, StopTask
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    TaskReported,
    TimePassed,
)
from mgpu_jupyter.scheduler.model import Policy, Reason, StopCause
from tests.builders import Cluster, ended, key, status


def report(cluster, task, at=20.0):
    return cluster.tell(TaskReported(at=at, status=task))


def test_a_started_task_makes_the_job_run():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    task = status(job)

    commands = report(cluster, task)

    assert commands == [SaveJob(replace(job, state=JobState.RUNNING, tasks=(task,), started_at=10.0))]
    assert report(cluster, task) == []


def test_a_gang_runs_when_all_of_it_was_heard():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started(nodes=2)

    first = report(cluster, status(job, 1, started_at=11.0))
    second = report(cluster, status(job, 0, started_at=12.0))

    assert first == [SaveJob(replace(job, tasks=(status(job, 1, started_at=11.0),)))]
    tasks = (status(job, 0, started_at=12.0), status(job, 1, started_at=11.0))
    assert second == [SaveJob(replace(job, state=JobState.RUNNING, tasks=tasks, started_at=12.0))]


def test_a_short_job_may_be_over_before_its_start_was_told():
    cluster = Cluster(("n1", 1))
    job = cluster.started()

    commands = report(cluster, ended(job))

    done = replace(
        job, state=JobState.COMPLETED, tasks=(ended(job),), started_at=10.0, ended_at=20.0, exit_code=0
    )
    assert commands == [SaveJob(done)]
    assert cluster.state.jobs == {}
    assert cluster.state.nodes["n1"].holders == {}
    assert cluster.state.wants_pass


@pytest.mark.parametrize(
    ("exit_code", "signal", "reason", "code", "text"),
    [
        (3, None, "", 3, "It ended with exit code 3 on n1."),
        (None, 9, "", 137, "It ended with signal 9 on n1."),
        (1, None, "out of memory", 1, "It ended with exit code 1 on n1 (out of memory)."),
    ],
)
def test_a_failing_job_says_how_it_ended(exit_code, signal, reason, code, text):
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    task = ended(job, exit_code=exit_code, signal=signal, reason=reason)

    (save,) = report(cluster, task)

    assert (save.job.state, save.job.exit_code, save.job.reason) == (
        JobState.FAILED,
        code,
        Reason("exit", text),
    )


def test_the_first_rank_that_fails_takes_the_others_down_and_is_the_one_that_is_named():
    """Rank 1 is heard of first, but rank 0 ended first: the report names rank 0."""
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started(nodes=2)
    report(cluster, status(job, 0))
    report(cluster, status(job, 1))
    running = cluster.job(job.id)

    stop = report(cluster, ended(running, 1, exit_code=1, at=21.0))
    end = report(cluster, ended(running, 0, exit_code=7, at=20.5))

    reason = Reason("exit", "Rank 1 ended with exit code 1 on n2.")
    stopping = replace(
        running,
        state=JobState.STOPPING,
        kill_at=stop[0].job.kill_at,
        stop=StopCause.RANK_FAILED,
        reason=reason,
        tasks=(status(job, 0), ended(running, 1, 1, 21.0)),
    )
    assert stop == [SaveJob(stopping), StopTask("n1", key(job.id), 15.0, reason.text, StopCause.RANK_FAILED)]
    (save,) = end
    assert (save.job.state, save.job.exit_code) == (JobState.FAILED, 7)
    assert save.job.reason == Reason("exit", "Rank 0 ended with exit code 7 on n1.")


def test_a_rank_that_ends_well_waits_for_the_others():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started(nodes=2)

    first = report(cluster, ended(job, 0))
    second = report(cluster, ended(job, 1))

    assert first == [SaveJob(replace(job, tasks=(ended(job, 0),)))]
    assert [save.job.state for save in second] == [JobState.COMPLETED]


# --- cancel and time limit ------------------------------------------------------------------------


def test_cancelling_a_queued_job_ends_it_at_once():
    cluster = Cluster()
    new = cluster.submit()
    job = cluster.job(new)

    commands = cluster.tell(CancelRequested(at=5.0, job_id=new, by="ann"))

    assert commands == [
        SaveJob(
            replace(
                job, state=JobState.CANCELLED, ended_at=5.0, reason=Reason("cancelled", "Cancelled by ann.")
            )
        )
    ]
    assert cluster.tell(CancelRequested(at=6.0, job_id=new, by="ann")) == []


def test_cancelling_a_running_job_stops_its_tree_and_waits_for_the_end():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    report(cluster, status(job))

    commands = cluster.tell(CancelRequested(at=15.0, job_id=job.id, by="bob"))
    again = cluster.tell(CancelRequested(at=15.0, job_id=job.id, by="bob"))
    end = report(cluster, ended(job, exit_code=None, signal=15))

    reason = Reason("cancelled", "Cancelled by bob.")
    assert [type(command) for command in commands] == [SaveJob, StopTask]
    assert commands[1] == StopTask("n1", key(job.id), 15.0, "Cancelled by bob.", StopCause.CANCELLED)
    assert again == []
    assert [(save.job.state, save.job.exit_code, save.job.reason) for save in end] == [
        (JobState.CANCELLED, 143, reason)
    ]


def test_a_stop_that_was_lost_with_its_connection_is_repeated_when_the_node_says_hello():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started(nodes=2)
    report(cluster, status(job, 0))
    report(cluster, status(job, 1))
    cluster.tell(CancelRequested(at=15.0, job_id=job.id, by="bob"))
    node = job.placements[0].node_id

    running = cluster.join(node, 1, at=16.0, tasks=(status(job, 0),))
    report(cluster, ended(job, 0, exit_code=None, signal=15))
    over = cluster.join(node, 1, at=17.0, tasks=(ended(job, 0, exit_code=None, signal=15),))

    assert running == [
        SaveNode(node),
        StopTask(node, key(job.id), 15.0, "Cancelled by bob.", StopCause.CANCELLED),
    ]
    assert over == [SaveNode(node)]


def test_a_job_that_ends_well_while_it_is_cancelled_is_cancelled():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    cluster.tell(CancelRequested(at=15.0, job_id=job.id, by="ann"))

    (save,) = report(cluster, ended(job))

    assert (save.job.state, save.job.exit_code) == (JobState.CANCELLED, None)


def test_the_time_limit_counts_from_the_start_and_the_clusters_limit_is_the_upper_one():
    cluster = Cluster(("n1", 2), policy=Policy(scheduling=Scheduling(max_time_s=50.0)))
    job, other = cluster.started(time_limit_s=100.0), cluster.started(time_limit_s=20.0)
    report(cluster, status(job, started_at=10.0))
    report(cluster, status(other, started_at=10.0))

    assert books.next_due_at(cluster.state) == 30.0
    assert cluster.tell(TimePassed(at=29.0)) == []
    commands = cluster.tell(TimePassed(at=31.0))
    assert commands[1] == StopTask(
        "n1", key(other.id, epoch=2), 15.0, "Stopped at its time limit of 20 s.", StopCause.TIMEOUT
    )
    (save,) = report(cluster, ended(other, exit_code=None, signal=15, at=32.0))
    assert (save.job.state, save.job.exit_code) == (JobState.TIMEOUT, 143)
    assert books.next_due_at(cluster.state) == 60.0


@pytest.mark.parametrize(
    ("told", "started"),
    [(15.0, 15.0), (-86_400.0, 2.0), (86_400.0, 20.0)],
    ids=["right", "a day behind", "a day ahead"],
)
def test_a_node_whose_clock_is_wrong_ends_no_job_before_or_long_after_its_time(told, started):
    cluster = Cluster(("n1", 1))
    job = cluster.started(time_limit_s=100.0)

    (save,) = report(cluster, status(job, started_at=told), at=20.0)
    assert (save.job.started_at, books.next_due_at(cluster.state)) == (started, started + 100.0)
    (save,) = report(cluster, ended(save.job, started_at=told, at=told + 5.0), at=25.0)
    assert (save.job.state, save.job.started_at) == (JobState.COMPLETED, started)
    assert started <= save.job.ended_at <= 25.0


def test_a_deadline_of_an_attempt_that_is_over_means_nothing():
    cluster = Cluster(("n1", 1))
    job = cluster.started(time_limit_s=5.0)
    report(cluster, status(job))
    report(cluster, ended(job, at=12.0))

    assert cluster.tell(TimePassed(at=100.0)) == []
    assert books.next_due_at(cluster.state) is None
