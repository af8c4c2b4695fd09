"""A start on several nodes: all are asked, and only when all can is anything started; any other way leaves
nothing behind.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import (
    LaunchTask,
    PrepareTask,
    SaveAttempt,
    SaveJob,
    SaveNode,
    StartTask,
    StopTask,
)
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    LaunchWasPrepared,
    LaunchWasRefused,
    NodeJoined,
    StateRecovered,
    TaskReported,
    TimePassed,
)
from mgpu_jupyter.scheduler.gang import LET_GO
from mgpu_jupyter.scheduler.launch import launch_spec
from mgpu_jupyter.scheduler.model import GivenUp, Policy, Reason
from mgpu_jupyter.scheduler.state import ClusterState
from tests.builders import Cluster, facts, status

POLICY = Policy(prepare_s=15.0, kill_grace_s=5.0)
NODES = ("n1", "n2", "n3", "n4")


def four():
    """Return a cluster of four nodes and a job of four that is being prepared; rank k is on node k + 1."""
    cluster = Cluster(*((node, 1) for node in NODES), policy=POLICY)
    new = cluster.submit(nodes=4)
    cluster.schedule()
    job = cluster.job(new)
    assert [placement.node_id for placement in job.placements] == list(NODES)
    return cluster, job


def refused(cluster, job, node, code="no-directory", fault="node"):
    return cluster.tell(
        LaunchWasRefused(
            at=3.0, node_id=NodeId(node), key=job.attempt_key, code=code, message="No.", fault=fault
        )
    )


def rejoin(cluster, node, *, prepared=(), tasks=(), incarnation="boot-1/ledger-1", at=4.0):
    known = facts(node, 1, incarnation=incarnation)
    return cluster.tell(NodeJoined(at=at, node_id=NodeId(node), facts=known, tasks=tasks, prepared=prepared))[
        1:
    ]


def restarted(cluster, *jobs, at=100.0):
    """Bring a new master up on what was saved."""
    cluster.state = ClusterState(POLICY)
    known = tuple((NodeId(node), facts(node, 1)) for node in NODES)
    cluster.tell(StateRecovered(at=at, jobs=jobs, nodes=known, epoch=9, number=9))


def test_one_node_is_launched_at_once():
    cluster = Cluster(("n1", 1), policy=POLICY)
    new = cluster.submit()
    commands = cluster.schedule()
    job = cluster.job(new)

    assert commands == [SaveJob(job), LaunchTask(launch_spec(job, job.placements[0], 5.0))]
    assert not job.is_preparing


def test_all_are_asked_and_the_last_yes_starts_all():
    cluster = Cluster(*((node, 1) for node in NODES), policy=POLICY)
    new = cluster.submit(nodes=4)
    commands = cluster.schedule()
    job = cluster.job(new)
    assert commands == [
        SaveJob(job),
        *(PrepareTask(launch_spec(job, placement, 5.0), 60.0) for placement in job.placements),
    ]
    assert (job.is_preparing, books.next_due_at(cluster.state)) == (True, 17.0)

    yes = [cluster.prepared(job, rank) for rank in (2, 0, 2, 3)]
    assert yes == [
        [SaveJob(replace(job, prepared=ranks))] if ranks else [] for ranks in ((2,), (0, 2), (), (0, 2, 3))
    ]
    ready = replace(job, prepared=(0, 1, 2, 3))
    assert cluster.prepared(job, 1) == [
        SaveJob(ready),
        *(StartTask(NodeId(node), job.attempt_key) for node in NODES),
    ]
    assert (ready.is_preparing, cluster.prepared(job, 1), cluster.tell(TimePassed(at=17.0))) == (
        False,
        [],
        [],
    )
    for rank in range(4):
        cluster.tell(TaskReported(at=20.0, status=status(job, rank)))
    assert cluster.job(new).state is JobState.RUNNING


@pytest.mark.parametrize("refusing", range(4))
def test_whichever_node_refuses_all_are_let_go_and_the_job_waits_again(refusing):
    cluster, job = four()
    for rank in range(refusing):
        cluster.prepared(job, rank)
    before = cluster.job(job.id)
    node = NODES[refusing]

    record, save, *stops, health = refused(cluster, job, node, code="node-files")

    text = f"It could not be started on {node}: No."
    failed = {
        "failed_starts": 1,
        "failed_nodes": (NodeId(node),),
        "reason": Reason("node-files", text),
        "not_before": save.job.not_before,
    }
    gone = {"refused": (refusing,), "given_up": (GivenUp(ranks=(refusing,), at=3.0, text="No."),)}
    assert save.job == replace(job, state=JobState.QUEUED, placements=(), **failed)
    assert record == SaveAttempt(replace(before, stop="requeue", ended_at=3.0, **failed, **gone))
    assert stops == [StopTask(NodeId(other), job.attempt_key, 0.0, text) for other in NODES if other != node]
    assert health == SaveNode(NodeId(node))
    assert [known.failures for known in cluster.state.nodes.values()] == [int(name == node) for name in NODES]
    assert all(not known.holders for known in cluster.state.nodes.values())
    assert cluster.prepared(job, (refusing + 1) % 4) == [
        StopTask(NodeId(NODES[(refusing + 1) % 4]), job.attempt_key, 5.0, LET_GO)
    ]
    assert refused(cluster, job, NODES[refusing - 1], code="stopped", fault="stale") == []


def test_a_request_that_can_work_nowhere_fails_the_job():
    cluster, job = four()
    save, *stops = refused(cluster, job, "n2", code="no-program", fault="request")
    assert (save.job.state, len(stops)) == (JobState.FAILED, 3)


def test_who_does_not_answer_in_time_is_named_and_comes_last_and_nothing_is_counted():
    cluster, job = four()
    for rank in (0, 1):
        cluster.prepared(job, rank)
    assert cluster.tell(TimePassed(at=16.9)) == []

    _, save, *stops = cluster.tell(TimePassed(at=17.0))

    assert (save.job.state, save.job.failed_starts, save.job.failed_nodes) == (
        JobState.QUEUED,
        0,
        ("n3", "n4"),
    )
    assert save.job.reason == Reason(
        "not-prepared", "n3, n4 did not answer within 15 s whether it can start."
    )
    assert [stop.node_id for stop in stops] == list(NODES)
    assert [node.failures for node in cluster.state.nodes.values()] == [0] * 4


@pytest.mark.parametrize(
    ("sync", "folder_s", "waits_s"),
    [("", 600.0, 15.0), ("/home/ann/work", 600.0, 600.0), ("/home/ann/work", 1.0, 15.0)],
)
def test_the_nodes_of_a_job_with_a_folder_may_take_longer_and_never_less(sync, folder_s, waits_s):
    cluster = Cluster(("n1", 1), ("n2", 1), policy=replace(POLICY, folder_s=folder_s))
    new = cluster.submit(nodes=2, sync=sync)
    asked = [command.hold_s for command in cluster.schedule() if isinstance(command, PrepareTask)]
    assert asked == [4 * waits_s] * 2
    assert cluster.tell(TimePassed(at=1.9 + waits_s)) == []

    _, save, *stops = cluster.tell(TimePassed(at=2.0 + waits_s))

    text = f"n1, n2 did not answer within {waits_s:g} s whether it can start."
    assert (save.job.id, save.job.state, save.job.reason) == (
        new,
        JobState.QUEUED,
        Reason("not-prepared", text),
    )
    assert [stop.node_id for stop in stops] == ["n1", "n2"]


def test_an_attempt_that_is_over_needs_no_answer_any_more():
    cluster, job = four()
    refused(cluster, job, "n1")
    cluster.tell(CancelRequested(at=4.0, job_id=job.id, by="ann"))
    assert cluster.tell(TimePassed(at=17.0)) == []


def in_directory(cwd="/data/run"):
    """The same as `four`, of a job that wants to run in a directory."""
    cluster = Cluster(*((node, 1) for node in NODES), policy=POLICY)
    new = cluster.submit(nodes=4, cwd=cwd)
    cluster.schedule()
    return cluster, cluster.job(new)


def answer(cluster, job, rank, *, in_scratch):
    return cluster.tell(
        LaunchWasPrepared(
            at=3.0,
            node_id=job.placements[rank].node_id,
            key=job.attempt_key,
            in_scratch=in_scratch,
        )
    )


@pytest.mark.parametrize("last", range(4))
def test_a_directory_that_only_some_nodes_have_starts_nothing_and_the_node_is_named(last):
    cluster, job = in_directory()
    order = [rank for rank in range(4) if rank != last] + [last]
    for rank in order[:3]:
        answer(cluster, job, rank, in_scratch=rank in (1, 3))

    record, save, *stops = answer(cluster, job, last, in_scratch=last in (1, 3))

    text = (
        "It could not be started on n2: /data/run cannot be entered there, and can on n1: make it on every "
        "node, bring it with --sync, or name another directory with --chdir."
    )
    assert (save.job.state, save.job.reason, save.job.failed_nodes, save.job.failed_starts) == (
        JobState.QUEUED,
        Reason("no-directory", text),
        ("n2", "n4"),
        1,
    )
    assert (save.job.prepared, save.job.in_scratch, record.job.ended_at) == ((), (), 3.0)
    assert sorted(stop.node_id for stop in stops) == list(NODES)
    assert all(isinstance(stop, StopTask) for stop in stops)
    assert [node.failures for node in cluster.state.nodes.values()] == [0] * 4


@pytest.mark.parametrize("in_scratch", [False, True])
def test_a_directory_that_all_nodes_have_or_none_starts_all(in_scratch):
    cluster, job = in_directory()
    for rank in range(3):
        answer(cluster, job, rank, in_scratch=in_scratch)
    ready = replace(job, prepared=(0, 1, 2, 3), in_scratch=(0, 1, 2, 3) if in_scratch else ())
    assert answer(cluster, job, 3, in_scratch=in_scratch) == [
        SaveJob(ready),
        *(StartTask(NodeId(node), job.attempt_key) for node in NODES),
    ]


def test_a_node_that_is_asked_again_may_have_the_directory_by_then():
    cluster, job = in_directory()
    answer(cluster, job, 0, in_scratch=True)
    assert cluster.job(job.id).in_scratch == (0,)
    save, _ = rejoin(cluster, "n1")
    assert (save.job.prepared, save.job.in_scratch) == ((), ())
    for rank in range(3):
        answer(cluster, job, rank, in_scratch=False)
    save, *starts = answer(cluster, job, 3, in_scratch=False)
    assert (save.job.in_scratch, [type(start) for start in starts]) == ((), [StartTask] * 4)


def test_a_cancel_between_the_phases_is_done_at_once():
    cluster, job = four()
    cluster.prepared(job, 0)
    save, *stops = cluster.tell(CancelRequested(at=4.0, job_id=job.id, by="ann"))
    assert (save.job.state, save.job.ended_at, [stop.node_id for stop in stops]) == (
        JobState.CANCELLED,
        4.0,
        list(NODES),
    )


def test_a_node_that_knows_nothing_of_it_is_asked_again_and_its_yes_counts_no_more():
    cluster, job = four()
    cluster.prepared(job, 0)
    cluster.prepared(job, 1)
    ask = [PrepareTask(launch_spec(job, placement, 5.0), 60.0) for placement in job.placements]

    assert rejoin(cluster, "n1") == [SaveJob(replace(job, prepared=(1,))), ask[0]]
    assert rejoin(cluster, "n3") == [ask[2]]
    # What it said of the directory of the job was not heard.
    assert rejoin(cluster, "n3", prepared=(job.attempt_key,)) == [ask[2]]
    assert cluster.prepared(job, 2) == [SaveJob(replace(job, prepared=(1, 2)))]
    assert rejoin(cluster, "n3", prepared=(job.attempt_key,)) == []


@pytest.mark.parametrize("requeue", [True, False])
def test_a_node_that_started_anew_between_the_phases_sends_the_job_back(requeue):
    cluster = Cluster(("n1", 1), ("n2", 1), policy=POLICY)
    new = cluster.submit(nodes=2, requeue=requeue)
    cluster.schedule()
    job = cluster.job(new)

    _, save, stop = rejoin(cluster, job.placements[1].node_id, incarnation="boot-2/ledger-1")
    assert (save.job.state, save.job.reason.text) == (
        JobState.QUEUED,
        f"Node {job.placements[1].node_id} restarted and lost it.",
    )
    assert stop.node_id == job.placements[0].node_id


def test_a_node_that_missed_its_start_is_told_again():
    cluster, job = four()
    for rank in range(4):
        cluster.prepared(job, rank)

    assert rejoin(cluster, "n1", prepared=(job.attempt_key,)) == [StartTask(NodeId("n1"), job.attempt_key)]
    assert rejoin(cluster, "n2") == [LaunchTask(launch_spec(job, job.placements[1], 5.0))]
    (save,) = rejoin(cluster, "n3", tasks=(status(job, 2),))
    assert save.job.tasks == (status(job, 2),)


def test_what_a_node_keeps_for_nothing_is_let_go():
    cluster, job = four()
    refused(cluster, job, "n1")
    gone = replace(job, id="AAAAAAAA").attempt_key
    old = [StopTask(NodeId("n2"), key, 5.0, LET_GO) for key in (job.attempt_key, gone)]
    assert rejoin(cluster, "n2", prepared=(job.attempt_key, gone)) == old


def test_a_preparation_of_a_job_that_is_being_ended_or_runs_elsewhere_is_let_go():
    cluster, job = four()
    for rank in range(4):
        cluster.prepared(job, rank)
    cluster.join("n5", 1)
    assert rejoin(cluster, "n5", prepared=(job.attempt_key,)) == [
        StopTask(NodeId("n5"), job.attempt_key, 5.0, LET_GO)
    ]
    cluster.tell(CancelRequested(at=4.0, job_id=job.id, by="ann"))
    assert cluster.job(job.id).state is JobState.STOPPING
    assert rejoin(cluster, "n1", prepared=(job.attempt_key,)) == [
        StopTask(NodeId("n1"), job.attempt_key, 5.0, LET_GO)
    ]
    assert cluster.tell(LaunchWasPrepared(at=5.0, node_id=NodeId("n2"), key=job.attempt_key)) == []


def test_a_master_that_restarts_between_the_phases_goes_on():
    cluster, job = four()
    for rank in range(3):
        cluster.prepared(job, rank)
    restarted(cluster, cluster.job(job.id))

    assert [rejoin(cluster, node, prepared=(job.attempt_key,), at=101.0) for node in NODES[:3]] == [[]] * 3
    asked = PrepareTask(launch_spec(job, job.placements[3], 5.0), 60.0)
    assert rejoin(cluster, "n4", prepared=(job.attempt_key,), at=101.0) == [asked]
    ready = replace(job, prepared=(0, 1, 2, 3))
    starts = [StartTask(NodeId(node), job.attempt_key) for node in NODES]
    assert cluster.prepared(job, 3) == [SaveJob(ready), *starts]


def test_a_master_that_restarts_between_the_phases_gives_up_when_a_node_stays_away():
    cluster, job = four()
    cluster.prepared(job, 0)
    restarted(cluster, cluster.job(job.id))
    for node in NODES[:3]:
        rejoin(cluster, node, prepared=(job.attempt_key,), at=101.0)
    for rank in (1, 2):
        cluster.prepared(job, rank)

    _, save, *stops = cluster.tell(TimePassed(at=115.0))
    assert (save.job.state, save.job.failed_nodes, len(stops)) == (JobState.QUEUED, ("n4",), 4)


def test_a_part_that_runs_although_not_all_were_asked_is_ended_with_the_others():
    """After a store was brought back from a backup, nodes may be further than it says."""
    cluster, job = four()
    restarted(cluster, job)
    rejoin(cluster, "n1", tasks=(status(job, 0),), at=101.0)
    assert not cluster.job(job.id).is_preparing

    save, *stops = cluster.tell(TimePassed(at=115.0))
    assert (save.job.state, [stop.node_id for stop in stops]) == (JobState.STOPPING, list(NODES))
