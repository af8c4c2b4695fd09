"""A site's settings: read or refused with a sentence, shown to users, and its own strategies from an
installed distribution.
"""

from __future__ import annotations

import json
import sys

import msgspec
import pytest
from msgspec.structs import replace
from tornado.httpclient import HTTPClientError

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.model.policies import planning_of
from mgpu_jupyter.model.settings import Account, Partition, Planning, Qos, Quota, Retries, Scheduling, Weights
from mgpu_jupyter.server.site_settings import load_strategies, scheduling_of
from tests.builders import a_spec


def read(written=None, *, strategies=(), **tables):
    return scheduling_of(
        {"strategy": "fill_first", "retries": {"max_failed_starts": 9}}, written or {}, tables, strategies
    )


def test_settings_become_one_value():
    settings = read(
        {
            "planning": {"reservations": 3, "weights": {"age": 2}},
            "preemption": True,
            "quota": {"gpus": 8},
            "retries": {"node_failures": 7},
        },
        partitions={"gpu": {"nodes": ["g*"], "default": True, "policy": "mine", "allow_accounts": ["lab"]}},
        accounts={"lab": {"users": ["ann"], "shares": 2, "quota": {"running": 4}}},
        qos={"spare": {"priority": -1, "preemptible": True}},
        quotas={"bob": {"gpus": 1}},
        shares={"bob": 0.5},
        strategies=["mine"],
    )
    assert settings == Scheduling(
        planning=Planning(reservations=3, weights=Weights(age=2.0)),
        preemption=True,
        quota=Quota(gpus=8),
        retries=Retries(max_failed_starts=9, node_failures=7),
        partitions={"gpu": Partition(nodes=("g*",), default=True, policy="mine", allow_accounts=("lab",))},
        accounts={"lab": Account(users=("ann",), shares=2.0, quota=Quota(running=4))},
        qos={"spare": Qos(priority=-1.0, preemptible=True)},
        quotas={"bob": Quota(gpus=1)},
        shares={"bob": 0.5},
    )


@pytest.mark.parametrize(
    ("written", "tables", "sentence"),
    [
        (
            {"preemtion": True},
            {},
            "MgpuApp.scheduling is wrong: there is no key preemtion; write preemption.",
        ),
        (
            {"planning": {"weights": {"agee": 1}}},
            {},
            "MgpuApp.scheduling.planning.weights is wrong: there is no key agee; write age.",
        ),
        (
            {"planning": {"reservations": -1}},
            {},
            "MgpuApp.scheduling.planning.reservations is wrong: expected int >= 0; write it anew.",
        ),
        ({"quota": 3}, {}, "MgpuApp.scheduling.quota is wrong: expected object, got int; write it anew."),
        (
            {},
            {"partitions": {"a": {"max_tme_s": 1}}},
            "MgpuApp.partitions['a'] is wrong: there is no key max_tme_s; write max_time_s.",
        ),
        (
            {},
            {"accounts": {"a": {"quota": {"zz": 1}}}},
            "MgpuApp.accounts['a'].quota is wrong: there is no key zz; it has gpus, running, queued.",
        ),
        (
            {},
            {"qos": {"a b": {}}},
            "MgpuApp.qos is wrong: 'a b' cannot be a name; use letters, digits and . _ -.",
        ),
        ({}, {"qos": {"": {}}}, "MgpuApp.qos is wrong: '' cannot be a name; use letters, digits and . _ -."),
        (
            {},
            {"partitions": {"a": {"policy": "sprea"}}},
            "MgpuApp.partitions['a'].policy is wrong: there is no strategy sprea; write spread.",
        ),
        (
            {},
            {"partitions": {"a": {"deny_accounts": ["x"]}}},
            "MgpuApp.partitions['a'].deny_accounts is wrong: there is no account x; there are none yet.",
        ),
        (
            {"strategy": "qq"},
            {},
            (
                "MgpuApp.default_policy is wrong: there is no strategy qq; it is one of fill_first, spread, "
                "topology, round_robin."
            ),
        ),
        (
            {},
            {"partitions": {"a": {"default": True}, "b": {"default": True}}},
            "MgpuApp.partitions is wrong: a and b cannot both be the default; leave it to one.",
        ),
        (
            {"qos": {"a": {}}},
            {"qos": {"a": {}}},
            "MgpuApp.qos is wrong: qos is set twice, by itself and within MgpuApp.scheduling; leave one out.",
        ),
        (
            {"partitions": 3},
            {},
            "MgpuApp.scheduling.partitions is wrong: expected object, got int; write it anew.",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name_and_the_nearest_key(written, tables, sentence):
    with pytest.raises(InvalidRequest) as caught:
        read(written, **tables)
    assert (caught.value.code, caught.value.message) == ("bad-setting", f"The setting {sentence}")


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """A real installed distribution, as pip leaves it, with four strategies of which two are broken and one
    is not ours to name.
    """
    info = tmp_path / "lab_strategies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-strategies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[mgpu.strategies]\nreverse = lab_strategies:reverse\nmissing = lab_strategies:nothing\nnumber = "
        "lab_strategies:NUMBER\n"
        "spread = lab_strategies:reverse\n"
    )
    (tmp_path / "lab_strategies.py").write_text(
        "NUMBER = 3\n\n\ndef reverse(wanted, candidates):\n    return sorted((one.node_id for one in "
        "candidates), reverse=True)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("lab_strategies", None)


def test_strategies_of_installed_packages_are_found_and_broken_ones_are_left_out(distribution, caplog):
    found = load_strategies()
    assert list(found) == ["reverse"]
    assert [record.getMessage().split(" is left out: ")[0] for record in caplog.records] == [
        "the strategy missing (lab_strategies:nothing)",
        "the strategy number (lab_strategies:NUMBER)",
        "the strategy spread (lab_strategies:reverse)",
    ]


class TestShown:
    @pytest.fixture
    def mgpu_config(self, distribution, os_user):
        return {
            "local_agent": False,
            "default_policy": "reverse",
            "partitions": {"gpu": {"nodes": ["g*"], "max_gpus": 4}, "closed": {"allow_users": ["nobody"]}},
            "accounts": {"lab": {"users": [os_user]}, "other": {"users": ["nobody"]}},
            "qos": {
                "spare": {"priority": -1, "preemptible": True, "quota": {"running": 2}},
                "vip": {"allow_users": ["nobody"]},
            },
            "quotas": {os_user: {"gpus": 3}},
            "scheduling": {"preemption": True},
        }

    async def test_what_the_site_has_is_in_cluster(self, app, jp_fetch):
        cluster = json.loads((await jp_fetch(PREFIX, "cluster")).body)
        gpu = {
            "nodes": ["g*"],
            "default": False,
            "policy": "",
            "max_time_s": None,
            "max_nodes": None,
            "max_gpus": 4,
        }
        assert {
            name: cluster[name]
            for name in ("partitions", "accounts", "qos", "strategies", "strategy", "preemption", "quota")
        } == {
            "partitions": {"gpu": gpu},
            "accounts": ["lab"],
            "qos": {
                "spare": {
                    "priority": -1.0,
                    "preemptible": True,
                    "quota": {"gpus": None, "running": 2, "queued": None},
                }
            },
            "strategies": ["fill_first", "spread", "topology", "round_robin", "reverse"],
            "strategy": "reverse",
            "preemption": True,
            "quota": {"gpus": 3, "running": None, "queued": None},
        }

    async def test_a_quota_and_a_partition_refuse_at_submit(self, app, jp_fetch):
        answers = []
        for spec in (
            a_spec(gpus=4),
            a_spec(partition="gpu", gpus=5),
            a_spec(partition="closed"),
            a_spec(qos="vip"),
            a_spec(account="other"),
        ):
            with pytest.raises(HTTPClientError) as caught:
                await jp_fetch(PREFIX, "jobs", method="POST", body=msgspec.json.encode(spec))
            answers.append((caught.value.code, json.loads(caught.value.response.body)["code"]))
        assert answers == [
            (409, "quota"),
            (400, "partition-limit"),
            (403, "partition-forbidden"),
            (403, "qos-forbidden"),
            (403, "not-in-account"),
        ]


class TestWrong:
    @pytest.fixture
    def mgpu_config(self):
        return {"local_agent": False, "partitions": {"gpu": {"max_gpu": 4}}}

    async def test_a_wrong_setting_keeps_the_master_from_starting_and_shows_in_health(self, jp_fetch):
        health = json.loads((await jp_fetch(PREFIX, "health")).body)
        assert (health["status"], health["message"]) == (
            "failed",
            "The setting MgpuApp.partitions['gpu'] is wrong: there is no key max_gpu; write max_gpus.",
        )


def test_what_scheduling_says_of_planning_goes_before_the_policy_of_that_name():
    plain = {"planning": msgspec.to_builtins(planning_of("easy"))}
    settings = scheduling_of(plain, {"planning": {"reservations": 3, "weights": {"size": 1}}}, {}, ())
    easy = planning_of("easy")
    assert settings.planning == replace(easy, reservations=3, weights=replace(easy.weights, size=1.0))
