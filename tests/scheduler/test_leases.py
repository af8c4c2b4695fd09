"""Nodes that are away: what is fenced is given up when nothing of it can run any more, what is kept is waited
for.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import LaunchTask, SaveAttempt, SaveJob, SaveNode, StopTask
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    NodeHeard,
    NodeLeft,
    NodeOrdered,
    NodeSilent,
    StateRecovered,
    TaskReported,
    TimePassed,
)
from mgpu_jupyter.scheduler.launch import launch_spec
from mgpu_jupyter.scheduler.model import GivenUp, Policy, Reason, StopCause
from mgpu_jupyter.scheduler.state import ClusterState
from tests.builders import Cluster, ended, facts, status

POLICY = Policy(on_disconnect="fence", lease_s=100.0, kill_grace_s=15.0, lease_margin_s=5.0)
FENCE_S = 120.0
GIVEN_UP = Reason("node-lost", "Nothing was heard of node n1 for 120 s: its lease of 100 s ran out there.")


def running(cluster, **spec):
    job = cluster.started(**spec)
    for placement in job.placements:
        cluster.tell(TaskReported(at=10.0, status=status(job, placement.rank)))
    return cluster.job(job.id)


def silent(cluster, at=80.0, heard_at=20.0, node="n1"):
    cluster.tell(NodeSilent(at=at, node_id=NodeId(node), reason="Silent.", heard_at=heard_at))


@pytest.mark.parametrize(
    ("default", "wish", "lease_s", "fence_s"),
    [
        ("keep", "", 0.0, 0.0),
        ("keep", "fence", 100.0, 120.0),
        ("fence", "", 100.0, 120.0),
        ("fence", "keep", 0.0, 0.0),
    ],
)
def test_a_job_is_kept_or_fenced_as_it_says_else_as_the_cluster_does(default, wish, lease_s, fence_s):
    cluster = Cluster(("n1", 1), policy=replace(POLICY, on_disconnect=default))
    job = cluster.started(on_disconnect=wish)

    assert (job.lease_s, job.fence_s) == (lease_s, fence_s)
    assert launch_spec(job, job.placements[0], 15.0).lease_s == lease_s


def test_a_fenced_job_of_a_silent_node_is_given_up_when_its_lease_grace_and_margin_are_over():
    cluster = Cluster(("n1", 1), policy=POLICY)
    job = running(cluster)
    silent(cluster)

    assert books.next_due_at(cluster.state) == 20.0 + FENCE_S
    assert cluster.tell(TimePassed(at=139.9)) == []
    commands = cluster.tell(TimePassed(at=140.0))

    gone = GivenUp(ranks=(0,), at=140.0, text=GIVEN_UP.text)
    over = replace(job, refused=(0,), given_up=(gone,), ended_at=140.0, reason=GIVEN_UP, stop="requeue")
    again = replace(job, state=JobState.QUEUED, placements=(), tasks=(), started_at=None, reason=GIVEN_UP)
    assert commands == [SaveAttempt(over), SaveJob(again)]
    assert (cluster.tell(TimePassed(at=500.0)), books.next_due_at(cluster.state)) == ([SaveNode("n1")], None)


def test_the_next_attempt_has_the_next_number_and_the_old_one_is_stopped_should_it_still_be_there():
    cluster = Cluster(("n1", 1), ("n2", 1), policy=POLICY)
    job = running(cluster)
    silent(cluster)
    cluster.tell(TimePassed(at=140.0))
    launches = [command for command in cluster.schedule(at=141.0) if isinstance(command, LaunchTask)]

    assert [(launch.spec.node_id, launch.spec.key.attempt) for launch in launches] == [("n2", 2)]
    commands = cluster.join("n1", 1, at=200.0, tasks=(status(job),))
    assert StopTask(NodeId("n1"), job.attempt_key, 15.0, "This attempt is not the current one.") in commands
    assert cluster.job(job.id).attempt == 2


def test_a_job_that_must_not_run_again_fails_when_its_lease_ran_out():
    cluster = Cluster(("n1", 1), policy=POLICY)
    running(cluster, requeue=False)
    silent(cluster)

    (save,) = cluster.tell(TimePassed(at=140.0))
    assert (save.job.state, save.job.reason) == (JobState.FAILED, GIVEN_UP)


def test_a_cancelled_job_is_over_when_its_lease_ran_out():
    cluster = Cluster(("n1", 1), policy=POLICY)
    job = running(cluster)
    silent(cluster)
    cluster.tell(CancelRequested(at=90.0, job_id=job.id, by="ann"))

    (save,) = cluster.tell(TimePassed(at=140.0))
    assert save.job.state is JobState.CANCELLED


def test_the_other_ranks_of_a_lost_gang_are_ended_and_waited_for():
    cluster = Cluster(("n1", 1), ("n2", 1), policy=POLICY)
    job = running(cluster, nodes=2)
    rank = next(placement.rank for placement in job.placements if placement.node_id == "n1")
    silent(cluster)

    assert cluster.tell(TimePassed(at=119.9)) == []
    save, *stops = cluster.tell(TimePassed(at=120.0))
    text = "Nothing was heard of node n1 for 100 s: its lease ran out there."
    assert (save.job.state, save.job.reason) == (JobState.STOPPING, Reason("node-lost", text))
    assert stops == [
        StopTask(NodeId(node), job.attempt_key, 15.0, text, StopCause.REQUEUE) for node in ("n1", "n2")
    ]
    cluster.tell(TaskReported(at=130.0, status=ended(job, 1 - rank, exit_code=None, signal=15)))
    assert (cluster.tell(TimePassed(at=130.0)), cluster.job(job.id).open_ranks) == ([], {rank})
    assert cluster.tell(TimePassed(at=140.0))[-1].job.state is JobState.QUEUED


def test_a_gang_that_must_not_run_again_fails_when_a_lease_of_it_ran_out():
    cluster = Cluster(("n1", 1), ("n2", 1), policy=POLICY)
    job = running(cluster, nodes=2, requeue=False)
    silent(cluster)
    cluster.tell(TimePassed(at=120.0))
    cluster.tell(TaskReported(at=130.0, status=ended(job, 1, exit_code=None, signal=15)))
    assert cluster.tell(TimePassed(at=140.0))[-1].job.state is JobState.FAILED


def test_what_is_kept_is_waited_for_and_taken_up_again():
    cluster = Cluster(("n1", 1), policy=POLICY)
    job = running(cluster, on_disconnect="keep")
    silent(cluster)

    assert cluster.tell(TimePassed(at=1e6)) == [SaveNode("n1")]
    assert (cluster.job(job.id), books.next_due_at(cluster.state)) == (job, None)
    cluster.join("n1", 1, at=1e6, tasks=job.tasks)
    assert cluster.job(job.id) == job


@pytest.mark.parametrize("back", ["heard", "joined"])
def test_a_node_that_is_heard_in_time_keeps_its_jobs(back):
    cluster = Cluster(("n1", 1), policy=POLICY)
    job = running(cluster)
    silent(cluster)
    if back == "heard":
        cluster.tell(NodeHeard(at=130.0, node_id=NodeId("n1")))
    else:
        cluster.join("n1", 1, at=130.0, tasks=job.tasks)

    assert cluster.tell(TimePassed(at=140.0)) == []
    assert cluster.job(job.id) == job
    silent(cluster, at=200.0, heard_at=150.0)
    assert cluster.tell(TimePassed(at=269.0)) == []
    assert cluster.tell(TimePassed(at=270.0)) != []


def test_a_longer_lease_than_that_of_its_neighbour_is_waited_for():
    cluster = Cluster(("n1", 2), policy=POLICY)
    first = running(cluster)
    cluster.state.policy = replace(POLICY, lease_s=200.0)
    second = running(cluster)
    silent(cluster)

    cluster.tell(TimePassed(at=140.0))
    assert (cluster.job(first.id).state, cluster.job(second.id).state) == (JobState.QUEUED, JobState.RUNNING)
    cluster.tell(TimePassed(at=240.0))
    assert cluster.job(second.id).state is JobState.QUEUED


def test_a_node_whose_agent_left_counts_from_its_farewell_and_silence_without_a_time_from_when_it_was_seen():
    cluster = Cluster(("n1", 1), ("n2", 1), policy=POLICY)
    cluster.tell(NodeLeft(at=30.0, node_id=NodeId("n1"), reason="Bye."))
    cluster.tell(NodeSilent(at=40.0, node_id=NodeId("n2"), reason="Silent."))
    cluster.tell(NodeSilent(at=40.0, node_id=NodeId("strange"), reason="Silent."))

    assert [node.away_since for node in cluster.state.nodes.values()] == [30.0, 40.0]


def test_a_new_master_counts_from_its_own_start_and_takes_up_what_goes_on():
    cluster = Cluster(("n1", 1), ("n2", 1), policy=POLICY)
    here, away = running(cluster), running(cluster)
    on = {job.placements[0].node_id: job for job in (here, away)}
    known = tuple((NodeId(name), facts(name, 1)) for name in ("n1", "n2"))
    cluster.state = ClusterState(POLICY)
    cluster.tell(StateRecovered(at=10_000.0, jobs=(here, away), nodes=known, epoch=2, number=2))

    assert cluster.tell(TimePassed(at=10_119.0)) == []
    cluster.join("n2", 1, at=10_119.0, tasks=on["n2"].tasks)
    cluster.tell(TimePassed(at=10_120.0))
    assert {name: (cluster.job(job.id).state, cluster.job(job.id).attempt) for name, job in on.items()} == {
        "n1": (JobState.QUEUED, 1),
        "n2": (JobState.RUNNING, 1),
    }


def test_what_the_keeper_ended_at_the_end_of_its_lease_is_lost_and_runs_again():
    cluster = Cluster(("n1", 1), policy=POLICY)
    job = running(cluster)
    silent(cluster)
    task = ended(job, exit_code=None, signal=15, lost=True, reason="its lease ran out", at=125.0)

    commands = cluster.join("n1", 1, at=130.0, tasks=(task,))
    assert commands[-1].job.state is JobState.QUEUED
    assert commands[-1].job.reason == Reason("node-lost", "Node n1 lost it: its lease ran out.")


def test_a_removed_node_has_no_leases():
    cluster = Cluster(("n1", 1), policy=POLICY)
    job = running(cluster)
    silent(cluster)
    cluster.tell(TimePassed(at=140.0))
    cluster.tell(CancelRequested(at=141.0, job_id=job.id, by="ann"))
    silent(cluster, at=142.0, heard_at=30.0)
    cluster.state.leases.append((150.0, NodeId("n1")))
    cluster.tell(NodeLeft(at=143.0, node_id=NodeId("n1"), reason="Bye."))
    cluster.tell(NodeOrdered(at=144.0, node_id=NodeId("n1"), by="root", action="remove"))

    assert (cluster.state.nodes, cluster.tell(TimePassed(at=300.0))) == ({}, [])
