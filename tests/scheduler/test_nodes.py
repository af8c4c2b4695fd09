"""Nodes that go and come, reports that are stale or wrong, and a master that starts again: nothing runs
twice, nothing is lost.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.errors import LocalProtocolError
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import LaunchTask, ReportMismatch, SaveJob, SaveNode, StopTask
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    NodeDeclaredLost,
    NodeHeard,
    NodeLeft,
    NodeSilent,
    StateRecovered,
    TimePassed,
)
from mgpu_jupyter.scheduler.explain.waiting import Waiting, waiting
from mgpu_jupyter.scheduler.launch import launch_spec
from mgpu_jupyter.scheduler.model import Policy, Reason, StopCause
from tests.builders import Cluster, ended, facts, job_id, key, status
from tests.scheduler.test_attempts import report
from tests.scheduler.test_refusals import refusal

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

    save, mismatch, stop = report(cluster, replace(status(job), node_id="n2"))

    text = f"Rank 0 of job {job.id} was reported by n2, which it was not assigned to."
    assert (save, mismatch) == (
        SaveJob(replace(job, mismatches=(text,))),
        ReportMismatch(replace(job, mismatches=(text,)), text),
    )
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
    assert (cluster.state.nodes["n1"].state, cluster.state.nodes["n1"].reason) == (
        NodeState.OFFLINE,
        "stopped",
    )
    assert cluster.tell(NodeLeft(at=3.0, node_id="n2", reason="stopped")) == []


def seen(cluster):
    node = cluster.state.nodes["n1"]
    return (node.state, node.reason)


def test_a_silent_node_says_since_when_and_is_offline_after_the_set_time():
    cluster = Cluster(("n1", 1), policy=Policy(offline_s=300.0))
    since = "It broke. It was last heard at 1970-01-01 00:00:50 UTC."

    cluster.tell(NodeSilent(at=60.0, node_id="n1", reason="It broke.", heard_at=50.0))

    assert seen(cluster) == (NodeState.SUSPECT, since)
    assert books.next_due_at(cluster.state) == 350.0
    assert cluster.tell(TimePassed(at=349.9)) == []
    assert cluster.tell(TimePassed(at=350.0)) == [SaveNode("n1")]
    assert seen(cluster) == (NodeState.OFFLINE, since)
    assert books.next_due_at(cluster.state) is None
    assert cluster.tell(NodeHeard(at=400.0, node_id="n1")) == [SaveNode("n1")]
    assert seen(cluster) == (NodeState.ONLINE, "")


def test_a_node_that_was_heard_in_between_is_suspect_for_a_whole_time_again():
    cluster = Cluster(("n1", 1), policy=Policy(offline_s=300.0))
    cluster.tell(NodeSilent(at=10.0, node_id="n1", reason="It broke.", heard_at=10.0))
    cluster.tell(NodeHeard(at=200.0, node_id="n1"))
    cluster.tell(NodeSilent(at=210.0, node_id="n1", reason="It broke.", heard_at=210.0))

    assert cluster.tell(TimePassed(at=310.0)) == []
    assert seen(cluster)[0] is NodeState.SUSPECT
    assert cluster.tell(TimePassed(at=510.0)) == [SaveNode("n1")]
    assert seen(cluster)[0] is NodeState.OFFLINE


def test_one_that_said_goodbye_after_its_silence_is_offline_for_its_own_reason():
    cluster = Cluster(("n1", 1))
    cluster.tell(NodeSilent(at=10.0, node_id="n1", reason="It broke."))
    cluster.tell(NodeLeft(at=20.0, node_id="n1", reason="stopped"))

    assert cluster.tell(TimePassed(at=1000.0)) == []
    assert cluster.tell(NodeHeard(at=1001.0, node_id="n1")) == []
    assert seen(cluster) == (NodeState.OFFLINE, "stopped")


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

    assert commands == [
        SaveNode("n1"),
        StopTask("n1", key(job.id), 15.0, "Stopped before it was started.", StopCause.CANCELLED),
    ]


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
    assert (save.job.state, save.job.reason) == (
        JobState.QUEUED,
        Reason("node-lost", "Node n1 restarted and lost it."),
    )
    cluster.schedule()
    again = cluster.job(job.id)
    assert (again.attempt, again.epoch, again.placements[0].incarnation) == (2, 2, "boot-2/ledger-1")


def test_a_task_that_was_heard_and_is_not_told_is_asked_for_again_since_the_hello_may_be_older():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    report(cluster, status(job))

    _node, launch = cluster.join("n1", 1)

    assert launch == LaunchTask(launch_spec(job, job.placements[0], 15.0))
    assert cluster.job(job.id).state is JobState.RUNNING
    assert report(cluster, status(job)) == []


def test_a_lost_job_that_must_not_run_again_fails():
    cluster = Cluster(("n1", 1))
    job = cluster.started(requeue=False)

    _, save = cluster.join("n1", 1, incarnation="boot-2/ledger-1")

    assert (save.job.state, save.job.reason) == (
        JobState.FAILED,
        Reason("node-lost", "Node n1 restarted and lost it."),
    )
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
    running, waiting_job = before.started(time_limit_s=60.0, nodelist=("n1",)), before.submit(gpus=3)
    report(before, status(running))
    delayed = before.started(time_limit_s=10.0, nodelist=("n1",))
    before.tell(refusal(delayed, at=30.0))
    elsewhere = before.started(nodelist=("n2",))

    after = Cluster()
    jobs = tuple(before.state.jobs.values())
    event = StateRecovered(
        at=30.5,
        jobs=jobs,
        nodes=(("n1", facts("n1", 3)), ("n2", facts("n2", 1))),
        epoch=before.state.epoch,
        number=before.state.number,
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


# --- nodes that an operator gives up ----------------------------------------------------------------

GIVEN_UP = Reason("node-lost", "Node n1 was given up: Revoked by root: stolen.")


def give_up(cluster, node="n1"):
    return cluster.tell(NodeDeclaredLost(at=30.0, node_id=node, reason="Revoked by root: stolen."))


def test_what_a_node_ran_is_run_again_elsewhere_when_an_operator_gives_it_up():
    cluster = Cluster(("n1", 1), ("n2", 2))
    lost, stays = cluster.started(nodelist=("n1", "n2"), nodes=1), cluster.started(nodelist=("n2",))
    report(cluster, status(lost))
    report(cluster, status(stays))

    node, record, save = give_up(cluster)

    assert (node, record.job.attempt) == (SaveNode("n1"), 1)
    assert (save.job.state, save.job.reason) == (JobState.QUEUED, GIVEN_UP)
    gone = cluster.state.nodes["n1"]
    assert (gone.state, gone.reason, gone.holders) == (NodeState.OFFLINE, "Revoked by root: stolen.", {})
    cluster.schedule()
    again = cluster.job(lost.id)
    assert (again.attempt, again.placements[0].node_id) == (2, "n2")
    assert (cluster.job(stays.id).state, cluster.job(stays.id).attempt) == (JobState.RUNNING, 1)
    assert give_up(cluster) == []


def test_what_must_not_run_again_fails_and_a_late_report_of_it_changes_nothing():
    cluster = Cluster(("n1", 1))
    job = cluster.started(requeue=False)

    _, save = give_up(cluster)

    assert (save.job.state, save.job.reason) == (JobState.FAILED, GIVEN_UP)
    assert report(cluster, ended(job)) == []


def test_a_gang_that_loses_a_node_is_ended_on_the_others_before_it_runs_again():
    cluster = Cluster(("n1", 1), ("n2", 1))
    job = cluster.started(nodes=2)

    node, save, stop = give_up(cluster)

    assert (node, save.job.state) == (SaveNode("n1"), JobState.STOPPING)
    assert stop == StopTask("n2", job.attempt_key, 15.0, GIVEN_UP.text, StopCause.REQUEUE)
    _record, again = report(cluster, ended(job, 1, exit_code=None, signal=15))
    assert again.job.state is JobState.QUEUED


def test_a_node_that_nobody_knows_is_given_up_without_a_word():
    assert give_up(Cluster(("n2", 1))) == []


def test_a_revoked_node_says_so_after_a_restart_too():
    cluster = Cluster()
    nodes = (("n1", facts("n1", 1)), ("n2", facts("n2", 1)))

    cluster.tell(StateRecovered(at=1.0, nodes=nodes, reasons={"n1": "Revoked by root."}))

    assert [node.reason for node in cluster.state.nodes.values()] == [
        "Revoked by root.",
        "It has not connected since the master started.",
    ]


def test_a_clock_that_was_set_back_before_a_restart_makes_no_back_off_longer():
    before = Cluster(("n1", 2))
    refused, asked = before.started(), before.submit(begin_at=1_000_000.0)
    before.tell(refusal(refused, at=90_000.0))
    assert before.job(refused.id).not_before > 90_000.0

    after = Cluster()
    after.tell(StateRecovered(at=3600.0, jobs=tuple(before.state.jobs.values()), nodes=(), epoch=1, number=2))

    assert after.job(refused.id).not_before == 3600.0 + 30.0 * 1.25
    assert after.job(asked).not_before == 1_000_000.0
