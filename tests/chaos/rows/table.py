"""All rows by number."""

from __future__ import annotations

from tests.chaos.result import Row
from tests.chaos.rows import (
    agents,
    away,
    clocks,
    disks,
    floods,
    gangs,
    losses,
    many,
    masters,
    partitions,
    power,
    ranks,
    revivals,
    soak,
    trees,
)

_MODULES = (
    masters,
    agents,
    losses,
    partitions,
    disks,
    trees,
    clocks,
    floods,
    soak,
    power,
    away,
    gangs,
    many,
    ranks,
    revivals,
)
ROWS: dict[int, Row] = {row.number: row for module in _MODULES for row in module.ROWS}
