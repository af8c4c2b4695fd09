"""Curves over time: means of equal spans."""

from __future__ import annotations

from mgpu_jupyter.simulate.figures import mean_over


def test_the_mean_of_each_span_is_its_area_over_its_width() -> None:
    curve = ([0.0, 10.0, 15.0], [2.0, 4.0, 0.0])
    assert mean_over(curve, 0.0, 20.0, 4) == ([0.0, 5.0, 10.0, 15.0], [2.0, 2.0, 4.0, 0.0])
    assert mean_over(curve, -10.0, 30.0, 2) == ([-10.0, 10.0], [1.0, 1.0])
    assert mean_over(curve, 5.0, 15.0, 1) == ([5.0], [3.0])
