"""What a job waits for is a kind of its own; never is said only when it is so."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.model.explanations import (
    Forecast,
)
from mgpu_jupyter.model.job import Part
from mgpu_jupyter.model.settings import Quota
from mgpu_jupyter.scheduler.events import JobSubmitted, TaskReported
from mgpu_jupyter.scheduler.explain import waiting as short
from mgpu_jupyter.scheduler.explain.diagnosis import diagnose
from mgpu_jupyter.scheduler.model import ArrayPart, Reason
from mgpu_jupyter.scheduler.placement.pool import FOREVER
from mgpu_jupyter.scheduler.placement.shape import Rules, Shape, shape_of
from tests.builders import Cluster, a_spec, status
from tests.scheduler.test_explain import a_cluster, explained, requested


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
        cluster.tell(
            JobSubmitted(
                at=1.0, job_id=JobId(f"JOB0000{number}"), user="ann", spec=a_spec(array="1-2%1"), array=part
            )
        )
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
    assert [(out.check, out.text) for out in unit.excluded] == [
        ("promises", "It is promised from in 1 m 40 s on.")
    ]
    assert [offer.text for offer in told.offers] == ["a time limit of 00:01:30 (-t 00:01:30)"]


def test_many_nodes_are_grouped_by_what_they_lack():
    cluster = a_cluster(*((f"n{number:02}", 4) for number in range(20)))
    told = requested(cluster, gpus=5)
    (unit,) = told.units
    names = tuple(f"n{number:02}" for number in range(8))
    assert [(out.check, out.text, out.count, out.nodes) for out in unit.excluded] == [
        ("size", "It has 4 GPUs, 5 are needed.", 20, names)
    ]


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
    shape = shape_of(
        a_spec(
            nodes=len(capable), parts=tuple(Part(gpus=len(capable) - index) for index in range(len(capable)))
        )
    )
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
        "too-large",
        "Needs 3 GPUs on each of 2 nodes, but only 1 is that large: ask for less, or add a machine.",
        never=True,
    )


def test_too_small_and_not_named_nodes_are_told_together():
    cluster = a_cluster(("n1", 1), ("n2", 4), ("n3", 4))
    shape = shape_of(a_spec(nodes=2, gpus_per_node=4, nodelist=("n1", "n2")))
    assert short.why_never(
        cluster.state, replace(shape, rules=replace(shape.rules, nodelist=("n1",)))
    ) == Reason("too-few-nodes", "Needs 2 nodes, but only 1 may be used: ask for fewer --nodes.", never=True)


def test_nodes_that_fail_other_checks_are_named_with_them():
    cluster = a_cluster(("n1", 1), ("n2", 1))
    rules = Rules(partition="gpu")
    assert short.why_never(cluster.state, replace(shape_of(a_spec()), rules=rules)) == Reason(
        "partition",
        "Needs 1 node, but none would do. n1: It is not in the partition gpu, n2: It is not in the "
        "partition gpu.",
        never=True,
    )


def test_of_many_unlike_units_the_first_eight_are_told():
    names = [f"n{number}" for number in range(10)]
    cluster = Cluster(*((name, 8) for name in names))
    wanted = {name: (number % 8, (number + number // 8 + 1) % 8) for number, name in enumerate(names)}
    answers = diagnose(cluster.state, shape_of(a_spec(node_gpu_ids=wanted)), FOREVER)
    assert [(answer.first, answer.count) for answer in answers] == [(number, 1) for number in range(8)]
