"""The full answer to "why?": whole values for small clusters, and that looking changes nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.model.explanations import Ahead, Excluded, Explanation, Forecast, Offer, Planned, Term, UnitAnswer, Where
from mgpu_jupyter.model.job import JobState, Part
from mgpu_jupyter.model.settings import Planning, Quota, Scheduling, Weights
from mgpu_jupyter.scheduler.events import JobSubmitted, TaskReported
from mgpu_jupyter.scheduler.explain import waiting as short
from mgpu_jupyter.scheduler.explain.diagnosis import CHECKS, diagnose
from mgpu_jupyter.scheduler.explain.questions import explain_job, explain_request
from mgpu_jupyter.scheduler.explain.snapshot import Snapshot
from mgpu_jupyter.scheduler.model import ArrayPart, Job, Policy, Reason
from mgpu_jupyter.scheduler.placement.pool import FOREVER
from mgpu_jupyter.scheduler.placement.shape import Rules, Shape, shape_of
from tests.builders import Cluster, a_spec, status

ARRIVAL = Weights(duration=0.0, fair_share=0.0)


def a_cluster(*nodes: tuple[str, int], **settings: object) -> Cluster:
    planning = Planning(weights=ARRIVAL, learn=False)
    return Cluster(*nodes, policy=Policy(scheduling=Scheduling(planning=planning, **settings)))


def explained(cluster: Cluster, job_id: JobId, at: float = 2.0) -> Explanation:
    return explain_job(Snapshot(cluster.state, at), cluster.job(job_id))


def requested(cluster: Cluster, at: float = 2.0, **spec: object) -> Explanation:
    return explain_request(Snapshot(cluster.state, at), "ann", a_spec(**spec))


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
                    Excluded(check="gpus", text="3 GPUs free, 4 needed.", never=False, count=1, nodes=("n1",), passed=now),
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
    snapshot = Snapshot(cluster.state, 7.0)
    cluster.submit(gpus=1)
    assert (snapshot.size, snapshot.now, len(snapshot.state().queue)) == (2, 7.0, 1)


def test_a_job_that_was_just_submitted_is_told_where_it_starts():
    cluster = a_cluster(("n1", 2), ("n2", 2))
    new = cluster.submit(nodes=2, gpus_per_node=2)
    told = explained(cluster, new)
    assert (told.verdict, told.code, told.text) == ("now", "now", "It starts now on n1 (GPU 0, 1), n2 (GPU 0, 1).")
    assert told.where == (Where(node="n1", gpus=(0, 1)), Where(node="n2", gpus=(0, 1)))
    assert told.expected == Forecast(at=2.0)


@pytest.mark.parametrize(
    ("state", "reason", "verdict", "text"),
    [
        (JobState.RUNNING, None, "started", "It does not wait: it is running on n1."),
        (JobState.COMPLETED, None, "over", "It is over; it completed on n1."),
        (JobState.TIMEOUT, Reason("timeout", "Stopped."), "over", "It is over; it ran into its time limit on n1: Stopped."),
    ],
)
def test_a_job_that_does_not_wait_is_told_so(state: JobState, reason: Reason | None, verdict: str, text: str):
    cluster = a_cluster(("n1", 2))
    job = replace(cluster.started(gpus=1), state=state, reason=reason)
    told = explain_job(Snapshot(cluster.state, 3.0), job)
    assert told == Explanation(verdict=verdict, code=state.value, text=text, where=(Where(node="n1", gpus=(0,)),))


def test_a_job_that_was_cancelled_before_it_started_was_nowhere():
    job = Job(id=JobId("JOB00001"), number=1, user="ann", spec=a_spec(), submitted_at=1.0, state=JobState.CANCELLED)
    told = explain_job(Snapshot(a_cluster().state, 3.0), job)
    assert told.text == "It is over; it was cancelled."


def test_a_request_that_would_start_is_told_where():
    told = requested(a_cluster(("n1", 2), ("n2", 0)), gpus=0)
    assert (told.verdict, told.text, told.where) == ("now", "It would start now on n2.", (Where(node="n2"),))


def test_a_request_that_no_node_could_run_is_explained_in_place_of_being_refused():
    cluster = a_cluster(("n1", 2))
    told = requested(cluster, gpus=3)
    assert (told.verdict, told.code, told.expected) == ("never", "too-large", Forecast())
    assert told.text == (
        "Never on the nodes that are known: needs 3 GPUs on one node, but the largest, n1, has 2 GPUs and 8 CPUs: ask for less, or use "
        "--nodes; or add --wait-for-nodes to wait for a machine that has it."
    )
    assert [offer.text for offer in told.offers] == ["2 GPUs instead of 3"]


def test_a_request_that_waits_for_a_machine_is_told_that_nobody_can_say_when():
    told = requested(a_cluster(("n1", 2)), gpus=3, wait_for_nodes=True)
    assert (told.verdict, told.code, told.expected, told.place) == ("never", "too-large", Forecast(), 1)


def test_with_no_node_there_are_no_units_to_tell_of():
    told = requested(a_cluster(), gpus=1)
    assert (told.verdict, told.code, told.units, told.offers, told.expected) == ("not_now", "no-nodes", (), (), Forecast())


@pytest.mark.parametrize(
    ("spec", "code", "text", "expected"),
    [
        ({"hold": True}, "held", "Not now: it would be held until it is released.", Forecast()),
        ({"begin_at": 102.0}, "begin", "Not now: it begins in 1.67 min, as asked.", Forecast(at=102.0)),
        ({"dependency": "afterany:JOB00001"}, "dependency", "Not now: it waits for other jobs: afterany:JOB00001.", Forecast(at=3602.0)),
    ],
)
def test_what_is_asked_for_is_a_kind_of_its_own(spec: dict[str, object], code: str, text: str, expected: Forecast):
    cluster = a_cluster(("n1", 2))
    cluster.started(gpus=1)
    told = requested(cluster, gpus=1, **spec)
    assert (told.code, told.text, told.expected, told.place) == (code, text, expected, None)


def test_a_dependency_that_is_met_or_unknown_keeps_nobody():
    cluster = a_cluster(("n1", 2))
    cluster.started(gpus=1)
    assert requested(cluster, gpus=1, dependency="after:JOB00001,afterok:GONEGONE").code == "dependency"
    cluster.tell(TaskReported(at=3.0, status=status(cluster.job(JobId("JOB00001")))))
    assert requested(cluster, gpus=1, dependency="after:JOB00001,afterok:GONEGONE").verdict == "now"


def test_a_dependency_that_can_have_no_end_has_no_start():
    cluster = a_cluster(("n1", 2))
    cluster.started(gpus=1, time_limit_s=10.0)
    told = requested(cluster, gpus=1, dependency="afternotok:JOB00001")
    assert (told.code, told.expected) == ("dependency", Forecast())


def test_a_quota_is_a_kind_of_its_own_and_offers_keep_to_it():
    cluster = a_cluster(("n1", 8), quota=Quota(gpus=4, queued=1))
    cluster.started(gpus=2, time_limit_s=100.0)
    told = requested(cluster, gpus=4)
    assert (told.verdict, told.code, told.expected) == ("not_now", "quota", Forecast(at=102.0))
    assert told.text == "Not now: User ann may have 4 GPUs at once and has 2; this asks for 4."
    assert [offer.text for offer in told.offers] == ["2 GPUs instead of 4"]

    assert requested(cluster, gpus=5).verdict == "never"
    cluster.submit(gpus=4)
    full = requested(cluster, gpus=1)
    assert (full.verdict, full.code, full.place) == ("not_now", "quota", None)


def test_a_throttle_is_a_kind_of_its_own():
    cluster = a_cluster(("n1", 8))
    for number in (1, 2):
        part = ArrayPart("JOB00001", number, 1)
        cluster.tell(JobSubmitted(at=1.0, job_id=JobId(f"JOB0000{number}"), user="ann", spec=a_spec(array="1-2%1"), array=part))
    cluster.schedule()
    told = explained(cluster, JobId("JOB00002"))
    text = "Not now: 1 job of its array run, as many as it may have at once."
    assert (told.code, told.text, told.expected, told.offers) == ("throttle", text, Forecast(at=3602.0), ())
    assert requested(cluster, gpus=1, array="1-2%1").verdict == "now"


def test_units_that_their_own_siblings_take_nodes_from_are_told_so():
    cluster = a_cluster(("n1", 4), ("n2", 4))
    cluster.started(gpus=2, nodelist=("n2",))
    told = requested(cluster, nodes=2, parts=(Part(gpus=3), Part(gpus=3, cpus=1)))
    first, second = told.units
    assert (first.first, first.count, first.missing, first.would_do, first.given) == (0, 1, 0, 1, ("n1",))
    assert (second.first, second.needs, second.missing, second.given) == (1, "3 GPUs", 1, ())
    assert [(out.check, out.text, out.nodes) for out in second.excluded] == [
        ("gpus", "2 GPUs free, 3 needed.", ("n2",)),
        ("siblings", "Unit 0 of this job takes it.", ("n1",)),
    ]


def test_a_node_that_is_promised_says_from_when():
    cluster = a_cluster(("n1", 4))
    cluster.started(gpus=3, time_limit_s=100.0)
    cluster.submit(gpus=4, time_limit_s=10.0)
    cluster.schedule()
    told = requested(cluster, gpus=1, mem_per_node_bytes=2 << 30)
    (unit,) = told.units
    assert (told.code, unit.needs) == ("promised", "1 GPU and 2 GiB of memory")
    assert [(out.check, out.text) for out in unit.excluded] == [("promises", "It is promised from in 1.67 min on.")]
    assert [offer.text for offer in told.offers] == ["a time limit of 00:01:30 (-t 00:01:30)"]


def test_many_nodes_are_grouped_by_what_they_lack():
    cluster = a_cluster(*((f"n{number:02}", 4) for number in range(20)))
    told = requested(cluster, gpus=5)
    (unit,) = told.units
    names = tuple(f"n{number:02}" for number in range(8))
    assert [(out.check, out.text, out.count, out.nodes) for out in unit.excluded] == [("size", "It has 4 GPUs, 5 are needed.", 20, names)]


def test_many_reasons_are_grouped_by_the_check():
    cluster = a_cluster(("small", 1), *((f"n{number:02}", 16) for number in range(15)))
    for number in range(15):
        cluster.started(gpus=min(number + 1, 14), nodelist=(f"n{number:02}",))
    (unit,) = diagnose(cluster.state, shape_of(a_spec(gpus=16)), FOREVER)
    assert [(out.check, out.text, out.count) for out in unit.excluded] == [
        ("size", "It has 1 GPU, 16 are needed.", 1),
        ("gpus", "2 GPUs free, 16 needed. (2 nodes; others in other numbers)", 15),
    ]


def test_a_list_looks_at_each_shape_once():
    cluster = a_cluster(("n1", 1))
    cluster.started(gpus=1)
    first, second = cluster.submit(gpus=1), cluster.submit(gpus=1)
    cluster.schedule()
    known: short.Known = {}
    told = [short.waiting(cluster.state, job, 2.0, known) for job in (first, second)]
    busy = Reason("busy", "Waits for 1 GPU free on one node: n1 has 0.")
    assert told == [short.Waiting(1, busy, 3602.0), short.Waiting(2, busy)]
    assert list(known.values()) == [busy]


# --- never ---------------------------------------------------------------------------------------


def parts(*capable: set[str]) -> tuple[Shape, list[frozenset[str]]]:
    shape = shape_of(a_spec(nodes=len(capable), parts=tuple(Part(gpus=len(capable) - index) for index in range(len(capable)))))
    return shape, [frozenset(nodes) for nodes in capable]


@pytest.mark.parametrize(
    ("capable", "can"),
    [
        (({"a", "b"}, {"a", "b"}), True),
        (({"a"}, {"b"}), True),
        (({"a"}, {"a"}), False),
        (({"a", "b"}, {"a"}, {"b", "c"}), True),
        (({"a", "b"}, {"a", "b"}, {"a", "b"}, {"c", "d"}), False),
        (({"a", "b"}, {"c"}, {"b", "c"}), True),
    ],
)
def test_never_is_said_only_when_the_units_cannot_all_have_a_node(capable: tuple[set[str], ...], can: bool):
    assert short.can_serve(*parts(*capable)) is can


def test_of_very_many_unlike_units_only_their_number_is_looked_at(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(short, "MAX_SEATED", 1)
    assert short.can_serve(*parts({"a"}, {"a"})) is False
    assert short.can_serve(*parts({"a", "b", "c"}, {"a"}, {"a"})) is True


def test_the_unit_that_finds_too_few_nodes_is_the_one_that_is_told():
    cluster = a_cluster(("n1", 4), ("n2", 2))
    shape = shape_of(a_spec(nodes=2, parts=(Part(gpus=4), Part(gpus=3))))
    assert short.why_never(cluster.state, shape) == Reason(
        "too-large", "Needs 3 GPUs on each of 2 nodes, but only 1 are that large: ask for less, or add a machine.", never=True
    )


def test_too_small_and_not_named_nodes_are_told_together():
    cluster = a_cluster(("n1", 1), ("n2", 4), ("n3", 4))
    shape = shape_of(a_spec(nodes=2, gpus_per_node=4, nodelist=("n1", "n2")))
    assert short.why_never(cluster.state, replace(shape, rules=replace(shape.rules, nodelist=("n1",)))) == Reason(
        "too-few-nodes", "Needs 2 nodes, but only 1 may be used: ask for fewer --nodes.", never=True
    )


def test_nodes_that_fail_other_checks_are_named_with_them():
    cluster = a_cluster(("n1", 1), ("n2", 1))
    rules = Rules(partition="gpu")
    assert short.why_never(cluster.state, replace(shape_of(a_spec()), rules=rules)) == Reason(
        "partition",
        "Needs 1 node, but only 0 would do. n1: It is not in the partition gpu, n2: It is not in the partition gpu.",
        never=True,
    )


def test_of_many_unlike_units_the_first_eight_are_told():
    names = [f"n{number}" for number in range(10)]
    cluster = Cluster(*((name, 8) for name in names))
    wanted = {name: (number % 8, (number + number // 8 + 1) % 8) for number, name in enumerate(names)}
    answers = diagnose(cluster.state, shape_of(a_spec(node_gpu_ids=wanted)), FOREVER)
    assert [(answer.first, answer.count) for answer in answers] == [(number, 1) for number in range(8)]
