"""Names of spool files: a new pair for every task, or one that an earlier task left empty. Touches no file
itself.

Creating two files costs as much as starting a small process on many disks. A task that wrote nothing and left
no process behind leaves a pair that nobody has open, and the next task can use it.
"""

from __future__ import annotations

_SPARE_LIMIT = 256


class SpoolSlots:
    """The names that a keeper gives out. `prefix` is its own, so that no two keepers give out the same."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0
        self._spare: list[str] = []

    @property
    def spare(self) -> tuple[str, ...]:
        """Return the names that can be used again."""
        return tuple(self._spare)

    def take(self) -> str:
        """Return the stem of a pair of spool files."""
        if self._spare:
            return self._spare.pop()
        self._count += 1
        return f"{self._prefix}-{self._count}"

    def give_back(self, stem: str) -> bool:
        """Accept an empty pair that nobody has open; tell whether it is kept."""
        if len(self._spare) >= _SPARE_LIMIT:
            return False
        self._spare.append(stem)
        return True
