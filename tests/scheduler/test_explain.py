"""The full answer to "why?": whole values for small clusters, and that looking changes nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.wording import rounded
from mgpu_jupyter.model.explanations import (
    Ahead,
    Excluded,
    Explanation,
    Forecast,
    Offer,
    Planned,
    Term,
    UnitAnswer,
    Where,
)
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Planning, Scheduling, Weights
from mgpu_jupyter.scheduler.events import NodeSilent
from mgpu_jupyter.scheduler.explain.diagnosis import CHECKS
from mgpu_jupyter.scheduler.explain.questions import explain_job, explain_request
from mgpu_jupyter.scheduler.explain.snapshot import StateSnapshot
from mgpu_jupyter.scheduler.model import Job, Policy, Reason
from tests.builders import Cluster, a_spec

ARRIVAL = Weights(duration=0.0, fair_share=0.0)


def a_cluster(*nodes: tuple[str, int], **settings: object) -> Cluster:
    planning = Planning(weights=ARRIVAL, learn=False)
    return Cluster(*nodes, policy=Policy(scheduling=Scheduling(planning=planning, **settings)))


def explained(cluster: Cluster, job_id: JobId, at: float = 2.0) -> Explanation:
    return explain_job(StateSnapshot(cluster.state, at), cluster.job(job_id))


def requested(cluster: Cluster, at: float = 2.0, **spec: object) -> Explanation:
    return explain_request(StateSnapshot(cluster.state, at), "ann", a_spec(**spec))


def test_a_job_that_waits_is_told_all_of_it():
    cluster = a_cluster(("n1", 4), ("n2", 2))
    cluster.started(gpus=1, nodelist=("n1",), time_limit_s=100.0)
    first = cluster.submit(gpus=4, time_limit_s=10.0)
    second = cluster.submit(gpus=4, user="bob", time_limit_s=10.0)
    cluster.schedule()

    told = explained(cluster, second)

    now = CHECKS[: CHECKS.index("gpus")]
    assert told == Explanation(
        verdict="not_now",
        code="busy",
        text="Not now: waits for 4 GPUs free on one node: n1 has 3.",
        units=(
            UnitAnswer(
                first=0,
                count=1,
                needs="4 GPUs",
                missing=1,
                would_do=0,
                excluded=(
                    Excluded(
                        check="size",
                        text="It has 2 GPUs, 4 are needed.",
                        never=True,
                        count=1,
                        nodes=("n2",),
                        passed=CHECKS[: CHECKS.index("size")],
                    ),
                    Excluded(
                        check="gpus",
                        text="3 GPUs free, 4 needed.",
                        never=False,
                        count=1,
                        nodes=("n1",),
                        passed=now,
                    ),
                ),
            ),
        ),
        place=2,
        ahead_count=1,
        ahead=(Ahead(job_id=first, user="ann", gpus=4, priority=1 / 3600),),
        terms=(
            Term(name="age", amount=1 / 3600, points=1 / 3600),
            Term(name="duration", amount=10 / 3600, points=0.0),
            Term(name="work", amount=40 / 3600, points=0.0),
            Term(name="size", amount=4.0, points=0.0),
            Term(name="fair share", amount=1.0, points=0.0),
            Term(name="priority", amount=0.0, points=0.0),
            Term(name="qos", amount=0.0, points=0.0),
        ),
        priority=1 / 3600,
        expected=Forecast(at=112.0),
        plan=(
            Planned(job_id=second, nodes=("n1",), start_at=112.0, end_at=122.0),
            Planned(job_id=JobId("JOB00001"), nodes=("n1",), end_at=102.0),
            Planned(job_id=first, nodes=("n1",), start_at=102.0, end_at=112.0),
        ),
        offers=(
            Offer(
                text="2 nodes × 2 GPUs instead of 1 × 4",
                flags=("--nodes 2 --gpus 4",),
                patch={"nodes": 2, "gpus": 4, "gpus_per_node": None},
                where=(Where(node="n2", gpus=(0, 1)), Where(node="n1", gpus=(1, 2))),
            ),
            Offer(
                text="3 GPUs instead of 4",
                flags=("--gpus 3",),
                patch={"gpus": 3, "gpus_per_node": None},
                where=(Where(node="n1", gpus=(1, 2, 3)),),
            ),
        ),
    )
    assert explained(cluster, first).expected == Forecast(at=102.0, promised=True)


def test_nothing_that_is_tried_shows_in_the_state():
    cluster = a_cluster(("n1", 4), ("n2", 0))
    cluster.started(gpus=3, time_limit_s=100.0)
    waits = cluster.submit(gpus=4, time_limit_s=10.0)
    cluster.schedule()
    before = (
        dict(cluster.state.jobs),
        list(cluster.state.pool.ends),
        [list(bucket) for bucket in cluster.state.pool.buckets],
        [(one.at, one.spare_gpus) for one in cluster.state.pool.slots["n1"].promises],
        cluster.state.queue.place_of(waits),
        cluster.state.planner.fresh,
        cluster.state.number,
    )

    explained(cluster, waits)
    requested(cluster, gpus=1)

    after = (
        dict(cluster.state.jobs),
        list(cluster.state.pool.ends),
        [list(bucket) for bucket in cluster.state.pool.buckets],
        [(one.at, one.spare_gpus) for one in cluster.state.pool.slots["n1"].promises],
        cluster.state.queue.place_of(waits),
        cluster.state.planner.fresh,
        cluster.state.number,
    )
    assert after == before
    assert cluster.schedule(3.0) == []


def test_a_snapshot_keeps_what_was_and_says_its_size():
    cluster = a_cluster(("n1", 1))
    cluster.started(gpus=1)
    cluster.submit(gpus=1)
    snapshot = StateSnapshot(cluster.state, 7.0)
    cluster.submit(gpus=1)
    assert (snapshot.size, snapshot.now, len(snapshot.state().queue)) == (2, 7.0, 1)


def test_a_job_that_was_just_submitted_is_told_where_it_starts():
    cluster = a_cluster(("n1", 2), ("n2", 2))
    new = cluster.submit(nodes=2, gpus_per_node=2)
    told = explained(cluster, new)
    assert (told.verdict, told.code, told.text) == (
        "now",
        "now",
        "It starts now on n1 (GPU 0, 1), n2 (GPU 0, 1).",
    )
    assert told.where == (Where(node="n1", gpus=(0, 1)), Where(node="n2", gpus=(0, 1)))
    assert told.expected == Forecast(at=2.0)


@pytest.mark.parametrize(
    ("state", "reason", "verdict", "text"),
    [
        (JobState.RUNNING, None, "started", "It does not wait: it is running on n1."),
        (JobState.COMPLETED, None, "over", "It is over; it completed on n1."),
        (
            JobState.TIMEOUT,
            Reason("timeout", "Stopped."),
            "over",
            "It is over; it ran into its time limit on n1: Stopped.",
        ),
    ],
)
def test_a_job_that_does_not_wait_is_told_so(state: JobState, reason: Reason | None, verdict: str, text: str):
    cluster = a_cluster(("n1", 2))
    job = replace(cluster.started(gpus=1), state=state, reason=reason)
    told = explain_job(StateSnapshot(cluster.state, 3.0), job)
    assert told == Explanation(
        verdict=verdict, code=state.value, text=text, where=(Where(node="n1", gpus=(0,)),)
    )


@pytest.mark.parametrize(
    ("policy", "spec", "text"),
    [
        (
            "keep",
            {},
            (
                "the job is kept until n1 is back; if it never comes, `mgpu node revoke n1` lets the job run "
                "elsewhere."
            ),
        ),
        (
            "fence",
            {},
            (
                "if that stays so for another {left}, nothing of the job can be left there, and it runs "
                "elsewhere."
            ),
        ),
        (
            "fence",
            {"requeue": False},
            "if that stays so for another {left}, nothing of the job can be left there, and it fails.",
        ),
    ],
)
def test_a_job_whose_node_is_away_is_told_what_it_waits_for(policy: str, spec: dict[str, object], text: str):
    cluster = a_cluster(("n1", 2))
    job = cluster.started(gpus=1, on_disconnect=policy, **spec)
    cluster.tell(NodeSilent(at=10.0, node_id=NodeId("n1"), reason="Its connection broke.", heard_at=9.0))
    told = explained(cluster, job.id, at=20.0)
    left = rounded(9.0 + job.fence_s - 20.0)
    assert told.text == (
        f"It is starting on n1. Nothing is heard of n1 now (Its connection broke): {text.format(left=left)}"
    )


def test_a_job_that_was_cancelled_before_it_started_was_nowhere():
    job = Job(
        id=JobId("JOB00001"), number=1, user="ann", spec=a_spec(), submitted_at=1.0, state=JobState.CANCELLED
    )
    told = explain_job(StateSnapshot(a_cluster().state, 3.0), job)
    assert told.text == "It is over; it was cancelled."


def test_a_request_that_would_start_is_told_where():
    told = requested(a_cluster(("n1", 2), ("n2", 0)), gpus=0)
    assert (told.verdict, told.text, told.where) == ("now", "It would start now on n2.", (Where(node="n2"),))


def test_a_request_that_no_node_could_run_is_explained_in_place_of_being_refused():
    cluster = a_cluster(("n1", 2))
    told = requested(cluster, gpus=3)
    assert (told.verdict, told.code, told.expected) == ("never", "too-large", Forecast())
    assert told.text == (
        "Never on the nodes that are known: needs 3 GPUs on one node, but the largest, n1, has 2 GPUs and 8 "
        "CPUs: ask for less, or use "
        "--nodes; or add --wait-for-nodes to wait for a machine that has it."
    )
    assert [offer.text for offer in told.offers] == ["2 GPUs instead of 3"]


def test_a_request_that_waits_for_a_machine_is_told_that_nobody_can_say_when():
    told = requested(a_cluster(("n1", 2)), gpus=3, wait_for_nodes=True)
    assert (told.verdict, told.code, told.expected, told.place) == ("never", "too-large", Forecast(), 1)


def test_with_no_node_there_are_no_units_to_tell_of():
    told = requested(a_cluster(), gpus=1)
    assert (told.verdict, told.code, told.units, told.offers, told.expected) == (
        "not_now",
        "no-nodes",
        (),
        (),
        Forecast(),
    )


@pytest.mark.parametrize(
    ("spec", "code", "text", "expected"),
    [
        ({"hold": True}, "held", "Not now: it would be held until it is released.", Forecast()),
        ({"begin_at": 102.0}, "begin", "Not now: it begins in 1 m 40 s, as asked.", Forecast(at=102.0)),
        (
            {"dependency": "afterany:JOB00001"},
            "dependency",
            "Not now: it waits for other jobs: afterany:JOB00001.",
            Forecast(at=3602.0),
        ),
    ],
)
def test_what_is_asked_for_is_a_kind_of_its_own(
    spec: dict[str, object], code: str, text: str, expected: Forecast
):
    cluster = a_cluster(("n1", 2))
    cluster.started(gpus=1)
    told = requested(cluster, gpus=1, **spec)
    assert (told.code, told.text, told.expected, told.place) == (code, text, expected, None)
