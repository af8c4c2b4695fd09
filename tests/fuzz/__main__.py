"""`make fuzz`: frames that no honest program sends against master, agent and keeper. Reads the flags and
prints the sum.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from tests.fuzz.targets import TARGETS
from tests.fuzz.throwing import FRAMES, replay, run


def main() -> int:
    """Return 0 when all held."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Throw frames that no honest program sends."
    )
    parser.add_argument("--frames", type=int, default=FRAMES, help="how many in all")
    parser.add_argument("--seed", "--first", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=sorted(TARGETS))
    parser.add_argument("--replay", type=Path, help="throw the frames of this file alone")
    wish: Any = parser.parse_args()
    if wish.replay:
        replay(wish.only, wish.replay, wish.first)
        return 0
    began = time.perf_counter()
    parts = run(wish.frames, wish.first, wish.processes, wish.only)
    seconds = time.perf_counter() - began
    thrown = sum(part.frames for part in parts)
    print(
        f"{thrown:,} frames in {seconds:.0f} s ({thrown / seconds:,.0f}/s): "
        f"{sum(not part.is_well for part in parts)} findings"
    )
    return 0 if all(part.is_well for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
