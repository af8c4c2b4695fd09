"""Starts that fail put a node out, a trial or a start brings it back, and a delay grows until a job really
runs.
"""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.model.settings import Retries, Scheduling
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import ProbeNode, SaveJob, SaveNode
from mgpu_jupyter.scheduler.events import (
    LaunchWasRefused,
    NodeChecked,
    NodeHeard,
    NodeLeft,
    NodeMeasured,
    NodeOrdered,
    NodeProbed,
    NodeSilent,
    TimePassed,
)
from mgpu_jupyter.scheduler.health import NOT_THE_NODES
from mgpu_jupyter.scheduler.model import Load, Policy
from mgpu_jupyter.scheduler.standing import NodeHealth
from tests.builders import Cluster, ended, status
from tests.scheduler.test_attempts import report

N1 = NodeId("n1")


def a_cluster(gpus=4, **retries):
    """A node on which jobs that failed do not try again for long."""
    values = {
        "max_failed_starts": 99,
        "backoff_base_s": 9e9,
        "backoff_cap_s": 9e9,
        "jitter": 0.0,
        "probe_after_s": 10.0,
        "probe_cap_s": 35.0,
    }
    return Cluster(("n1", gpus), policy=Policy(scheduling=Scheduling(retries=Retries(**values, **retries))))


def fail(cluster, at=3.0, *, code="spool", fault="node", message="The disk is full."):
    job = cluster.started()
    event = LaunchWasRefused(at=at, node_id=N1, key=job.attempt_key, code=code, message=message, fault=fault)
    return cluster.tell(event)


def make_unhealthy(cluster, at=3.0):
    for _ in range(3):
        fail(cluster, at)
    return cluster.state.nodes[N1]


def probe(cluster, at):
    """Let the time come and return the number of the trial that is asked for."""
    save, ask = cluster.tell(TimePassed(at=at))
    assert (save, type(ask), ask.node_id) == (SaveNode(N1), ProbeNode, N1)
    return ask.number


def probed(cluster, number, at, *, ok=False, message="Still full."):
    return cluster.tell(NodeProbed(at=at, node_id=N1, number=number, ok=ok, message="" if ok else message))


def test_the_third_failed_start_in_a_row_makes_a_node_unhealthy_and_says_why():
    cluster = a_cluster()
    assert fail(cluster)[-1] == SaveNode(N1)
    fail(cluster)
    assert (cluster.state.nodes[N1].state, cluster.state.nodes[N1].health.failures) == (NodeState.ONLINE, 2)
    fail(cluster)

    node = cluster.state.nodes[N1]
    assert node.state is NodeState.UNHEALTHY
    assert (
        node.reason
        == "3 starts in a row failed on it, the last: The disk is full. It is tried again at 00:00:13 UTC."
    )
    assert (
        node.takes_work,
        node.health.failures_total,
        node.health.failed_at,
        books.next_due_at(cluster.state),
    ) == (False, 3, 3.0, 13.0)


def test_one_failure_may_be_enough():
    cluster = a_cluster(node_failures=1)
    fail(cluster)

    assert (
        cluster.state.nodes[N1].reason
        == "The last start on it failed: The disk is full. It is tried again at 00:00:13 UTC."
    )


def test_a_start_that_works_ends_the_row():
    cluster = a_cluster()
    fail(cluster)
    fail(cluster)
    job = cluster.started()

    assert [type(command) for command in report(cluster, status(job))] == [SaveNode, SaveJob]
    assert cluster.state.nodes[N1].health == NodeHealth(failures_total=2, failed_at=3.0)
    assert [type(command) for command in report(cluster, ended(job))] == [SaveJob]


def test_a_process_that_the_node_lost_is_no_start():
    cluster = a_cluster()
    fail(cluster)
    report(cluster, ended(cluster.started(), lost=True))

    assert cluster.state.nodes[N1].health.failures == 1


@pytest.mark.parametrize(
    ("code", "fault"),
    [*((code, "node") for code in sorted(NOT_THE_NODES)), ("not-found", "request"), ("stale", "stale")],
)
def test_what_says_nothing_about_other_jobs_is_not_counted(code, fault):
    cluster = a_cluster()
    fail(cluster, code=code, fault=fault)

    assert cluster.state.nodes[N1].health == NodeHealth()


def test_a_refusal_of_a_node_that_is_not_known_any_more_is_not_counted():
    cluster = a_cluster()
    job = cluster.started()
    del cluster.state.nodes[N1]
    cluster.tell(
        LaunchWasRefused(at=3.0, node_id=N1, key=job.attempt_key, code="spool", message="x", fault="node")
    )

    assert cluster.state.nodes == {}


def test_a_trial_that_works_takes_the_node_back():
    cluster = a_cluster()
    make_unhealthy(cluster)
    assert cluster.tell(TimePassed(at=12.9)) == []
    number = probe(cluster, 13.0)
    assert cluster.state.nodes[N1].reason.endswith("It is being tried now.")
    cluster.state.wants_pass = False

    assert probed(cluster, number, 14.0, ok=True) == [SaveNode(N1)]
    node = cluster.state.nodes[N1]
    assert (node.state, node.reason, cluster.state.wants_pass) == (NodeState.ONLINE, "", True)
    assert node.health == NodeHealth(failures_total=3, failed_at=3.0, probe_delay_s=10.0)
    assert probed(cluster, number, 15.0) == []


def test_delays_double_up_to_the_cap_and_the_reason_names_the_last_trial():
    cluster = a_cluster()
    make_unhealthy(cluster)
    at, delays = 13.0, []
    for _ in range(4):
        probed(cluster, probe(cluster, at), at)
        due_at = cluster.state.nodes[N1].health.probe_at
        delays.append(due_at - at)
        at = due_at

    assert delays == [20.0, 35.0, 35.0, 35.0]
    first = "3 starts in a row failed on it, the last: The disk is full."
    again = "A trial at 00:01:43 UTC failed too: Still full. It is tried again at 00:02:18 UTC."
    assert cluster.state.nodes[N1].reason == f"{first} {again}"


def test_a_trial_that_nobody_answers_failed():
    cluster = a_cluster()
    make_unhealthy(cluster)
    number = probe(cluster, 13.0)
    assert cluster.tell(TimePassed(at=27.9)) == []

    assert cluster.tell(TimePassed(at=28.0)) == [SaveNode(N1)]
    node = cluster.state.nodes[N1]
    assert (
        "failed too: Its agent did not answer within 15 s. It is tried again at 00:00:48 UTC." in node.reason
    )
    assert probed(cluster, number, 29.0, ok=True) == []
    assert probed(cluster, 0, 29.0, ok=True) == []
    assert cluster.tell(NodeProbed(at=29.0, node_id=NodeId("n9"), number=number, ok=True)) == []
    assert node.state is NodeState.UNHEALTHY


def test_a_node_whose_trials_work_and_whose_jobs_fail_is_tried_ever_more_seldom_until_a_job_starts():
    cluster = a_cluster()
    make_unhealthy(cluster)
    probed(cluster, probe(cluster, 13.0), 13.0, ok=True)
    make_unhealthy(cluster, at=20.0)
    assert cluster.state.nodes[N1].health.probe_at == 40.0
    probed(cluster, probe(cluster, 40.0), 40.0, ok=True)
    report(cluster, status(cluster.started()))
    assert cluster.state.nodes[N1].health.probe_delay_s == 0.0
    make_unhealthy(cluster, at=50.0)

    assert cluster.state.nodes[N1].health.probe_at == 60.0


def test_what_is_still_under_way_counts_and_a_late_start_does_not_bring_it_back():
    cluster = a_cluster(gpus=8)
    late, refused = cluster.started(), cluster.started()
    node = make_unhealthy(cluster)
    report(cluster, status(late))
    cluster.tell(
        LaunchWasRefused(
            at=5.0, node_id=N1, key=refused.attempt_key, code="spool", message="Full", fault="node"
        )
    )

    assert (node.state, node.health.failures, node.health.probe_at) == (NodeState.UNHEALTHY, 4, 13.0)
    assert node.reason.startswith("4 starts in a row failed on it, the last: Full.")


@pytest.mark.parametrize("how", ["silent", "left"])
def test_an_unhealthy_node_that_was_away_is_tried_at_once_when_it_is_back(how):
    cluster = a_cluster()
    make_unhealthy(cluster)
    if how == "silent":
        cluster.tell(NodeSilent(at=4.0, node_id=N1, reason="gone"))
    else:
        cluster.tell(NodeLeft(at=4.0, node_id=N1, reason="stopped"))
    assert cluster.tell(TimePassed(at=14.0)) == []
    if how == "silent":
        assert books.next_due_at(cluster.state) == 304.0, "only that it will count as offline is due"
    else:
        assert books.next_due_at(cluster.state) > 9e8
    if how == "silent":
        cluster.tell(NodeHeard(at=20.0, node_id=N1))
    else:
        cluster.join("n1", at=20.0)

    assert (cluster.state.nodes[N1].state, books.next_due_at(cluster.state)) == (NodeState.UNHEALTHY, 20.0)
    number = probe(cluster, 20.0)
    probed(cluster, number, 21.0)
    assert cluster.state.nodes[N1].health.probe_at == 41.0


def test_trials_of_nodes_that_need_none_any_more_are_left_out():
    cluster = a_cluster()
    make_unhealthy(cluster)
    cluster.tell(NodeOrdered(at=4.0, node_id=N1, by="root", action="drain"))
    assert cluster.tell(TimePassed(at=14.0)) == []
    cluster.tell(NodeOrdered(at=15.0, node_id=N1, by="root", action="resume"))
    assert (cluster.state.nodes[N1].state, cluster.state.nodes[N1].health.failures) == (NodeState.ONLINE, 0)
    make_unhealthy(cluster, at=16.0)
    cluster.join("n1", at=17.0)
    probed(cluster, probe(cluster, 17.0), 18.0, ok=True)
    make_unhealthy(cluster, at=19.0)
    del cluster.state.nodes[N1]

    assert cluster.tell(TimePassed(at=99.0)) == []


def test_load_is_noted_and_nothing_else():
    cluster = a_cluster()
    cluster.state.wants_pass = False
    load = Load(gpu_percent=50.0, cpu_percent=10.0, memory_available_bytes=1)

    assert cluster.tell(NodeMeasured(at=1.0, node_id=N1, load=load)) == []
    assert cluster.tell(NodeMeasured(at=1.0, node_id=NodeId("n9"), load=load)) == []
    assert (cluster.state.nodes[N1].load, cluster.state.wants_pass) == (load, False)
    cluster.join("n1", at=2.0)
    assert cluster.state.nodes[N1].load == load


def test_a_preferred_node_that_is_unhealthy_is_replaced_by_another():
    cluster = a_cluster()
    cluster.join("n2")
    wishes = {"prefer": ("n1",)}
    assert cluster.started(**wishes).placements[0].node_id == "n1"
    for _ in range(3):
        job = cluster.started(**wishes)
        cluster.tell(
            LaunchWasRefused(
                at=3.0, node_id=N1, key=job.attempt_key, code="spool", message="Full.", fault="node"
            )
        )

    assert cluster.started(**wishes).placements[0].node_id == "n2"


# --- what a node's own checks find -------------------------------------------------------------------


def checked(*ailments, node=N1):
    return NodeChecked(at=5.0, node_id=node, ailments=ailments)


def test_a_node_that_ails_gets_no_jobs_until_it_is_well():
    cluster = a_cluster()
    running = cluster.started()

    assert cluster.tell(checked("Its disk is full.", "Its clock is wrong.")) == [SaveNode(N1)]
    node = cluster.state.nodes[N1]
    assert (node.state, node.reason) == (NodeState.UNHEALTHY, "Its disk is full. Its clock is wrong.")
    assert cluster.job(running.id).state == "starting"
    assert cluster.tell(checked("Its disk is full.", "Its clock is wrong.")) == []
    waiting = cluster.submit()
    cluster.schedule()
    assert cluster.job(waiting).state == "queued"

    assert cluster.tell(checked()) == [SaveNode(N1)]
    cluster.schedule()
    assert (node.state, node.reason, cluster.job(waiting).state) == (NodeState.ONLINE, "", "starting")


def test_failed_starts_go_before_what_ails_a_node():
    cluster = a_cluster()
    node = make_unhealthy(cluster)
    cluster.tell(checked("Its disk is full."))

    assert (node.state, node.reason.startswith("3 starts in a row failed on it")) == (
        NodeState.UNHEALTHY,
        True,
    )


def test_nothing_is_known_of_a_node_that_is_not_there():
    assert a_cluster().tell(checked("Its disk is full.", node=NodeId("n9"))) == []
