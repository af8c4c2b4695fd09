"""Who starts, who is promised a start, and who may overtake: small histories with all numbers worked out by
hand.
"""

from __future__ import annotations

import msgspec
import pytest

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import GpuTrouble
from mgpu_jupyter.model.job import JobState, Part
from mgpu_jupyter.model.settings import Planning, Scheduling, Weights
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.events import CancelRequested, GpusChanged, NodeSilent, TaskReported, TimePassed
from mgpu_jupyter.scheduler.explain.waiting import Waiting, waiting
from mgpu_jupyter.scheduler.model import Job, Policy, Reason
from mgpu_jupyter.scheduler.planning.promises import look_ahead
from tests.builders import Cluster, ended, status

ARRIVAL = Weights(duration=0.0, fair_share=0.0)


def a_cluster(*nodes: tuple[str, int], **planning: object) -> Cluster:
    values = {"weights": ARRIVAL, "learn": False, **planning}
    return Cluster(*nodes, policy=Policy(scheduling=Scheduling(planning=Planning(**values))))


def running(cluster: Cluster, *jobs: object) -> list[str]:
    return [job for job in jobs if cluster.state.jobs[job].state is JobState.STARTING]


def over(cluster: Cluster, job: Job, at: float) -> None:
    cluster.tell(TaskReported(at=at, status=status(job, started_at=at - 1)))
    cluster.tell(TaskReported(at=at, status=ended(cluster.job(job.id), at=at)))


def promises(cluster: Cluster) -> list[tuple[str, float, list[str]]]:
    return [
        (one.job_id, one.at, [slot.id for slot, _ in one.units]) for one in cluster.state.planner.promises
    ]


def test_the_head_is_promised_the_moment_at_which_enough_ends_and_only_short_jobs_overtake_it():
    cluster = a_cluster(("n1", 4))
    cluster.started(gpus=3, time_limit_s=100.0)
    head = cluster.submit(gpus=4, time_limit_s=10.0)
    long, short = cluster.submit(gpus=1, time_limit_s=101.0), cluster.submit(gpus=1, time_limit_s=100.0)

    cluster.schedule()

    assert promises(cluster) == [(head, 102.0, ["n1"])]
    assert running(cluster, head, long, short) == [short]
    text = (
        f"It would fit now, but delay job {head}, which is promised to start in 1 m 40 s: a shorter -t "
        f"may help."
    )
    cluster.tell(CancelRequested(at=2.0, job_id=short, by="ann"))
    assert waiting(cluster.state, long, 2.0) == Waiting(
        2, Reason("busy", "Waits for 1 GPU free on one node: n1 has 0.")
    )
    over(cluster, cluster.job(short), 3.0)
    cluster.schedule(3.0)
    assert waiting(cluster.state, long, 3.0) == Waiting(
        2, Reason("promised", text.replace("1 m 40 s", "1 m 39 s"))
    )


def test_a_longer_job_may_overtake_on_gpus_that_the_head_will_not_need():
    cluster = a_cluster(("n1", 4), ("n2", 4))
    cluster.started(gpus=2, time_limit_s=100.0, nodelist=("n1",))
    cluster.started(gpus=3, time_limit_s=500.0, nodelist=("n2",))
    head = cluster.submit(gpus=3, time_limit_s=10.0)
    jobs = [cluster.submit(gpus=1, time_limit_s=1000.0) for _ in range(3)]

    cluster.schedule()

    # One GPU of n2 and one of n1 are spare: at 102 the head needs three of the four of n1.
    assert promises(cluster) == [(head, 102.0, ["n1"])]
    assert running(cluster, head, *jobs) == jobs[:2]


def test_by_time_alone_nobody_runs_past_the_heads_start():
    cluster = a_cluster(("n1", 4), ("n2", 4), spare=False)
    cluster.started(gpus=2, time_limit_s=100.0, nodelist=("n1",))
    cluster.started(gpus=3, time_limit_s=500.0, nodelist=("n2",))
    head = cluster.submit(gpus=3, time_limit_s=10.0)
    long, short = cluster.submit(gpus=1, time_limit_s=1000.0), cluster.submit(gpus=1, time_limit_s=50.0)

    cluster.schedule()

    assert running(cluster, head, long, short) == [short]


def test_with_one_gpu_on_each_node_the_spare_ones_are_counted_in_either_case():
    cluster = a_cluster(("a", 1), ("b", 1), ("c", 1), ("d", 1), spare=False)
    cluster.started(nodes=2, time_limit_s=100.0)
    head = cluster.submit(nodes=3, time_limit_s=10.0)
    long = [cluster.submit(time_limit_s=1000.0) for _ in range(2)]

    cluster.schedule()

    assert promises(cluster) == [(head, 102.0, ["a", "b", "c"])]
    assert running(cluster, head, *long) == long[:1]


def test_who_ends_in_time_goes_to_promised_nodes_so_that_others_stay_free_for_longer_jobs():
    cluster = a_cluster(("a", 1), ("b", 1), ("c", 1), ("d", 1))
    cluster.started(nodes=2, time_limit_s=100.0)
    head = cluster.submit(nodes=3, time_limit_s=10.0)
    short, long = cluster.submit(time_limit_s=20.0), cluster.submit(time_limit_s=1000.0)

    cluster.schedule()

    assert promises(cluster) == [(head, 102.0, ["a", "b", "c"])]
    assert [cluster.job(job).placements[0].node_id for job in (short, long)] == ["c", "d"]


def test_nobody_overtakes_under_fifo_but_who_can_never_run_blocks_nobody():
    cluster = a_cluster(("n1", 2), overtake=False)
    cluster.started(time_limit_s=100.0)
    never = cluster.submit(gpus=8)
    head, small = cluster.submit(gpus=2), cluster.submit(gpus=1, time_limit_s=1.0)

    cluster.schedule()
    late = cluster.submit(gpus=1, time_limit_s=1.0)
    cluster.schedule()

    assert running(cluster, never, head, small, late) == []
    assert promises(cluster) == []
    urgent = cluster.submit(gpus=1, priority=5)
    cluster.schedule()
    assert running(cluster, head, small, late, urgent) == [urgent]
    assert waiting(cluster.state, small, 2.0) == Waiting(
        3, Reason("busy", "Waits for 1 GPU free on one node: n1 has 0.")
    )


def test_under_fifo_one_who_would_fit_says_whom_it_waits_for():
    cluster = a_cluster(("n1", 2), overtake=False)
    cluster.started(time_limit_s=100.0)
    cluster.submit(gpus=2)
    small = cluster.submit(gpus=1)

    cluster.schedule()

    assert waiting(cluster.state, small, 2.0) == Waiting(
        2, Reason("ahead", "It waits for those ahead of it in the queue.")
    )


def test_without_reservations_everyone_who_fits_starts():
    cluster = a_cluster(("n1", 2), reservations=0)
    cluster.started(time_limit_s=100.0)
    head, small = cluster.submit(gpus=2), cluster.submit(gpus=1, time_limit_s=9999.0)

    cluster.schedule()

    assert running(cluster, head, small) == [small]
    assert promises(cluster) == []


def test_several_promises_are_kept_beside_each_other():
    cluster = a_cluster(("n1", 4), reservations=3)
    cluster.started(gpus=3, time_limit_s=100.0)
    first = cluster.submit(gpus=4, time_limit_s=50.0)
    second = cluster.submit(gpus=2, time_limit_s=30.0)
    third = cluster.submit(gpus=1, time_limit_s=90.0)
    fourth = cluster.submit(gpus=1, time_limit_s=90.0)
    late = cluster.submit(gpus=1, time_limit_s=100.5)

    cluster.schedule()

    # The third fits before the first begins, so it starts; the fourth takes the third promise, beside the
    # second.
    assert running(cluster, first, second, third, fourth, late) == [third]
    assert promises(cluster) == [(first, 102.0, ["n1"]), (second, 152.0, ["n1"]), (fourth, 152.0, ["n1"])]


def test_a_later_promise_fits_between_earlier_ones():
    cluster = a_cluster(("n1", 2), reservations=3)
    cluster.started(gpus=1, time_limit_s=100.0)
    cluster.started(gpus=1, time_limit_s=20.0)
    first = cluster.submit(gpus=2, time_limit_s=50.0)
    long, short = cluster.submit(gpus=1, time_limit_s=81.0), cluster.submit(gpus=1, time_limit_s=80.0)

    cluster.schedule()

    assert promises(cluster) == [(first, 102.0, ["n1"]), (long, 152.0, ["n1"]), (short, 22.0, ["n1"])]


def test_a_promise_of_certain_gpus_leaves_nothing_to_who_is_there_when_it_begins():
    cluster = a_cluster(("n1", 4), reservations=2)
    cluster.started(gpu_ids=(0,), time_limit_s=100.0)
    head = cluster.submit(gpu_ids=(0,), time_limit_s=50.0)
    long, short = cluster.submit(gpus=1, time_limit_s=200.0), cluster.submit(gpus=1, time_limit_s=90.0)
    exact = cluster.submit(gpu_ids=(3,), time_limit_s=200.0)

    cluster.schedule()

    assert running(cluster, head, long, short, exact) == [short]
    assert promises(cluster) == [(head, 102.0, ["n1"]), (long, 152.0, ["n1"])]


def test_promises_see_kinds_of_gpus_cpus_and_memory():
    cluster = a_cluster(("n1", 2))
    cluster.started(gpus=1, cpus=6, mem_per_node_bytes=40 << 30, time_limit_s=100.0)
    by_cpu = cluster.submit(gpus=1, cpus=4, gpu_type="test", time_limit_s=10.0)
    long = cluster.submit(gpus=1, cpus=2, mem_per_node_bytes=1, time_limit_s=500.0)

    cluster.schedule()

    assert promises(cluster) == [(by_cpu, 102.0, ["n1"])]
    assert running(cluster, by_cpu, long) == [long]
    memory = cluster.submit(gpus=0, mem_per_node_bytes=30 << 30, priority=1)
    cluster.schedule()
    assert promises(cluster) == [(memory, 102.0, ["n1"])]


def test_unlike_parts_take_unlike_nodes_all_or_none():
    cluster = a_cluster(("n1", 4), ("n2", 4), ("n3", 2))
    parts = ({"gpus": 1, "cpus": 1}, {"gpus": 4}, {"gpus": 4, "cpus": 8})
    job = cluster.started(nodes=3, parts=msgspec.convert(parts, tuple[Part, ...]))

    assert [(one.node_id, one.gpu_indices, one.cpus) for one in job.placements] == [
        ("n1", (0, 1, 2, 3), 8),
        ("n2", (0, 1, 2, 3), 0),
        ("n3", (0,), 1),
    ]
    head = cluster.submit(
        nodes=2, parts=msgspec.convert(({"gpus": 1}, {"gpus": 4}), tuple[Part, ...]), time_limit_s=5.0
    )
    cluster.schedule()
    assert promises(cluster) == [(head, 3602.0, ["n1", "n2"])]
    assert cluster.state.pool.slots["n3"].free == 1


def test_a_promise_waits_for_the_last_that_is_missing():
    cluster = a_cluster(("n1", 3))
    cluster.started(gpus=1, cpus=2, time_limit_s=10.0)
    cluster.started(gpus=1, cpus=5, time_limit_s=20.0)
    head = cluster.submit(gpus=1, cpus=7)

    cluster.schedule()

    assert promises(cluster) == [(head, 22.0, ["n1"])]


def test_certain_gpus_are_promised_beside_nothing_else():
    cluster = a_cluster(("n1", 2), reservations=2)
    cluster.started(gpus=2, time_limit_s=10.0)
    first, exact = cluster.submit(gpus=1, time_limit_s=50.0), cluster.submit(gpu_ids=(1,), time_limit_s=50.0)

    cluster.schedule()

    assert promises(cluster) == [(first, 12.0, ["n1"]), (exact, 62.0, ["n1"])]


def test_who_waits_for_a_node_that_is_away_is_promised_nothing_and_holds_nobody_up():
    cluster = a_cluster(("n1", 1), ("n2", 2))
    away = cluster.started(nodelist=("n2",), time_limit_s=50.0)
    cluster.tell(NodeSilent(at=2.0, node_id=NodeId("n2"), reason="Nothing heard."))
    head, small = cluster.submit(gpus=2), cluster.submit(gpus=1)

    cluster.schedule()

    assert promises(cluster) == []
    assert running(cluster, away.id, head, small) == [away.id, small]
    text = "Waits for 1 node to take work again: n2 is suspect."
    assert waiting(cluster.state, head, 2.0) == Waiting(1, Reason("nodes-away", text))


def test_a_promise_that_was_not_kept_is_made_anew():
    cluster = a_cluster(("n1", 1))
    cluster.started(time_limit_s=100.0)
    head = cluster.submit()
    cluster.schedule()

    assert books.next_due_at(cluster.state) == 102.0
    cluster.tell(TimePassed(at=50.0))
    assert not cluster.state.pass_is_due
    cluster.tell(TimePassed(at=102.0))
    assert cluster.state.pass_is_due
    cluster.schedule(102.0)
    # Expected to run four times as long as it did.
    assert promises(cluster) == [(head, 402.0, ["n1"])]
    cluster.tell(CancelRequested(at=103.0, job_id=cluster.state.pool.ends[0][1], by="ann"))
    cluster.schedule(103.0)
    assert promises(cluster) == [(head, 402.0, ["n1"])]


def test_a_job_that_is_being_ended_is_expected_to_be_gone_after_its_grace():
    cluster = a_cluster(("n1", 1))
    job = cluster.started(time_limit_s=100.0)
    head = cluster.submit()
    cluster.tell(TaskReported(at=3.0, status=status(job, started_at=3.0)))
    cluster.tell(CancelRequested(at=4.0, job_id=job.id, by="ann"))

    cluster.schedule(4.0)

    assert promises(cluster) == [(head, 19.0, ["n1"])]


def test_a_promise_goes_with_its_job():
    cluster = a_cluster(("n1", 2))
    cluster.started(time_limit_s=100.0)
    head, second = cluster.submit(gpus=2), cluster.submit(gpus=1)
    cluster.schedule()

    cluster.tell(CancelRequested(at=3.0, job_id=head, by="ann"))
    cluster.schedule(3.0)

    assert promises(cluster) == []
    assert running(cluster, second) == [second]


@pytest.mark.parametrize(("sticky", "promised"), [(False, 1), (True, 0)])
def test_who_has_the_promise_keeps_it_only_where_that_is_set(sticky, promised):
    cluster = a_cluster(("n1", 2), sticky=sticky)
    cluster.started(gpus=2, time_limit_s=100.0)
    jobs = [cluster.submit(gpus=2)]
    cluster.schedule()
    jobs.append(cluster.submit(gpus=2, priority=1))
    cluster.schedule()

    assert promises(cluster) == [(jobs[promised], 102.0, ["n1"])]


def test_a_pass_after_arrivals_looks_at_the_arrivals_only():
    cluster = a_cluster(("n1", 2))
    cluster.started(gpus=1, time_limit_s=100.0)
    head = cluster.submit(gpus=2)
    cluster.schedule()
    before = cluster.state.planner.promises[0]

    small, gone = cluster.submit(gpus=1, time_limit_s=5.0), cluster.submit(gpus=1, time_limit_s=5.0)
    cluster.tell(CancelRequested(at=2.0, job_id=gone, by="ann"))
    cluster.schedule()

    assert cluster.state.planner.promises == [before]
    assert running(cluster, head, small) == [small]


def test_a_node_that_joins_again_holds_what_it_held():
    cluster = a_cluster(("n1", 2), ("n2", 1))
    job = cluster.started(nodes=2, gpus_per_node=1)

    cluster.join("n1", 2, at=5.0, tasks=(status(job, 1),))

    assert cluster.state.pool.slots["n1"].free_mask == 0b10
    assert [slot.id for slot, _ in cluster.state.pool.held[job.id].holds] == ["n2", "n1"]


def test_look_ahead_finds_what_is_free_now():
    cluster = a_cluster(("n1", 2))
    job = cluster.submit(gpus=1)
    entry = cluster.state.queue.entry(job)

    promise = look_ahead(cluster.state.pool, job, entry.lane.shape, 2.0, 10.0)

    assert (promise.at, promise.end, [slot.id for slot, _ in promise.units]) == (2.0, 12.0, ["n1"])


def test_a_blocked_gpu_is_promised_to_nobody():
    cluster = a_cluster(("n1", 2))
    cluster.started(gpus=2, time_limit_s=100.0)
    cluster.tell(
        GpusChanged(at=3.0, node_id=NodeId("n1"), troubles={"GPU-n1-1": GpuTrouble("outside", "In use.")})
    )
    cluster.submit(gpus=2)

    cluster.schedule(3.0)

    assert promises(cluster) == []
