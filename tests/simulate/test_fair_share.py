"""Equal shares and unequal demand lead to equal use."""

from __future__ import annotations

import pytest

from mgpu_jupyter.simulate.figures import used_until
from mgpu_jupyter.simulate.world import Replay
from tests.simulate import fair_share
from tests.simulate.fair_share import DAY_S


def bobs_part(done: Replay, begin_day: float, end_day: float) -> float:
    """Return Bob's part of all that was used in a span of days, in percent."""
    used = {
        user: used_until(done, user, end_day * DAY_S) - used_until(done, user, begin_day * DAY_S)
        for user in ("ann", "bob")
    }
    return 100.0 * used["bob"] / sum(used.values())


@pytest.mark.timeout(300)
def test_equal_shares_and_unequal_demand_converge_to_equal_use() -> None:
    done = fair_share.run("fair-share")

    assert bobs_part(done, 0, 1) == 0.0
    # He used nothing so far, so he comes first until both have used as much, by use that fades with a
    # half-life of a day.
    assert bobs_part(done, 1, 2) > 60.0
    assert abs(bobs_part(done, 5, 8) - 50.0) < 2.0
    assert [abs(bobs_part(done, day, day + 1) - 50.0) < 5.0 for day in (5, 6, 7)] == [True] * 3


@pytest.mark.slow
def test_without_fair_share_who_asks_for_more_gets_more() -> None:
    assert bobs_part(fair_share.run("easy"), 1, 8) < 30.0
