"""What users have on the master's disk, measured once when a master starts; from then on it is counted
(`master/keeping.py`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from mgpu_jupyter.store.results import INDEX

DISK_PART = 4
"""A user may have a quarter of the disk for each kind, unless set otherwise."""


def output_by_user(root: Path, owners: Mapping[str, str]) -> dict[str, int]:
    """Return how many bytes of output there are, by the owners of the jobs."""
    used: dict[str, int] = {}
    for entry in _entries(root, 2):
        if (user := owners.get(entry.name.partition(".")[0])) is not None:
            used[user] = used.get(user, 0) + entry.stat().st_size
    return used


def results_by_user(root: Path, owners: Mapping[str, str]) -> dict[str, int]:
    """Return how many bytes of results there are, by the owners of the jobs; incomplete ones are fetched
    again and do not count.
    """
    used: dict[str, int] = {}
    for attempt in _entries(root, 2):
        if (user := owners.get(attempt.name.partition(".")[0])) is not None:
            used[user] = used.get(user, 0) + results_size(Path(attempt.path))
    return used


def results_size(attempt: Path) -> int:
    """Return how many bytes are kept of one attempt."""
    nodes = [node for node in _entries(attempt, 1) if os.path.exists(f"{node.path}/{INDEX}")]
    return sum(
        file.stat().st_size for node in nodes for file in _entries(Path(node.path), 1) if file.name != INDEX
    )


def share_of_disk(limit_bytes: int | None, root: Path, used: Mapping[str, int]) -> int:
    """Return the share of each user: what is set, else a part of what the disk has for this."""
    if limit_bytes is not None:
        return limit_bytes
    return (shutil.disk_usage(root).free + sum(used.values())) // DISK_PART


def _entries(root: Path, depth: int) -> list[os.DirEntry[str]]:
    """Return the entries at this depth below a directory, if it is there."""
    try:
        with os.scandir(root) as found:
            entries = list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return (
        entries
        if depth == 1
        else [inner for entry in entries for inner in _entries(Path(entry.path), depth - 1)]
    )
