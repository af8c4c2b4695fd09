"""Run rows of the acceptance table and write what was found: python -m tests.chaos [--row N]… [--size
small|full|COUNT] [--seed S].

What other rows gave before stays in the file, so that rows can be run on different days. Exits with 1 when a
rule was broken. The same seed makes the same choices; what processes make of them is up to the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from tests.chaos.result import Result, Row, perform
from tests.chaos.rows.table import ROWS

SHOWN = 20  # chaos.json has all


def main(words: list[str]) -> int:
    """Run what is asked for; print a line for each row."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument(
        "--row", type=int, action="append", choices=sorted(ROWS), help="may be repeated; all if left out"
    )
    parser.add_argument("--size", default="full", help="small, full, or how many times")
    parser.add_argument("--minutes", type=int, help="how long the soak lasts, in place of its size")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("chaos.json"))
    parser.add_argument("--keep", type=Path, help="keep the record of each row in this directory")
    options = parser.parse_args(words)
    signal.signal(signal.SIGTERM, _interrupt)
    failed = False
    for number in options.row or sorted(ROWS):
        row = ROWS[number]
        times = options.minutes if row.unit == "minutes" and options.minutes else _times(row, options.size)
        if not times:
            continue
        result = _run(row, times, options.seed, options.keep)
        failed = failed or bool(result.violations)
        print(
            f"row {row.number}: {result.times} × {row.what}: {len(result.violations)} violations in "
            f"{result.seconds} s {result.figures}",
            flush=True,
        )
        for violation in result.violations[:SHOWN]:
            print(f"  {violation}", flush=True)
        keep(options.out, result)
    return 1 if failed else 0


def keep(path: Path, result: Result) -> None:
    """Write what a row gave into the file, in place of what it gave before; other rows stay."""
    rows = {row["row"]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}
    machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    rows[result.row] = result.as_json() | {"on": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine}
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.new")
    aside.write_text(json.dumps({"rows": [rows[number] for number in sorted(rows)]}, indent=2) + "\n")
    aside.replace(path)


def _times(row: Row, size: str) -> int:
    return {"small": row.small, "full": row.full}[size] if size in ("small", "full") else int(size)


def _run(row: Row, times: int, seed: int, keep: Path | None) -> Result:
    if keep is not None:
        return perform(row, times, seed, keep / f"row-{row.number}-seed-{seed}")
    with tempfile.TemporaryDirectory(prefix="mgpu-chaos-") as directory:
        return perform(row, times, seed, Path(directory) / "row")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
