"""Who may use what, and what a site's settings survive."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu_jupyter.model.settings import (
    Account,
    Lists,
    Partition,
    Planning,
    Qos,
    Quota,
    Retries,
    Scheduling,
    Weights,
)


@pytest.mark.parametrize(
    ("lists", "admitted"),
    [
        (Lists(), ["ada/", "ada/bio", "bob/", "bob/bio"]),
        (Lists(allow_users=("ada",)), ["ada/", "ada/bio"]),
        (Lists(deny_users=("ada",)), ["bob/", "bob/bio"]),
        (Lists(allow_accounts=("bio",)), ["ada/bio", "bob/bio"]),
        (Lists(deny_accounts=("bio",)), ["ada/", "bob/"]),
        (Lists(allow_users=("ada",), allow_accounts=("bio",)), ["ada/", "ada/bio", "bob/bio"]),
        (Lists(allow_users=("ada",), deny_accounts=("bio",)), ["ada/"]),
        (Lists(allow_users=("ada",), deny_users=("ada",)), []),
        (Lists(allow_accounts=("bio",), deny_users=("ada",)), ["bob/bio"]),
    ],
)
def test_who_is_admitted(lists: Lists, admitted: list[str]) -> None:
    everybody = [("ada", ""), ("ada", "bio"), ("bob", ""), ("bob", "bio")]
    assert [f"{user}/{account}" for user, account in everybody if lists.admit(user, account)] == admitted


NAMES = st.lists(st.sampled_from(["ada", "bob"]), max_size=2).map(tuple)


@given(st.builds(Lists, allow_users=NAMES, deny_users=NAMES, allow_accounts=NAMES, deny_accounts=NAMES))
def test_lists_that_are_empty_admit_everybody(lists: Lists) -> None:
    assert bool(lists) == (lists != Lists())
    assert all(lists.admit(user, "") for user in ("ada", "bob", "cy")) or lists


def test_the_lists_of_a_partition() -> None:
    partition = Partition(allow_users=("a",), deny_users=("b",), allow_accounts=("c",), deny_accounts=("d",))
    assert partition.lists == Lists(
        allow_users=("a",), deny_users=("b",), allow_accounts=("c",), deny_accounts=("d",)
    )


def test_settings_survive_json() -> None:
    settings = Scheduling(
        strategy="spread",
        planning=Planning(
            weights=Weights(age=2.0, fair_share=10.0),
            overtake=False,
            reservations=5,
            spare=False,
            sticky=True,
            learn=False,
        ),
        retries=Retries(max_failed_starts=2, jitter=0.0),
        partitions={"gpu": Partition(nodes=("n*",), default=True, max_time_s=60.0, max_nodes=2, max_gpus=8)},
        accounts={"bio": Account(users=("ada",), shares=2.0, quota=Quota(gpus=4))},
        qos={"low": Qos(priority=-1.0, preemptible=True, grace_s=5.0)},
        quota=Quota(running=3),
        quotas={"bob": Quota(queued=0)},
        shares={"ada": 3.0},
        preemption=True,
    )
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Scheduling) == settings
    assert msgspec.json.encode(Scheduling()) == b"{}"


@pytest.mark.parametrize(
    "fields",
    [
        {"strategie": "spread"},
        {"strategy": "a b"},
        {"planning": {"reservations": 101}},
        {"planning": {"weights": {"age": -1}}},
        {"retries": {"jitter": 1.5}},
        {"retries": {"node_failures": 0}},
        {"partitions": {"gpu": {"max_nodes": 0}}},
        {"accounts": {"bio": {"shares": 0}}},
        {"quota": {"gpus": -1}},
        {"shares": {"ada": 0}},
        {"half_life_s": 0},
    ],
)
def test_settings_that_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, Scheduling)
