"""Judge one history: `python -m tests.checker DIRECTORY`. Exits with 1 when a rule was broken."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.checker.history import read
from tests.checker.rules import check


def main(directory: Path) -> int:
    """Print every violation."""
    history = read(directory)
    violations = check(history)
    for violation in violations:
        print(violation)
    print(
        f"{len(history.acknowledged)} acknowledged, {len(history.runs)} processes, {len(violations)} "
        f"violations"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
