"""Nodes of one's own (`--exclusive`): where such a job starts, who is placed beside it, what all are told."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.model import GpuTrouble, Trouble
from mgpu_jupyter.model.explanations import Excluded, Where
from mgpu_jupyter.model.job import JobState, Part
from mgpu_jupyter.model.settings import Planning, Qos, Quota, Scheduling, Weights
from mgpu_jupyter.scheduler import invariants
from mgpu_jupyter.scheduler.commands import StopTask
from mgpu_jupyter.scheduler.events import GpusChanged, StateRecovered, TaskReported
from mgpu_jupyter.scheduler.explain.diagnosis import CHECKS
from mgpu_jupyter.scheduler.explain.questions import explain_job, explain_request
from mgpu_jupyter.scheduler.explain.snapshot import StateSnapshot
from mgpu_jupyter.scheduler.explain.waiting import waiting
from mgpu_jupyter.scheduler.model import Job, Policy, Reason
from tests.builders import Cluster, a_spec, ended, status

PLANNING = Planning(weights=Weights(duration=0.0, fair_share=0.0), learn=False)
PASSED = CHECKS[: CHECKS.index("exclusive")]


def a_cluster(*nodes: tuple[str, int], **settings: object) -> Cluster:
    return Cluster(*nodes, policy=Policy(scheduling=Scheduling(planning=PLANNING, **settings)))


def where(cluster: Cluster, *jobs: JobId) -> list[list[str]]:
    """Return the nodes of each job; none while it waits."""
    return [[placement.node_id for placement in cluster.job(job).placements] for job in jobs]


def over(cluster: Cluster, job: Job, at: float) -> None:
    cluster.tell(TaskReported(at=at, status=status(job, started_at=at - 1)))
    cluster.tell(TaskReported(at=at, status=ended(cluster.job(job.id), at=at)))


def reason(cluster: Cluster, job: JobId) -> str:
    told = waiting(cluster.state, job, 2.0)
    assert told is not None
    return told.reason.text


def test_it_goes_where_nobody_is_though_another_node_is_fuller():
    cluster = a_cluster(("n1", 4), ("n2", 4))
    cluster.started(gpus=1, nodelist=("n1",))

    job = cluster.started(gpus=2, exclusive=True)

    assert where(cluster, job.id) == [["n2"]]
    assert job.placements[0].gpu_indices == (0, 1)  # it is given what it asked for


@pytest.mark.parametrize(
    "beside", [{"gpus": 1}, {"gpus": 0}, {"gpus": 0, "cpus": 1}, {"gpu_ids": (3,)}, {"gpu_mem_bytes": 1}]
)
def test_nobody_is_placed_beside_it_however_little_they_ask_for(beside):
    cluster = a_cluster(("n1", 4))
    job = cluster.started(gpus=1, exclusive=True)

    other = cluster.submit(**beside)
    cluster.schedule()

    assert where(cluster, other) == [[]]
    assert reason(cluster, other).endswith(
        f"on one node: n1 runs job {job.id}, which has it to itself by --exclusive."
    )
    over(cluster, job, 5.0)
    cluster.schedule(6.0)
    assert where(cluster, other) == [["n1"]]


def test_one_that_asks_for_no_gpu_takes_the_node_all_the_same():
    cluster = a_cluster(("n1", 2), ("n2", 0))
    first = cluster.started(gpus=0, exclusive=True)
    second = cluster.started(gpus=0, exclusive=True)
    third = cluster.submit(gpus=1)
    cluster.schedule()

    # The node without GPUs comes first, as for all that need none.
    assert where(cluster, first.id, second.id, third) == [["n2"], ["n1"], []]


def test_it_waits_for_those_that_run_already_and_says_for_whom():
    cluster = a_cluster(("n1", 4), ("n2", 4))
    first = cluster.started(gpus=1, nodelist=("n1",), time_limit_s=100.0)
    cluster.started(gpus=0, nodelist=("n1",), time_limit_s=50.0)
    third = cluster.started(gpus=0, nodelist=("n2",), time_limit_s=200.0)
    head = cluster.submit(gpus=1, exclusive=True, time_limit_s=10.0)

    cluster.schedule()

    told = waiting(cluster.state, head, 2.0)
    assert told is not None
    assert told.reason == Reason(
        "busy",
        f"Waits for 1 GPU free on one node of its own: n1 runs job {first.id} and 1 more and --exclusive "
        f"needs it empty, n2 runs job {third.id} and --exclusive needs it empty.",
    )
    assert told.expected_at == 102.0  # when the last of n1 is expected to end


def test_its_promise_keeps_the_whole_node_and_those_who_end_in_time_may_overtake():
    cluster = a_cluster(("n1", 4))
    first = cluster.started(gpus=1, time_limit_s=100.0)
    head = cluster.submit(gpus=1, exclusive=True, time_limit_s=10.0)
    long, longer = cluster.submit(gpus=1, time_limit_s=101.0), cluster.submit(gpus=0, time_limit_s=101.0)
    short = cluster.submit(gpus=1, time_limit_s=100.0)

    cluster.schedule()

    assert [(one.job_id, one.at) for one in cluster.state.planner.promises] == [(head, 102.0)]
    assert where(cluster, long, longer, short) == [[], [], ["n1"]]
    over(cluster, first, 50.0)
    over(cluster, cluster.job(short), 60.0)
    cluster.schedule(61.0)
    assert where(cluster, head, long, longer) == [["n1"], [], []]


def test_behind_a_promise_it_takes_no_node_that_is_promised():
    cluster = a_cluster(("n1", 4))
    cluster.started(gpus=2, time_limit_s=100.0)
    head = cluster.submit(gpus=3, time_limit_s=10.0)
    alone = cluster.submit(gpus=1, exclusive=True, time_limit_s=5.0)
    cluster.schedule()

    told = explain_job(StateSnapshot(cluster.state, 2.0), cluster.job(alone))

    # The head runs from 102 to 112; the node is empty only then.
    assert (where(cluster, head, alone), told.expected.at) == ([[], []], 112.0)


def test_conservative_promises_stand_one_behind_the_other():
    planning = replace(PLANNING, reservations=10)
    cluster = Cluster(("n1", 4), policy=Policy(scheduling=Scheduling(planning=planning)))
    cluster.started(gpus=2, time_limit_s=100.0)
    jobs = [
        cluster.submit(gpus=1, exclusive=True, time_limit_s=10.0),
        cluster.submit(gpus=0, time_limit_s=1000.0),
        cluster.submit(gpus=1, exclusive=True, time_limit_s=10.0),
    ]
    cluster.schedule()

    assert [(one.job_id, one.at) for one in cluster.state.planner.promises] == [
        (jobs[0], 102.0),
        (jobs[1], 112.0),
        (jobs[2], 1112.0),
    ]


def test_a_gang_has_each_of_its_nodes_to_itself():
    cluster = a_cluster(("n1", 2), ("n2", 2), ("n3", 2))
    first = cluster.started(gpus=1, nodelist=("n2",))
    gang = cluster.started(nodes=2, gpus_per_node=1, exclusive=True)
    other = cluster.submit(nodes=2, gpus_per_node=1)
    cluster.schedule()

    assert where(cluster, gang.id, other) == [["n1", "n3"], []]
    over(cluster, first, 5.0)
    again = cluster.submit(nodes=2, gpus_per_node=1, exclusive=True)
    cluster.schedule(6.0)
    assert reason(cluster, again) == (
        "Waits for 1 GPU free on each of 2 nodes of its own (1 missing): "
        f"n1 runs job {gang.id}, which has it to itself by --exclusive, "
        f"n3 runs job {gang.id}, which has it to itself by --exclusive."
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"parts": (Part(gpus=2), Part(gpus=1)), "nodes": 2},
        {"parts": (Part(gpus=1), Part(gpus=1))},
        {"node_gpu_ids": {"n1": (0,), "n3": (1,)}},
        {"gpu_ids": (1,), "nodelist": ("n1",)},
    ],
)
def test_however_the_size_is_said(asked):
    cluster = a_cluster(("n1", 4), ("n2", 4), ("n3", 4))
    cluster.started(gpus=0, nodelist=("n2",))
    job = cluster.started(exclusive=True, **asked)
    used = {placement.node_id for placement in job.placements}
    others = [cluster.submit(gpus=1, nodelist=(name,)) for name in ("n1", "n2", "n3")]
    cluster.schedule()

    assert "n2" not in used
    assert [bool(nodes) for nodes in where(cluster, *others)] == [
        name not in used for name in ("n1", "n2", "n3")
    ]


def test_explain_names_the_check_and_offers_to_do_without():
    cluster = a_cluster(("n1", 4), ("n2", 4))
    first = cluster.started(gpus=1, nodelist=("n1",))
    alone = cluster.started(gpus=1, nodelist=("n2",), exclusive=True)

    told = explain_request(StateSnapshot(cluster.state, 2.0), "ann", a_spec(gpus=1, exclusive=True))

    (unit,) = told.units
    assert (told.verdict, unit.needs) == ("not_now", "1 GPU of a node to itself")
    assert unit.excluded == (
        Excluded(
            check="exclusive",
            text=f"It runs job {first.id} and --exclusive needs it empty.",
            never=False,
            count=1,
            nodes=("n1",),
            passed=PASSED,
        ),
        Excluded(
            check="exclusive",
            text=f"It runs job {alone.id}, which has it to itself by --exclusive.",
            never=False,
            count=1,
            nodes=("n2",),
            passed=PASSED,
        ),
    )
    assert [(offer.text, offer.patch, offer.where) for offer in told.offers] == [
        ("without --exclusive", {"exclusive": False}, (Where(node="n1", gpus=(1,)),))
    ]


def test_a_dry_run_says_the_gpus_that_were_asked_for():
    cluster = a_cluster(("n1", 4))

    told = explain_request(StateSnapshot(cluster.state, 2.0), "ann", a_spec(gpus=2, exclusive=True))

    assert (told.verdict, told.where) == ("now", (Where(node="n1", gpus=(0, 1)),))


def test_a_master_that_starts_again_keeps_the_node_to_it():
    cluster = a_cluster(("n1", 4))
    job = cluster.started(gpus=1, exclusive=True)
    after = a_cluster()
    facts = cluster.state.nodes[NodeId("n1")].facts
    after.tell(StateRecovered(at=3.0, jobs=(job,), nodes=((NodeId("n1"), facts),), epoch=1, number=1))
    after.join("n1", 4, at=4.0)
    after.count = 1

    other = after.submit(gpus=0)
    after.schedule(5.0)

    assert where(after, other) == [[]]


def test_a_gpu_that_comes_back_meanwhile_is_not_handed_out():
    cluster = a_cluster(("n1", 2))
    trouble = {"GPU-n1-1": GpuTrouble(Trouble.OUTSIDE, "In use by pid 8.")}
    cluster.tell(GpusChanged(at=1.0, node_id=NodeId("n1"), troubles=trouble))
    job = cluster.started(gpus=1, exclusive=True)
    cluster.tell(GpusChanged(at=3.0, node_id=NodeId("n1"), troubles={}))
    other = cluster.submit(gpus=1)
    cluster.schedule()
    assert where(cluster, other) == [[]]

    over(cluster, job, 5.0)
    cluster.schedule(6.0)
    assert where(cluster, other) == [["n1"]]


def test_what_it_asked_for_is_what_counts_for_quotas_and_fair_share():
    cluster = a_cluster(("n1", 4), ("n2", 4), quota=Quota(gpus=2))
    job = cluster.started(gpus=1, exclusive=True)
    second = cluster.submit(gpus=1, exclusive=True)
    cluster.schedule()

    assert where(cluster, job.id, second) == [["n1"], ["n2"]]
    assert cluster.state.quotas.counts()["gpus"][("user", "ann")] == 2
    assert cluster.state.shares.used("ann", 12.0) == pytest.approx(2 * 10.0, rel=1e-3)


def test_all_of_a_node_are_ended_for_one_that_goes_before():
    qos = {"spare": Qos(preemptible=True), "urgent": Qos(priority=1000.0)}
    cluster = a_cluster(("n1", 4), ("n2", 4), qos=qos, preemption=True)
    spare = [
        cluster.started(gpus=gpus, qos="spare", nodelist=(node,))
        for gpus, node in ((1, "n1"), (1, "n1"), (3, "n2"), (1, "n2"))
    ]
    for job in spare:
        cluster.tell(TaskReported(at=10.0, status=status(job, started_at=10.0)))
    cluster.submit(at=20.0, gpus=1, exclusive=True, qos="urgent", nodelist=("n1", "n2"), nodes=1)

    commands = cluster.schedule(21.0)

    stopped = [command.key.job_id for command in commands if isinstance(command, StopTask)]
    assert sorted(stopped) == sorted(job.id for job in spare[:2])


def test_one_with_a_node_to_itself_is_ended_for_one_that_needs_no_gpu_of_it():
    qos = {"spare": Qos(preemptible=True), "urgent": Qos(priority=1000.0)}
    cluster = a_cluster(("n1", 4), qos=qos, preemption=True)
    alone = cluster.started(gpus=1, exclusive=True, qos="spare")
    cluster.tell(TaskReported(at=10.0, status=status(alone, started_at=10.0)))
    cluster.submit(at=20.0, gpus=3, qos="urgent")

    commands = cluster.schedule(21.0)

    assert [command.key.job_id for command in commands if isinstance(command, StopTask)] == [alone.id]


def test_many_nodes_that_are_promised_by_their_number_alone_are_kept_from_it():
    cluster = a_cluster(*((f"n{number:02}", 1) for number in range(20)))
    cluster.started(nodes=4, gpus_per_node=1, time_limit_s=100.0)
    head = cluster.submit(nodes=18, gpus_per_node=1, time_limit_s=10.0)
    long = [cluster.submit(gpus=0, exclusive=True, time_limit_s=1000.0) for _ in range(3)]
    cluster.schedule()

    # Two of twenty are spare when the head begins.
    assert where(cluster, head, *long) == [[], ["n04"], ["n05"], []]
    told = explain_job(StateSnapshot(cluster.state, 2.0), cluster.job(long[2]))
    assert {out.check for out in told.units[0].excluded} == {"exclusive", "promises"}


def test_two_on_one_node_break_a_rule():
    cluster = a_cluster(("n1", 4))
    first, second = cluster.started(gpus=1), cluster.started(gpus=1)
    cluster.state.jobs[second.id] = replace(cluster.job(second.id), spec=replace(second.spec, exclusive=True))

    assert f"n1 is for {second.id} alone, but {sorted([first.id, second.id])} are there" in invariants.check(
        cluster.state
    )
    assert cluster.job(first.id).state is JobState.STARTING
