"""How much of the disk each user has, and may have."""

from __future__ import annotations

from mgpu_jupyter.master.keeping import UNBOUNDED, DiskShares


def test_what_users_had_at_the_start_counts() -> None:
    shares = DiskShares(10, {"ann": 7})
    assert [(shares.used(user), shares.room(user)) for user in ("ann", "bob")] == [(7, 3), (0, 10)]
    assert [shares.take("ann", 4), shares.take("ann", 3), shares.take("ann", 1)] == [False, True, False]
    shares.add("ann", -9)
    assert (shares.used("ann"), shares.room("ann")) == (1, 9)
    shares.add("ann", -9)
    assert (shares.used("ann"), shares.room("ann")) == (0, 10)


def test_without_a_limit_and_for_those_who_run_the_cluster_there_is_room_for_all() -> None:
    assert DiskShares().room("ann") == UNBOUNDED
    shares = DiskShares(10, {"root": 20}, lambda user: user == "root")
    assert (shares.room("root"), shares.take("root", 100), shares.used("root")) == (UNBOUNDED, True, 120)
    assert shares.room("ann") == 10
