"""What is expected of a job, what its priority is made of, and what fair share adds to it."""

from __future__ import annotations

import pytest

from mgpu_jupyter.model.explanations import Term
from mgpu_jupyter.model.settings import Account, Planning, Scheduling, Weights
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.events import CancelRequested, TaskReported
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.scheduler.planning.priority import PriorityFacts, base, terms
from mgpu_jupyter.scheduler.planning.shares import Shares, Use
from tests.builders import Cluster, ended, status

ARRIVAL = Weights(duration=0.0, fair_share=0.0)


def over(cluster: Cluster, job: Job, at: float) -> None:
    cluster.tell(TaskReported(at=at, status=status(job, started_at=at - 1)))
    cluster.tell(TaskReported(at=at, status=ended(cluster.job(job.id), at=at)))


def test_what_jobs_of_this_user_name_and_size_took_is_expected_of_the_next():
    cluster = Cluster(("n1", 4))
    for seconds, name, gpus in (
        (100.0, "train", 1),
        (300.0, "train", 1),
        (5000.0, "train", 1),
        (700.0, "eval", 2),
    ):
        job = cluster.started(name=name, gpus=gpus)
        cluster.tell(TaskReported(at=3.0, status=status(job, started_at=3.0)))
        cluster.tell(
            TaskReported(
                at=3.0 + seconds, status=ended(cluster.job(job.id), at=3.0 + seconds, started_at=3.0)
            )
        )

    def expected(**spec: object) -> tuple[float, float]:
        job = cluster.job(cluster.submit(**spec))
        return books.expected_s(cluster.state, job), books.planned_s(cluster.state, job)

    assert expected(name="train", gpus=1) == (300.0, 300.0)
    assert expected(name="new", gpus=2) == (700.0, 700.0)
    assert expected(name="new", gpus=4) == (700.0, 700.0)
    assert expected(name="train", gpus=1, time_limit_s=200.0) == (200.0, 200.0)
    assert expected(name="train", gpus=1, time_limit_s=9000.0) == (300.0, 9000.0)
    assert expected(name="new", user="bob") == (3600.0, 3600.0)


def test_after_some_jobs_their_mean_says_something_about_strangers():
    cluster = Cluster(("n1", 4))
    for seconds in (100.0, 200.0, 300.0, 400.0, 0.5):
        job, begun = cluster.started(), cluster.state.now + 1
        cluster.tell(
            TaskReported(at=begun + seconds, status=ended(job, started_at=begun, at=begun + seconds))
        )

    assert cluster.state.estimates.expect("bob", "x", 1) == pytest.approx(200.1)
    assert cluster.state.estimates.expect("ann", "x", 7) == 300.0


def test_a_cancelled_job_teaches_nothing():
    cluster = Cluster(("n1", 4))
    job = cluster.started()
    cluster.tell(CancelRequested(at=3.0, job_id=job.id, by="ann"))
    cluster.tell(TaskReported(at=4.0, status=ended(job, exit_code=None, signal=15)))

    assert cluster.state.estimates.expect("ann", "", 1) is None


# --- priority -----------------------------------------------------------------------------------------


def test_a_priority_is_a_sum_of_terms_in_hours_of_waiting():
    weights = Weights(duration=3.0, work=0.5, size=0.25, fair_share=12.0, priority=1000.0, qos=2.0)
    facts = PriorityFacts(submitted_at=3600.0, expected_s=30 * 3600.0, gpus=4, priority=-1, qos_priority=5.0)

    assert terms(weights, facts, 5 * 3600.0, 0.5) == (
        Term(name="age", amount=4.0, points=4.0),
        Term(name="duration", amount=24.0, points=-72.0),
        Term(name="work", amount=120.0, points=-60.0),
        Term(name="size", amount=4.0, points=1.0),
        Term(name="fair share", amount=0.5, points=6.0),
        Term(name="priority", amount=-1.0, points=-1000.0),
        Term(name="qos", amount=5.0, points=10.0),
    )
    assert base(weights, facts) == -1.0 - 72.0 - 60.0 + 1.0 - 1000.0 + 10.0


def test_short_jobs_go_ahead_of_long_ones_but_not_for_ever():
    cluster = Cluster(("n1", 1))
    cluster.started(time_limit_s=1e6)
    long = cluster.submit(at=0.0, time_limit_s=10 * 3600.0)
    short = cluster.submit(at=25 * 3600.0, time_limit_s=3600.0)
    late = cluster.submit(at=28 * 3600.0, time_limit_s=3600.0)

    assert list(cluster.state.queue) == [short, long, late]


def test_who_used_less_goes_first_and_the_order_is_made_anew_when_that_changes():
    cluster = Cluster(("n1", 2))
    first = cluster.started(user="ann", time_limit_s=3600.0, gpus=2)
    ann, bob = cluster.submit(user="ann", time_limit_s=60.0), cluster.submit(user="bob", time_limit_s=60.0)
    assert list(cluster.state.queue) == [ann, bob]

    over(cluster, first, 3000.0)
    cluster.submit(user="ann", gpus=9)
    cluster.state.wants_pass = True
    cluster.schedule(3000.0)

    assert cluster.job(bob).placements[0].gpu_indices == (0,)
    assert cluster.memos == {"used by user ann": f"{cluster.state.shares.users['ann'].amount!r} 3000.0"}


# --- shares -------------------------------------------------------------------------------------------


def test_what_was_used_halves_every_half_life_and_what_is_held_grows_it():
    shares = Shares(Scheduling(half_life_s=100.0))
    shares.hold("ann", "", 2, 0.0)
    at_once, after = shares.used("ann", 0.0), shares.used("ann", 100.0)
    shares.hold("ann", "", -2, 100.0)

    assert (at_once, shares.used("bob", 0.0)) == (0.0, 0.0)
    assert after == pytest.approx(2 * 100.0 / 0.6931471805599453 / 2)
    assert shares.used("ann", 200.0) == pytest.approx(after / 2)
    assert shares.used("ann", 50.0) == pytest.approx(after)  # a clock that went back


def test_the_factor_compares_use_with_share():
    settings = Scheduling(
        shares={"ann": 3.0}, accounts={"lab": Account(shares=1.0), "other": Account(shares=1.0)}
    )
    shares = Shares(settings)
    assert shares.factor("ann", "", 0.0) == 1.0
    shares.hold("ann", "lab", 3, 0.0)
    shares.hold("bob", "", 1, 0.0)
    assert shares.factor("ann", "", 0.0) == 1.0  # held, but nothing used yet

    assert shares.factor("ann", "", 10.0) == pytest.approx(0.5)
    assert shares.factor("bob", "unknown", 10.0) == pytest.approx(0.5)
    assert shares.factor("ann", "lab", 10.0) == pytest.approx(0.5 * 0.5)
    assert shares.factor("eve", "other", 10.0) == 1.0
    assert shares.bonus("bob", "", 10.0) == pytest.approx(6.0)
    assert Shares(Scheduling(planning=Planning(weights=ARRIVAL))).bonus("bob", "", 10.0) == 0.0


def test_use_survives_a_restart():
    shares = Shares(Scheduling())
    shares.hold("ann", "lab", 2, 0.0)
    shares.hold("ann", "lab", -2, 10.0)
    kept = shares.take_changes()

    after = Shares(Scheduling())
    after.restore({**kept, "last_turn": "n1"})

    assert sorted(kept) == ["used by account lab", "used by user ann"]
    assert after.users == {"ann": Use(shares.users["ann"].amount, 0.0, 10.0)}
    assert after.accounts == {"lab": Use(shares.accounts["lab"].amount, 0.0, 10.0)}
    assert shares.take_changes() == {}
