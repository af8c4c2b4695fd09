"""The life of an attempt: what nodes tell, what the job becomes, and what is sent. Stale reports change nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.errors import LocalProtocolError
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import LaunchTask, ReportMismatch, SaveAttempt, SaveJob, SaveNode, StopTask
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    LaunchWasRefused,
    NodeHeard,
    NodeLeft,
    NodeSilent,
    StateRecovered,
    TaskReported,
    TimePassed,
)
from mgpu_jupyter.scheduler.explain import Waiting, waiting
from mgpu_jupyter.scheduler.launch import launch_spec
from mgpu_jupyter.scheduler.model import Policy, Reason, StopCause
from tests.builders import Cluster, ended, facts, job_id, key, status


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

    done = replace(job, state=JobState.COMPLETED, tasks=(ended(job),), started_at=10.0, ended_at=20.0, exit_code=0)
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

    assert (save.job.state, save.job.exit_code, save.job.reason) == (JobState.FAILED, code, Reason("exit", text))


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
        running, state=JobState.STOPPING, stop=StopCause.RANK_FAILED, reason=reason, tasks=(status(job, 0), ended(running, 1, 1, 21.0))
    )
    assert stop == [SaveJob(stopping), StopTask("n1", key(job.id), 15.0, reason.text)]
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

    assert commands == [SaveJob(replace(job, state=JobState.CANCELLED, ended_at=5.0, reason=Reason("cancelled", "Cancelled by ann.")))]
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
    assert commands[1] == StopTask("n1", key(job.id), 15.0, "Cancelled by bob.")
    assert again == []
    assert [(save.job.state, save.job.exit_code, save.job.reason) for save in end] == [(JobState.CANCELLED, 143, reason)]


def test_a_job_that_ends_well_while_it_is_cancelled_is_cancelled():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    cluster.tell(CancelRequested(at=15.0, job_id=job.id, by="ann"))

    (save,) = report(cluster, ended(job))

    assert (save.job.state, save.job.exit_code) == (JobState.CANCELLED, None)


def test_the_time_limit_counts_from_the_start_and_the_clusters_limit_is_the_upper_one():
    cluster = Cluster(("n1", 2), policy=Policy(max_time_limit_s=50.0))
    job, other = cluster.started(time_limit_s=100.0), cluster.started(time_limit_s=20.0)
    report(cluster, status(job, started_at=10.0))
    report(cluster, status(other, started_at=10.0))

    assert books.next_due_at(cluster.state) == 30.0
    assert cluster.tell(TimePassed(at=29.0)) == []
    commands = cluster.tell(TimePassed(at=31.0))
    assert commands[1] == StopTask("n1", key(other.id, epoch=2), 15.0, "Stopped at its time limit of 20 s.")
    (save,) = report(cluster, ended(other, exit_code=None, signal=15, at=32.0))
    assert (save.job.state, save.job.exit_code) == (JobState.TIMEOUT, 143)
    assert books.next_due_at(cluster.state) == 60.0


def test_a_deadline_of_an_attempt_that_is_over_means_nothing():
    cluster = Cluster(("n1", 1))
    job = cluster.started(time_limit_s=5.0)
    report(cluster, status(job))
    report(cluster, ended(job, at=12.0))

    assert cluster.tell(TimePassed(at=100.0)) == []
    assert books.next_due_at(cluster.state) is None


# --- refusals -------------------------------------------------------------------------------------


def refusal(job, fault="node", at=3.0, node="n1", **changes):
    return LaunchWasRefused(at=at, node_id=node, key=job.attempt_key, code="spawn", message="It cannot.", fault=fault, **changes)


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
        reason=Reason("spawn", "It cannot."),
        ended_at=3.0,
    )
    assert save == SaveJob(failed)


def test_a_node_that_cannot_start_it_costs_a_try_and_a_pause_and_comes_last():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started()

    record, save = cluster.tell(refusal(job))

    assert isinstance(record, SaveAttempt)
    again = save.job
    assert (again.state, again.failed_starts, again.failed_nodes) == (JobState.QUEUED, 1, ("n1",))
    assert 3.75 <= again.not_before <= 4.25
    assert job.id not in cluster.state.queue
    assert waiting(cluster.state, job.id, 3.0) == Waiting(None, Reason("delayed", "Tries again in 1 s after: It cannot."))
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
    cluster = Cluster(("n1", 1), policy=Policy(max_failed_starts=2))
    job = cluster.started()
    cluster.tell(refusal(job, at=3.0))
    cluster.tell(TimePassed(at=100.0))
    cluster.schedule(at=100.0)

    (save,) = cluster.tell(refusal(cluster.job(job.id), "stale", at=101.0))

    assert save.job.state is JobState.FAILED
    assert save.job.reason == Reason("spawn", "It could not be started 2 times; the last time on n1: It cannot.")
    assert save.job.failed_nodes == ("n1",)


def test_pauses_grow_up_to_the_cap():
    cluster = Cluster(("n1", 1), policy=Policy(max_failed_starts=9, backoff_base_s=1.0, backoff_cap_s=4.0))
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
    assert commands[1:] == [StopTask("n2", key(job.id), 15.0, "It cannot.")]
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


# --- stale and wrong reports ------------------------------------------------------------------------


def test_a_report_of_an_older_attempt_changes_nothing_and_its_process_is_ended():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    old = replace(status(job), key=key(job.id, 1, 99))

    assert report(cluster, old) == [StopTask("n1", old.key, 15.0, "This attempt is not the current one.")]
    assert report(cluster, replace(old, ended_at=20.0)) == []
    assert report(cluster, replace(old, key=key(job_id(50)))) == [
        StopTask("n1", key(job_id(50)), 15.0, "This attempt is not the current one.")
    ]
    assert cluster.job(job.id) == job


def test_a_report_about_a_rank_that_is_over_is_heard_once():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started(nodes=2)
    report(cluster, ended(job, 0))

    assert report(cluster, ended(job, 0, exit_code=5)) == []


def test_a_report_from_a_node_that_it_was_not_assigned_to_is_loud():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started()

    mismatch, stop = report(cluster, replace(status(job), node_id="n2"))

    assert mismatch == ReportMismatch(job, f"Rank 0 of job {job.id} was reported by n2, which it was not assigned to.")
    assert stop == StopTask("n2", key(job.id), 15.0, "This attempt is not the current one.")


def test_other_gpus_than_assigned_are_loud():
    cluster = Cluster(("n1", 2))
    job = cluster.started()

    mismatch, save = report(cluster, status(job, gpus=("GPU-n1-1",)))

    assert isinstance(mismatch, ReportMismatch)
    assert save.job.state is JobState.RUNNING


# --- nodes that go and come -------------------------------------------------------------------------


def test_a_silent_node_takes_no_work_until_it_is_heard_again():
    cluster = Cluster(("n1", 1))

    assert cluster.tell(NodeSilent(at=1.0, node_id="n1", reason="gone")) == [SaveNode("n1")]
    assert cluster.tell(NodeSilent(at=1.0, node_id="n1", reason="gone")) == []
    new = cluster.submit()
    cluster.schedule()
    reason = Reason("nodes-away", "Waits for 1 node to take work again: n1 is suspect.")
    assert waiting(cluster.state, new, 0.0) == Waiting(1, reason)
    assert cluster.tell(NodeHeard(at=2.0, node_id="n1")) == [SaveNode("n1")]
    assert cluster.tell(NodeHeard(at=2.0, node_id="n1")) == []
    assert cluster.tell(NodeHeard(at=2.0, node_id="n2")) == []
    cluster.schedule()
    assert cluster.job(new).state is JobState.STARTING
    cluster.tell(NodeLeft(at=3.0, node_id="n1", reason="stopped"))
    assert (cluster.state.nodes["n1"].state, cluster.state.nodes["n1"].reason) == (NodeState.OFFLINE, "stopped")
    assert cluster.tell(NodeLeft(at=3.0, node_id="n2", reason="stopped")) == []


def test_a_node_that_comes_back_goes_on_with_what_it_runs():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    report(cluster, status(job))

    commands = cluster.join("n1", 1, tasks=(status(job),))

    assert commands == [SaveNode("n1")]
    assert cluster.job(job.id).state is JobState.RUNNING
    assert cluster.state.nodes["n1"].holders == {"GPU-n1-0": job.id}


def test_a_launch_that_was_lost_on_the_way_is_sent_again():
    cluster = Cluster(("n1", 1))
    job = cluster.started()

    commands = cluster.join("n1", 1)

    assert commands == [SaveNode("n1"), LaunchTask(launch_spec(job, job.placements[0], 15.0))]


def test_a_stop_that_was_lost_on_the_way_is_sent_again():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    cluster.tell(CancelRequested(at=3.0, job_id=job.id, by="ann"))

    commands = cluster.join("n1", 1)

    assert commands == [SaveNode("n1"), StopTask("n1", key(job.id), 15.0, "Stopped before it was started.")]


def test_an_end_that_was_missed_is_told_in_the_hello():
    cluster = Cluster(("n1", 1))
    job = cluster.started()

    _node, save = cluster.join("n1", 1, tasks=(ended(job),))

    assert save.job.state is JobState.COMPLETED


def test_a_node_with_a_new_incarnation_lost_its_jobs_and_they_run_again():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    report(cluster, status(job))

    _node, record, save = cluster.join("n1", 1, at=30.0, incarnation="boot-2/ledger-1")

    assert record.job.attempt == 1
    assert (save.job.state, save.job.reason) == (JobState.QUEUED, Reason("node-lost", "Node n1 restarted and lost it."))
    cluster.schedule()
    again = cluster.job(job.id)
    assert (again.attempt, again.epoch, again.placements[0].incarnation) == (2, 2, "boot-2/ledger-1")


def test_a_task_that_was_heard_and_is_not_told_any_more_is_lost_and_never_started_a_second_time():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    report(cluster, status(job))

    commands = cluster.join("n1", 1)

    assert [type(command) for command in commands] == [SaveNode, SaveAttempt, SaveJob]


def test_a_lost_job_that_must_not_run_again_fails():
    cluster = Cluster(("n1", 1))
    job = cluster.started(requeue=False)

    _, save = cluster.join("n1", 1, incarnation="boot-2/ledger-1")

    assert (save.job.state, save.job.reason) == (JobState.FAILED, Reason("node-lost", "Node n1 restarted and lost it."))
    assert job.id not in cluster.state.jobs


def test_a_task_that_its_node_calls_lost_runs_again_without_a_pause():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    report(cluster, status(job))

    _record, save = report(cluster, ended(job, exit_code=None, signal=9, lost=True, reason="keeper lost"))

    assert save.job.reason == Reason("node-lost", "Node n1 lost it: keeper lost.")
    assert (save.job.state, save.job.not_before) == (JobState.QUEUED, 0.0)
    assert job.id in cluster.state.queue


def test_a_lost_rank_of_a_cancelled_job_ends_it():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started(nodes=2)
    cluster.tell(CancelRequested(at=3.0, job_id=job.id, by="ann"))

    first = report(cluster, ended(job, 0, exit_code=None, signal=9, lost=True, reason="keeper lost"))
    second = report(cluster, ended(job, 1, exit_code=None, signal=15))

    assert [save.job.state for save in (*first, *second)] == [JobState.STOPPING, JobState.CANCELLED]


# --- recovery ---------------------------------------------------------------------------------------


def test_recovery_brings_back_queue_holders_deadlines_and_counters():
    before = Cluster(("n1", 3), ("n2", 1))
    running, waiting_job = before.started(time_limit_s=60.0), before.submit(gpus=3)
    report(before, status(running))
    delayed = before.started()
    before.tell(refusal(delayed, at=5.0))
    elsewhere = before.started(nodelist=("n2",))

    after = Cluster()
    jobs = tuple(before.state.jobs.values())
    event = StateRecovered(
        at=100.0, jobs=jobs, nodes=(("n1", facts("n1", 3)), ("n2", facts("n2", 1))), epoch=before.state.epoch, number=before.state.number
    )
    assert after.tell(event) == []

    assert after.state.jobs == before.state.jobs
    assert list(after.state.queue) == [waiting_job]
    assert after.state.deadlines == before.state.deadlines
    assert after.state.delayed == before.state.delayed
    assert (after.state.epoch, after.state.number) == (3, 4)
    assert after.state.nodes["n2"].holders == {"GPU-n2-0": elsewhere.id}
    node = after.state.nodes["n1"]
    assert (node.state, node.holders) == (NodeState.OFFLINE, {"GPU-n1-0": running.id})
    assert node.reason == "It has not connected since the master started."


def test_a_job_that_moves_where_it_may_not_is_a_bug_that_is_named():
    cluster = Cluster(("n1", 1))
    job = cluster.started()

    with pytest.raises(LocalProtocolError, match="cannot go from completed to running"):
        books.move(cluster.state, replace(job, state=JobState.COMPLETED), state_=JobState.RUNNING)


def test_a_job_whose_node_is_unknown_can_still_end():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    del cluster.state.nodes["n1"]

    (save,) = report(cluster, ended(job))

    assert save.job.state is JobState.COMPLETED
