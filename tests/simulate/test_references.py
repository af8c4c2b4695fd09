"""Real traces give the figures of independent simulators, and the default order keeps what it promises."""

from __future__ import annotations

from functools import cache

import pytest

from mgpu_jupyter.model.policies import planning_of
from mgpu_jupyter.model.settings import Scheduling
from mgpu_jupyter.simulate.figures import Figures, figures_of
from mgpu_jupyter.simulate.traces import read_trace
from mgpu_jupyter.simulate.world import KnownTimes, SimulatedCluster, replay
from tests.simulate.places import folder

pytestmark = [pytest.mark.references, pytest.mark.timeout(300)]

KTH = ("kth_sp2_1996.csv.gz", SimulatedCluster(nodes=100, gpus_per_node=1))
VENUS = ("helios_venus_sept.csv.gz", SimulatedCluster(nodes=80, gpus_per_node=8))


@cache
def result(
    trace: tuple[str, SimulatedCluster], policy: str, estimates: KnownTimes = KnownTimes.PERFECT
) -> Figures:
    """Replay once for all tests that ask."""
    name, cluster = trace
    place = folder()
    if place is None or not (place / name).is_file():
        pytest.skip(f"There is no {name}: set MGPU_TRACES to a folder that has it.")
    figures = figures_of(
        replay(read_trace(place / name), cluster, Scheduling(planning=planning_of(policy)), estimates)
    )
    print(f"\n{name} {policy} {estimates}: {figures}")
    return figures


def test_kth_easy_with_perfect_estimates() -> None:
    figures = result(KTH, "easy")

    assert figures.avg_bsld == pytest.approx(71.72, rel=0.01)
    assert figures.avg_jct_s == pytest.approx(15_187.6, rel=0.005)
    assert figures.max_wait_s == pytest.approx(258_803, rel=0.02)
    assert figures.utilisation == pytest.approx(0.6856, rel=0.001)


def test_kth_easy_with_the_users_estimates() -> None:
    figures = result(KTH, "easy", KnownTimes.USER)

    assert figures.avg_bsld == pytest.approx(92.69, rel=0.02)
    assert figures.avg_jct_s == pytest.approx(15_694.5, rel=0.01)


def test_kth_fifo() -> None:
    figures = result(KTH, "fifo")

    assert figures.avg_bsld == pytest.approx(6_815, rel=0.02)
    assert figures.p95_wait_s == pytest.approx(805_926, rel=0.01)


def test_kth_shortest_first() -> None:
    figures = result(KTH, "sjf")

    assert figures.avg_bsld == pytest.approx(44.13, rel=0.02)
    assert figures.max_wait_s == pytest.approx(2_573_461, rel=0.02)


def test_venus_easy() -> None:
    figures = result(VENUS, "easy")

    assert figures.avg_jct_s == pytest.approx(26_343, rel=0.02)
    assert figures.max_wait_s <= 227_396 * 1.02


def test_venus_fifo() -> None:
    assert result(VENUS, "fifo").avg_jct_s == pytest.approx(162_123, rel=0.01)


def test_venus_shortest_first() -> None:
    figures = result(VENUS, "sjf-strict")

    assert figures.avg_jct_s == pytest.approx(16_805, rel=0.01)
    assert figures.max_wait_s == pytest.approx(693_928, rel=0.01)


def test_the_default_is_quick_and_starves_nobody() -> None:
    figures = result(VENUS, "default")

    assert figures.avg_jct_s <= 18_500
    assert figures.max_wait_s <= 2 * result(VENUS, "easy").max_wait_s


def test_the_default_without_estimates_is_far_from_arrival_order() -> None:
    """Nothing is known but what jobs took before; Venus has neither users nor names, KTH has users."""
    assert result(VENUS, "default", KnownTimes.LEARNED).avg_jct_s <= 35_000
    assert result(KTH, "default", KnownTimes.LEARNED).avg_jct_s <= 15_700


@pytest.mark.parametrize("trace", [KTH, VENUS], ids=["kth", "venus"])
def test_the_head_never_starts_later_than_it_was_promised_first(trace: tuple[str, SimulatedCluster]) -> None:
    figures = result(trace, "easy")

    assert figures.promised > 1_000
    assert figures.late == 0
