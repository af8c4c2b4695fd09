"""Tables of the project's documents, for tests that take what they expect from there. Knows nothing of what
they say.
"""

from __future__ import annotations

from pathlib import Path

SECURITY = Path(__file__).parents[1] / "mgpu_jupyter" / "docs" / "security.md"


def table_of(path: Path, first: str) -> list[list[str]]:
    """Return the rows of the one table whose first heading is `first`, without backquotes."""
    lines = path.read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(f"| {first} |")]
    assert len(starts) == 1, f"{path.name} has {len(starts)} tables that begin with {first!r}"
    rows = []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")])
    return rows
