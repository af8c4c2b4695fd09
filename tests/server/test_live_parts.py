"""The parts of live figures by themselves: versions of the queue, rings, readings, hints, the chronicle."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuSample
from mgpu_jupyter.api import frames, histories
from mgpu_jupyter.master.node_views import NodeView
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.model import Load
from mgpu_jupyter.server.live.chronicle import Chronicle, Life, curves_of, quantile, size_of, waits_of
from mgpu_jupyter.server.live.hints import hint_of, is_idle
from mgpu_jupyter.server.live.live import cluster_history
from mgpu_jupyter.server.live.readings import Rounding, Told, whole_number
from mgpu_jupyter.server.live.rings import Growing, Points, Tiers
from mgpu_jupyter.server.live.usage import UsageRecord
from tests.builders import Cluster, facts
from tests.server.test_queue_versions import IDS


def a_view(seq, busy=0.0, cpu=5.0):
    samples = (
        GpuSample(
            uuid=GpuUuid("GPU-n1-0"), utilisation_percent=busy, memory_used_bytes=3 << 20, temperature_c=40.0
        ),
    )
    return NodeView(
        seq=seq,
        id=NodeId("n1"),
        facts=facts("n1", 1),
        state="online",
        reason="",
        holders={},
        users={},
        samples=samples,
        heard_at=None,
        load=Load(cpu_percent=cpu, memory_available_bytes=7 << 20),
    )


def test_a_reader_hears_only_what_people_would_see():
    told = Told(Rounding())

    assert told.news([a_view(1)]) == {
        "n1": frames.NodeReading(cpu=5, memory_available_mib=7, gpus={"0": (0, 3, 40, None)})
    }
    assert told.news([a_view(1)]) == {}
    assert told.news([a_view(2, busy=0.4)]) == {}
    assert told.news([a_view(3, busy=0.6, cpu=7.0)]) == {
        "n1": frames.NodeReading(cpu=7, gpus={"0": (1, 3, 40, None)})
    }


@pytest.mark.parametrize("value", [None, float("inf"), float("nan"), -float("inf"), 1e300])
def test_what_is_no_reading_is_not_told(value):
    assert whole_number(value) is None


def test_rings_keep_means_and_a_bound():
    tiers = Tiers(((1.0, 10), (10.0, 5)), 2)
    for second in range(200):
        tiers.add(float(second), (float(second), None if second % 2 else 1.0))

    fine = tiers.read(190.0, 200.0, 100)
    coarse = tiers.read(140.0, 200.0, 100)
    thin = tiers.read(190.0, 200.0, 4)
    assert (fine.step_s, fine.times[0], fine.times[-1], len(fine.times)) == (1.0, 190.0, 199.0, 10)
    assert fine.columns[1] == [1.0, None] * 5
    assert (coarse.step_s, coarse.times) == (10.0, [140.0, 150.0, 160.0, 170.0, 180.0, 190.0])
    assert coarse.columns == [[144.5, 154.5, 164.5, 174.5, 184.5, 194.5], [1.0] * 6]
    assert (thin.step_s, thin.times, thin.columns[0]) == (
        3.0,
        [190.0, 193.0, 196.0, 199.0],
        [191.0, 194.0, 197.0, 199.0],
    )
    assert Tiers(((1.0, 10),), 1).read(0.0, 10.0, 5) == Points(1.0, [], [[]])
    assert tiers.read(199.0, 200.0, 5) == Points(1.0, [199.0], [[199.0], [None]]), (
        "the step that is under way"
    )


def test_a_growing_record_keeps_the_whole_run_in_few_points():
    record = Growing(2.0, 50, 1)
    assert record.read(10) == Points(2.0, [], [[]])
    for second in range(10_000):
        record.add(float(second), (50.0,))
    record.add(20_000.0, (None,))

    found = record.read(1_000)
    assert len(found.times) <= 101
    assert (found.times[0], found.times[-1]) == (0.0, pytest.approx(20_000.0, abs=found.step_s))
    assert set(found.columns[0][:-1]) == {50.0}
    assert found.columns[0][-1] is None
    assert len(record.read(7).times) <= 7


def drawn(*told):
    job = Cluster(("n1", 2)).started(gpus=2)
    gpus = list(job.placements[0].gpus)
    record = UsageRecord(job, {}, at=0.0)
    for at, first, second in told:
        samples = tuple(
            GpuSample(uuid=uuid, utilisation_percent=50.0, power_w=watts)
            for uuid, watts in zip(gpus, (first, second), strict=True)
        )
        record.take(SimpleNamespace(samples=samples), gpus, at)
    return record.usage(job, 10).energy_wh


@pytest.mark.parametrize(
    ("told", "wh"),
    [
        ([], None),
        ([(10.0, None, None), (20.0, None, float("inf"))], None),
        ([(10.0, 360.0, None)], 0.0),
        ([(1.0, 9000.0, 9000.0), (10.0, 360.0, 0.0), (20.0, 360.0, 0.0)], 1.0),
        ([(10.0, 0.0, 360.0), (20.0, 360.0, 360.0)], 1.5),
        ([(10.0, 360.0, 0.0), (20.0, 360.0, 0.0), (120.0, 360.0, 0.0), (130.0, 360.0, 0.0)], 2.0),
    ],
    ids=[
        "nothing read",
        "nobody tells",
        "one reading",
        "what was read before it settled",
        "in the mean",
        "a gap is not known",
    ],
)
def test_energy_is_power_over_the_time_between_readings(told, wh):
    assert drawn(*told) == wh


def usage(*gpus, state=JobState.COMPLETED, readings=50):
    told = tuple(
        histories.GpuUsage(
            node=NodeId(node),
            index=index,
            uuid=GpuUuid(f"{node}-{index}"),
            rank=rank,
            busy_mean=mean,
            idle=mean == 0.0,
            memory_mib=1,
        )
        for node, index, rank, mean in gpus
    )
    return histories.JobUsage(
        job_id=IDS[0], state=state, attempt=1, asked=len(gpus), gpus=told, readings=readings
    )


@pytest.mark.parametrize(
    ("told", "hint"),
    [
        (usage(("a", 0, 0, 90.0), ("a", 1, 1, 88.0)), ""),
        (
            usage(("a", 0, 0, 90.0), ("a", 1, 0, 40.0), ("a", 2, 0, 0.0), ("a", 3, 0, 0.0)),
            "GPUs 2 and 3 were idle. --gpus 2 would have done.",
        ),
        (
            usage(("a", 0, 0, 9.0), ("a", 1, 0, 0.0), state=JobState.RUNNING),
            "GPU 1 is idle so far. --gpus 1 would do.",
        ),
        (usage(("a", 0, 0, 0.0)), "Its GPU was idle. --gpus 0 would have done."),
        (usage(("a", 0, 0, 0.0), ("b", 0, 1, 0.0)), "All 2 GPUs were idle. --gpus 0 would have done."),
        (usage(("a", 0, 0, 80.0), ("b", 5, 1, 0.0)), "GPU 5 on b was idle. --nodes 1 would have done."),
        (
            usage(("a", 0, 0, 80.0), ("a", 1, 0, 80.0), ("b", 4, 1, 80.0), ("b", 5, 1, 0.0)),
            "GPU 5 on b was idle.",
        ),
        (
            usage(
                *(("gpu-01", index, index, 95.0) for index in range(4)),
                *(("gpu-02", index, 4 + index, 58.0 if index == 2 else 94.0) for index in range(4)),
                state=JobState.RUNNING,
            ),
            "GPU 2 on gpu-02 (rank 6) is busy 58 % of the time and holds up the other seven.",
        ),
        (
            usage(("a", 0, None, 30.0), ("a", 1, None, 90.0)),
            "GPU 0 on a was busy 30 % of the time and held up the other.",
        ),
        (usage(("a", 0, None, 10.0), ("a", 1, None, 30.0)), ""),
        (usage(("a", 0, 0, 80.0)), ""),
        (usage(("a", 0, 0, 0.0), readings=4), ""),
    ],
)
def test_what_is_said_about_a_job(told, hint):
    assert hint_of(told) == hint


def test_a_gpu_is_idle_when_it_was_read_often_and_never_busy():
    assert [is_idle(0.0, 50), is_idle(4.9, 50), is_idle(5.0, 50), is_idle(0.0, 4), is_idle(None, 50)] == [
        True,
        True,
        False,
        False,
        False,
    ]


def life(user="ann", gpus=1, state=JobState.COMPLETED, submitted=0.0, started=None, ended=None):
    return Life(user, gpus, state, submitted, started, ended)


def test_curves_are_means_over_each_step():
    lives = [
        life(gpus=4, submitted=-5.0, started=5.0, ended=25.0),
        life(user="bob", gpus=2, state=JobState.RUNNING, submitted=10.0, started=15.0),
        life(gpus=8, state=JobState.QUEUED, submitted=35.0),
        life(gpus=8, state=JobState.CANCELLED, submitted=-20.0, ended=-10.0),
        life(gpus=1, state=JobState.CANCELLED, submitted=12.0, ended=13.0),
    ]
    found = curves_of(lives, "ann", 0.0, 40.0, 4)

    assert found.in_use == [2.0, 5.0, 4.0, 2.0]
    assert found.mine == [2.0, 4.0, 2.0, 0.0]
    assert found.waiting == [0.5, 0.6, 0.0, 0.5]
    assert found.wanted == [2.0, 1.1, 0.0, 4.0]
    assert found.ended == {
        "cancelled": [0, 1, 0, 0],
        "completed": [0, 0, 1, 0],
        "failed": [0] * 4,
        "timeout": [0] * 4,
    }


def test_waits_by_size():
    lives = [life(gpus=4, submitted=0.0, started=float(wait)) for wait in (10, 20, 30, 40, 50)] + [
        life(gpus=64, submitted=0.0, started=7.0)
    ]
    boxes, median, p95 = waits_of(lives, 0.0)

    assert boxes == (
        histories.Waits(
            gpus="3-4", jobs=5, least_s=10.0, quarter_s=20.0, median_s=30.0, three_quarters_s=40.0, p95_s=48.0
        ),
        histories.Waits(
            gpus="32+", jobs=1, least_s=7.0, quarter_s=7.0, median_s=7.0, three_quarters_s=7.0, p95_s=7.0
        ),
    )
    assert (median, p95) == (25.0, 47.5)
    assert waits_of([], 0.0) == ((), None, None)
    assert [size_of(gpus) for gpus in (0, 1, 2, 3, 8, 9, 17, 32)] == [
        "0",
        "1",
        "2",
        "3-4",
        "5-8",
        "9-16",
        "17-31",
        "32+",
    ]
    assert quantile([1.0], 0.95) == 1.0


def test_the_past_of_the_store_comes_before_what_was_heard(monkeypatch):
    monkeypatch.setattr("mgpu_jupyter.server.live.chronicle.ENDED_KEPT", 3)
    chronicle = Chronicle()
    chronicle.load((IDS[number], life(submitted=float(number), ended=float(number))) for number in range(5))
    chronicle.load([(IDS[9], life(state=JobState.RUNNING, submitted=9.0))])

    assert [one.submitted for one in chronicle.lives()] == [2.0, 3.0, 4.0, 9.0]


def test_readings_of_the_cluster_fall_on_the_steps_that_are_asked_for():
    readings = Points(60.0, [0.0, 60.0], [[8.0, 8.0], [4.0, 2.0]])
    found = cluster_history([], readings, "ann", (0.0, 120.0), 4)

    assert (found.gpus, found.busy) == ((8, 8, 8, 8), (4.0, 4.0, 2.0, 2.0))
    assert (found.busy_mean_percent, found.succeeded_percent, found.ended_total) == (37.5, None, 0)
    assert cluster_history([], Points(5.0, [], [[], []]), "ann", (0.0, 40.0), 2).gpus == (None, None)
