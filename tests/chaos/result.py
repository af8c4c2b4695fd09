"""What a row ran and found, as it is written to chaos.json. Values only."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Run = Callable[[Path, int, random.Random], "Findings"]


@dataclass
class Findings:
    """What a row found."""

    violations: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One row of the acceptance table."""

    number: int
    what: str
    small: int
    """0: not in `make test`."""
    full: int
    run: Run
    unit: str = "times"
    """What its size counts."""


@dataclass(frozen=True)
class Result:
    """One run of a row."""

    row: int
    what: str
    times: int
    seed: int
    seconds: float
    figures: dict[str, Any]
    violations: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def perform(row: Row, times: int, seed: int, directory: Path) -> Result:
    """Run a row so many times."""
    began = time.monotonic()
    findings = row.run(directory, times, random.Random(f"{row.number}/{seed}"))
    seconds = round(time.monotonic() - began, 1)
    return Result(row.number, row.what, times, seed, seconds, findings.figures, findings.violations)
