"""Partitions, accounts, QoS and quotas: what they mean for one job, and what they refuse."""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.errors import Conflict, MgpuError
from mgpu_agent.protocol.wording import rounded
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Account, Partition, Qos, Quota, Scheduling
from mgpu_jupyter.scheduler.admission import Admission
from mgpu_jupyter.scheduler.events import CancelRequested
from mgpu_jupyter.scheduler.explain.waiting import Waiting, waiting
from mgpu_jupyter.scheduler.model import ArrayPart, Policy, Reason
from mgpu_jupyter.scheduler.planning.quotas import Claim
from mgpu_jupyter.scheduler.site import Site
from mgpu_jupyter.scheduler.words import nearest, several
from tests.builders import Cluster, a_spec

SETTINGS = Scheduling(
    max_time_s=1000.0,
    partitions={
        "all": Partition(default=True),
        "big": Partition(
            nodes=("b*",), policy="spread", max_time_s=500.0, max_nodes=2, max_gpus=6, allow_accounts=("lab",)
        ),
    },
    accounts={"lab": Account(users=("ann",), quota=Quota(gpus=3)), "open": Account()},
    qos={
        "high": Qos(priority=10.0, allow_users=("ann",)),
        "low": Qos(preemptible=True, quota=Quota(running=1)),
    },
    quotas={"eve": Quota(gpus=1, queued=1), "idle": Quota(running=0)},
)


def a_cluster() -> Cluster:
    return Cluster(("a1", 4), ("b1", 4), ("b2", 4), policy=Policy(scheduling=SETTINGS))


def test_what_settings_mean_for_a_job():
    site = Site(SETTINGS)

    assert site.partitions_of("b1") == frozenset({"all", "big"})
    assert site.partitions_of("a1") == frozenset({"all"})
    assert [site.partition_of(a_spec()), site.partition_of(a_spec(partition="big"))] == ["all", "big"]
    assert Site(Scheduling()).partition_of(a_spec()) == ""
    assert [site.account_of(user, a_spec()) for user in ("ann", "bob")] == ["lab", ""]
    assert site.account_of("bob", a_spec(account="open")) == "open"
    assert [
        site.strategy_of(a_spec(**one)) for one in ({}, {"partition": "big"}, {"policy": "topology"})
    ] == [
        "fill_first",
        "spread",
        "topology",
    ]
    assert [site.time_limit_s(a_spec(partition="big"), limit) for limit in (None, 20.0)] == [500.0, 20.0]
    assert site.time_limit_s(a_spec(), None) == 1000.0
    assert (site.qos("high").priority, site.qos("").priority, site.quota_of("eve")) == (
        10.0,
        0.0,
        Quota(gpus=1, queued=1),
    )


REFUSED = [
    (
        "ann",
        {"partition": "bg"},
        "unknown-partition",
        "There is no partition bg (did you mean big?): it is one of all, big.",
    ),
    ("ann", {"qos": "xx"}, "unknown-qos", "There is no qos xx: it is one of high, low."),
    (
        "ann",
        {"account": "lob"},
        "unknown-account",
        "There is no account lob (did you mean lab?): it is one of lab, open.",
    ),
    (
        "ann",
        {"policy": "sprea"},
        "unknown-policy",
        (
            "There is no policy sprea (did you mean spread?): it is one of fill_first, spread, topology, "
            "round_robin."
        ),
    ),
    (
        "bob",
        {"account": "lab"},
        "not-in-account",
        "bob is not in the account lab: ask an administrator, or leave --account out.",
    ),
    (
        "bob",
        {"qos": "high"},
        "qos-forbidden",
        "bob may not use the QoS high: ask an administrator, or leave --qos out.",
    ),
    (
        "bob",
        {"partition": "big"},
        "partition-forbidden",
        "bob may not use the partition big: ask an administrator, or name another with -p.",
    ),
    (
        "ann",
        {"partition": "big", "nodes": 3},
        "partition-limit",
        "The partition big gives at most 2 nodes to a job: ask for fewer.",
    ),
    (
        "ann",
        {"partition": "big", "nodes": 2, "gpus_per_node": 4},
        "partition-limit",
        "The partition big gives at most 6 GPUs to a job: ask for fewer.",
    ),
    (
        "ann",
        {"partition": "big", "time_limit_s": 501.0},
        "partition-limit",
        "The partition big lets a job run 8 m 20 s at most: give a shorter limit.",
    ),
    ("eve", {"gpus": 2}, "quota", "It asks for 2 GPUs, but user eve may have 1 at once: ask for fewer."),
    ("idle", {}, "quota", "User idle may run no jobs: ask an administrator."),
]


@pytest.mark.parametrize(("user", "spec", "code", "message"), REFUSED)
def test_what_the_site_does_not_have_or_allow_is_refused_with_a_sentence(user, spec, code, message):
    with pytest.raises(MgpuError) as refusal:
        Admission(a_cluster().state).check(user, a_spec(**spec))

    assert (refusal.value.code, refusal.value.message) == (code, message)


def test_what_is_allowed_is_taken():
    admission = Admission(a_cluster().state)

    admission.check("ann", a_spec(partition="big", qos="high", account="lab", gpus=3, time_limit_s=500.0))
    admission.check("bob", a_spec(account="open", qos="low", policy="topology"))


def test_a_cluster_without_partitions_says_so():
    with pytest.raises(MgpuError) as refusal:
        Site(Scheduling()).check("ann", a_spec(partition="big"))

    assert refusal.value.message == "There is no partition big: this cluster has none; leave it out."


def test_a_job_runs_only_in_its_partition():
    cluster = a_cluster()

    job = cluster.started(user="ann", partition="big")

    assert [placement.node_id for placement in job.placements] == ["b1"]
    assert job.account == "lab"


def test_quotas_hold_a_job_back_and_nobody_else():
    cluster = a_cluster()
    running = cluster.started(user="ann", gpus=2)
    waits, other = cluster.submit(user="ann", gpus=2), cluster.submit(user="bob", gpus=2)

    cluster.schedule()

    assert cluster.job(other).state is JobState.STARTING
    text = "Account lab may have 3 GPUs at once and has 2; this asks for 2."
    assert waiting(cluster.state, waits, 2.0) == Waiting(1, Reason("quota", text))
    assert cluster.state.planner.promises == []
    cluster.tell(CancelRequested(at=3.0, job_id=running.id, by="ann"))


def test_a_qos_counts_the_jobs_of_each_user():
    cluster = a_cluster()
    cluster.started(user="bob", qos="low")
    waits, other = cluster.submit(user="bob", qos="low"), cluster.submit(user="cid", qos="low")

    cluster.schedule()

    assert cluster.job(other).state is JobState.STARTING
    assert waiting(cluster.state, waits, 2.0) == Waiting(
        1, Reason("quota", "User bob in QoS low may run 1 job at once, and does.")
    )


def test_more_waiting_jobs_than_the_quota_are_refused():
    cluster = a_cluster()
    cluster.submit(user="eve")

    with pytest.raises(Conflict) as refusal:
        Admission(cluster.state).check("eve", a_spec())

    assert refusal.value.message == (
        "User eve may have 1 job waiting and has 1: wait until some have started, or cancel some."
    )


def test_an_array_runs_no_more_at_once_than_it_may():
    cluster = a_cluster()
    quotas = cluster.state.quotas
    quotas.throttles["ARRAY"] = 1
    part = ArrayPart("ARRAY", 1, 1)

    assert quotas.why_not("bob", "", "", part.id, 1) == ""
    quotas.hold(Claim("bob", "", "", part.id, 1), 1)
    assert (
        quotas.why_not("bob", "", "", part.id, 1) == "1 job of its array run, as many as it may have at once."
    )


# --- words --------------------------------------------------------------------------------------------


def test_small_pieces_of_sentences():
    assert several(["a", "b", "c", "d", "e", "f"]) == "a, b, c, d and 2 more"
    assert (nearest("fil", ["fill"]), nearest("zzz", ["fill"])) == (" (did you mean fill?)", "")
    assert [rounded(seconds) for seconds in (-1.0, 5.0, 90.0, 5400.0, 180_000.0)] == [
        "0 s",
        "5 s",
        "1 m 30 s",
        "1 h 30 m",
        "2 d 2 h",
    ]
