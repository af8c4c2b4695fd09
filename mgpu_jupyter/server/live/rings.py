"""Rows of numbers over time within a bound: means over steps, finer for what is new. Knows no columns."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import msgspec

NONE = math.nan


class Points(msgspec.Struct, frozen=True):
    """Times and, for each column, as many values; None where nothing was reported."""

    step_s: float
    times: list[float]
    columns: list[list[float | None]]


class Mean:
    """Sums up rows until their mean is asked for."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.clear()

    def clear(self) -> None:
        """Start over."""
        self._sums = [0.0] * self._width
        self._counts = [0] * self._width

    def add(self, row: Sequence[float | None]) -> None:
        """Add a row; None does not count."""
        sums, counts = self._sums, self._counts
        for index, value in enumerate(row):
            if value is not None:
                sums[index] += value
                counts[index] += 1

    def row(self) -> list[float]:
        """Return the means, NaN where nothing was reported."""
        return [
            total / count if count else NONE for total, count in zip(self._sums, self._counts, strict=True)
        ]


class Ring:
    """The means of a fixed number of steps; the oldest is overwritten."""

    def __init__(self, step_s: float, slots: int, width: int) -> None:
        self.step_s, self._slots, self._width = step_s, slots, width
        self._times = array("d")
        self._values = array("f")
        self._next = 0
        self._slot: int | None = None
        self._mean = Mean(width)

    @property
    def span_s(self) -> float:
        """How far back it reaches when it is full."""
        return self.step_s * self._slots

    def add(self, at: float, row: Sequence[float | None]) -> None:
        """Add a row."""
        slot = int(at // self.step_s)
        if slot != self._slot:
            self._close_slot()
            self._slot = slot
        self._mean.add(row)

    def rows(self, since: float) -> tuple[list[float], list[Sequence[float]]]:
        """Return times and rows from `since` on, oldest first, with the step that is under way."""
        width, count = self._width, len(self._times)
        order = [*range(self._next, count), *range(self._next)]
        kept = [index for index in order if self._times[index] >= since]
        times = [self._times[index] for index in kept]
        rows: list[Sequence[float]] = [self._values[index * width : (index + 1) * width] for index in kept]
        if self._slot is not None and self._slot * self.step_s >= since:
            times.append(self._slot * self.step_s)
            rows.append(self._mean.row())
        return times, rows

    def _close_slot(self) -> None:
        if self._slot is None:
            return
        at, row = self._slot * self.step_s, array("f", self._mean.row())
        if len(self._times) < self._slots:
            self._times.append(at)
            self._values.extend(row)
        else:
            self._times[self._next] = at
            self._values[self._next * self._width : (self._next + 1) * self._width] = row
            self._next = (self._next + 1) % self._slots
        self._mean.clear()


class Tiers:
    """Several rings of the same rows, from fine and short to coarse and long."""

    def __init__(self, steps: Sequence[tuple[float, int]], width: int) -> None:
        self._width = width
        self._rings = [Ring(step_s, slots, width) for step_s, slots in steps]

    def add(self, at: float, row: Sequence[float | None]) -> None:
        """Add a row."""
        for ring in self._rings:
            ring.add(at, row)

    def read(self, since: float, until: float, points: int) -> Points:
        """Return at most `points` points of the finest ring that reaches back that far, else of the
        longest.
        """
        ring = next((one for one in self._rings if one.span_s >= until - since), self._rings[-1])
        times, rows = ring.rows(since)
        factor = max(1, math.ceil(len(times) / points))
        return Points(ring.step_s * factor, *_thinned(times, rows, factor, self._width))


class Growing:
    """All rows from the first one on in a bounded number of points: when there are too many, pairs merge."""

    def __init__(self, step_s: float, most: int, width: int) -> None:
        self.step_s, self._most, self._width = step_s, most, width
        self._times: list[float] = []
        self._rows: list[Sequence[float]] = []
        self._begun: float | None = None
        self._mean = Mean(width)

    def add(self, at: float, row: Sequence[float | None]) -> None:
        """Add a row."""
        if self._begun is None:
            self._begun = at
        elif at >= self._begun + self.step_s:
            self._times.append(self._begun)
            self._rows.append(array("f", self._mean.row()))
            self._mean.clear()
            self._begun += self.step_s * math.floor((at - self._begun) / self.step_s)
        self._mean.add(row)
        if len(self._times) >= 2 * self._most:
            self._times, columns = _thinned(self._times, self._rows, 2, self._width)
            self._rows = [
                array("f", [NONE if value is None else value for value in row])
                for row in zip(*columns, strict=True)
            ]
            self.step_s *= 2

    def read(self, points: int) -> Points:
        """Return all in at most `points` points."""
        times, rows = self._times, self._rows
        if self._begun is not None:
            times, rows = [*times, self._begun], [*rows, self._mean.row()]
        factor = max(1, math.ceil(len(times) / points))
        return Points(self.step_s * factor, *_thinned(times, rows, factor, self._width))


def _thinned(
    times: Sequence[float], rows: Sequence[Sequence[float]], factor: int, width: int
) -> tuple[list[float], list[list[float | None]]]:
    """Return columns in which groups of rows are merged."""
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
    if factor == 1:
        return list(times), [[None if math.isnan(value) else value for value in column] for column in columns]
    starts = range(0, len(times), factor)
    return [times[start] for start in starts], [
        [_mean(column[start : start + factor]) for start in starts] for column in columns
    ]


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None
