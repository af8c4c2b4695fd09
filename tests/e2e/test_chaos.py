"""Small sizes of the chaos rows: faults on real processes, judged by the checker alone. `make chaos` runs the full sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.nodes import can_boot
from tests.chaos.power.trace import can_record
from tests.chaos.result import perform
from tests.chaos.rows.clocks import can_preload
from tests.chaos.rows.disks import can_mount
from tests.chaos.rows.table import ROWS

SEED = 1


@pytest.mark.parametrize("number", [number for number, row in sorted(ROWS.items()) if row.small])
def test_row(number: int, tmp_path: Path) -> None:
    if number == 8 and not can_mount():
        pytest.skip("Only root can mount the small disks that are filled.")
    if number == 10 and not can_preload():
        pytest.skip("There is no gcc to build the clock that jumps.")
    if number in (4, 15, 18) and not can_boot():
        pytest.skip("There is no gcc to build what shows a program another boot.")
    if number == 13 and not can_record():
        pytest.skip("There is no gcc to build the recorder of writes and sends.")
    result = perform(ROWS[number], ROWS[number].small, SEED, tmp_path / "row")
    assert result.violations == []
