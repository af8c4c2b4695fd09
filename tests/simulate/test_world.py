"""Small traces whose outcome is worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.job import JobSpec, Part
from mgpu_jupyter.model.policies import planning_of
from mgpu_jupyter.model.settings import Quota, Scheduling
from mgpu_jupyter.simulate.figures import Figures, figures_of, held_over_time, mean_over, waiting_over_time
from mgpu_jupyter.simulate.traces import TraceJob
from mgpu_jupyter.simulate.world import KnownTimes, Replay, SimulatedCluster, replay, spec_of


@dataclass(frozen=True)
class Case:
    """Jobs as (submit, duration, GPUs), the cluster as nodes × GPUs, and when each job starts under each
    policy.
    """

    cluster: tuple[int, int]
    jobs: tuple[tuple[float, float, int], ...]
    starts: dict[str, tuple[float, ...]]


CASES = {
    "a short job goes ahead of a large one unless nobody may overtake": Case(
        (2, 1),
        ((0, 10, 1), (0, 10, 2), (1, 5, 1)),
        {"fifo": (0, 10, 20), "easy": (0, 10, 1), "sjf": (0, 10, 1)},
    ),
    "a job that would end after the promised start waits": Case(
        (2, 1),
        ((0, 10, 1), (0, 10, 2), (1, 20, 1)),
        {"fifo": (0, 10, 20), "easy": (0, 10, 20), "sjf": (0, 21, 1)},
    ),
    "one that ends just when the head is to start does not": Case(
        (2, 1), ((0, 10, 1), (0, 10, 2), (1, 9, 1)), {"easy": (0, 10, 1)}
    ),
    "in a pool, a long job takes what the head will not need": Case(
        (3, 1),
        ((0, 10, 2), (0, 10, 2), (1, 20, 1)),
        {"easy": (0, 10, 1), "easy-spare": (0, 10, 1), "fifo": (0, 10, 10)},
    ),
    "on nodes, easy goes by time alone": Case(
        (1, 3),
        ((0, 10, 2), (0, 10, 2), (1, 20, 1)),
        {"easy": (0, 10, 10), "easy-spare": (0, 10, 1), "conservative": (0, 10, 1)},
    ),
    "easy delays the second in line, conservative does not": Case(
        (3, 1),
        ((0, 10, 2), (1, 10, 2), (2, 10, 3), (3, 40, 1)),
        {"easy": (0, 10, 43, 3), "conservative": (0, 10, 20, 30), "fifo": (0, 10, 20, 30)},
    ),
    "shortest first": Case(
        (1, 1), ((0, 10, 1), (1, 5, 1), (2, 1, 1)), {"sjf": (0, 11, 10), "easy": (0, 10, 15)}
    ),
    "the default lets short jobs go first, but not for ever": Case(
        (1, 1),
        ((0, 36_000, 1), (1, 7_200, 1), (3_600, 60, 1), (28_000, 60, 1)),
        # Two hours cost six; the minute that came one hour later goes first, the one that came after eight
        # hours does not.
        {"default": (0, 36_060, 36_000, 43_260), "fifo": (0, 36_000, 43_200, 43_260)},
    ),
    "ends come before arrivals, arrivals before the pass": Case(
        (1, 1), ((0, 10, 1), (10, 10, 1), (10, 5, 1)), {"sjf": (0, 15, 10)}
    ),
    "one GPU on each of two nodes is no place for two on one": Case(
        (2, 2), ((0, 10, 1), (0, 20, 2), (1, 5, 1), (2, 5, 2)), {"easy": (0, 0, 1, 10)}
    ),
    "more than a node is whole nodes and a rest": Case(
        (3, 2), ((0, 10, 1), (0, 10, 5), (0, 10, 4)), {"fifo": (0, 0, 10)}
    ),
    "a job of no duration": Case((1, 1), ((0, 0, 1), (0, 5, 1)), {"easy": (0, 0)}),
}


def run(
    jobs: tuple[tuple[float, float, int], ...],
    cluster: tuple[int, int],
    policy: str,
    estimates: KnownTimes = KnownTimes.PERFECT,
) -> Replay:
    works = [TraceJob(submit, duration, gpus) for submit, duration, gpus in jobs]
    return replay(
        works,
        SimulatedCluster(nodes=cluster[0], gpus_per_node=cluster[1]),
        Scheduling(planning=planning_of(policy)),
        estimates,
    )


@pytest.mark.parametrize(
    ("name", "policy"),
    [(name, policy) for name, case in CASES.items() for policy in case.starts],
    ids=lambda part: part.replace(" ", "-"),
)
def test_starts(name: str, policy: str) -> None:
    case = CASES[name]
    assert run(case.jobs, case.cluster, policy).starts == case.starts[policy]


def test_figures() -> None:
    done = run(((100, 10, 1), (100, 10, 2), (101, 5, 1)), (2, 1), "fifo")

    figures = figures_of(done)

    assert figures == Figures(
        n_jobs=3,
        avg_wait_s=29 / 3,  # 0, 10 and 19
        p95_wait_s=19.0,
        max_wait_s=19.0,
        avg_jct_s=(10 + 20 + 24) / 3,
        avg_bsld=(1.0 + 2.0 + 2.4) / 3,  # a run of 5 s counts as 10
        utilisation=35 / 50,
        makespan_s=25.0,
        wall_s=done.wall_s,
        jobs_per_s=3 / done.wall_s,
        passes=done.passes,
        promised=0,
        late=0,
        too_large=0,
        without_gpus=0,
        nodes=2,
        gpus_per_node=1,
    )


def test_curves() -> None:
    done = run(((0, 10, 1), (0, 10, 2), (1, 5, 1)), (2, 1), "fifo")

    assert mean_over(held_over_time(done), 0.0, 30.0, 3) == ([0.0, 10.0, 20.0], [1.0, 2.0, 0.5])
    assert mean_over(waiting_over_time(done), 0.0, 20.0, 2) == ([0.0, 10.0], [1.9, 1.0])
    assert mean_over(held_over_time(done), -10.0, 10.0, 2) == ([-10.0, 0.0], [0.0, 1.0])


def test_what_cannot_run_is_counted_and_left_out() -> None:
    done = run(((0, 10, 1), (0, 10, 3), (0, 10, 0)), (2, 1), "easy")

    assert (done.starts, done.too_large, done.without_gpus) == ((0.0,), 1, 1)


def test_an_exclusive_job_waits_for_an_empty_node_and_keeps_it_to_itself() -> None:
    works = [
        TraceJob(0, 10, 1),
        TraceJob(1, 5, 1, exclusive=True),
        TraceJob(2, 5, 1),
        TraceJob(3, 50, 3, exclusive=True),
    ]

    done = replay(works, SimulatedCluster(nodes=1, gpus_per_node=2), Scheduling(planning=planning_of("easy")))
    wide = replay(works, SimulatedCluster(nodes=2, gpus_per_node=2), Scheduling(planning=planning_of("easy")))

    # On one node the third ends before the first does; on two the last needs both of them empty.
    assert (done.starts, done.too_large) == ((0.0, 10.0, 2.0), 1)
    assert wide.starts == (0.0, 1.0, 2.0, 10.0)


def test_a_user_s_estimate_counts_and_is_never_less_than_the_run() -> None:
    works = [TraceJob(0, 10, 1, 30), TraceJob(0, 10, 2, 5), TraceJob(1, 20, 1, 25), TraceJob(2, 20, 1)]

    done = replay(
        works,
        SimulatedCluster(nodes=2, gpus_per_node=1),
        Scheduling(planning=planning_of("easy")),
        KnownTimes.USER,
    )

    # The head expects its start at 30, so the third may run until 26; the fourth is expected to take the
    # usual hour.
    assert done.starts == (0.0, 21.0, 1.0, 31.0)
    assert (done.promised, done.late) == (2, 0)


def test_a_promise_that_was_not_kept_is_made_anew_when_it_is_due() -> None:
    """Nothing is known of the first job but the default of an hour; it runs two."""
    done = run(((0, 7_200, 1), (0, 10, 2), (4_000, 3_000, 1)), (2, 1), "easy", KnownTimes.LEARNED)

    # After the hour the first is expected to take four, so the third may go ahead of the second.
    assert done.starts == (0.0, 7_200.0, 4_000.0)
    assert (done.promised, done.late) == (1, 1)


def test_durations_are_learnt_by_user_and_name() -> None:
    works = [
        TraceJob(0, 1_000, 1, None, "ann", "long"),
        TraceJob(1_000, 10, 1, None, "ann", "short"),
        TraceJob(1_010, 500, 1, None, "bob", ""),
        TraceJob(1_100, 1_000, 1, None, "ann", "long"),
        TraceJob(1_200, 10, 1, None, "ann", "short"),
    ]

    done = replay(works, SimulatedCluster(nodes=1, gpus_per_node=1), Scheduling(), KnownTimes.LEARNED)

    assert done.starts == (0.0, 1_000.0, 1_010.0, 1_520.0, 1_510.0)


@pytest.mark.parametrize(
    ("gpus", "spec"),
    [
        (8, JobSpec(gpus=8)),
        (16, JobSpec(nodes=2, gpus_per_node=8)),
        (19, JobSpec(nodes=3, parts=(Part(gpus=8), Part(gpus=8), Part(gpus=3)))),
    ],
)
def test_what_a_traced_job_asks_for(gpus: int, spec: JobSpec) -> None:
    assert spec_of(gpus, 8) == spec


def refusal(works: list[TraceJob], scheduling: Scheduling, estimates: KnownTimes = KnownTimes.PERFECT) -> str:
    with pytest.raises(InvalidRequest) as caught:
        replay(works, SimulatedCluster(nodes=1, gpus_per_node=1), scheduling, estimates)
    return caught.value.message


def test_refusals() -> None:
    one = [TraceJob(0, 1, 1)]

    assert (
        refusal(one, Scheduling(), KnownTimes.USER)
        == "The trace has no estimate_s: use --estimates perfect or learned."
    )
    assert (
        refusal([TraceJob(0, 1, 2)], Scheduling())
        == "No job of the trace fits 1 GPU: give more --nodes or --gpus-per-node."
    )
    assert (
        refusal(one, Scheduling(quota=Quota(running=0)))
        == "1 job can never start under these settings: look at the quotas."
    )
    assert refusal(one, Scheduling(strategy="fill_frist")) == (
        "There is no strategy fill_frist (did you mean fill_first?): it is one of fill_first, spread, "
        "topology, round_robin."
    )
