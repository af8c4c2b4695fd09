"""All rows by number."""

from __future__ import annotations

from tests.chaos.result import Row
from tests.chaos.rows import agents, clocks, disks, floods, masters, trees

ROWS: dict[int, Row] = {row.number: row for row in (*masters.ROWS, *agents.ROWS, *trees.ROWS, *disks.ROWS, *clocks.ROWS, *floods.ROWS)}
