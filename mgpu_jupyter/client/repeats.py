"""Which lines of a rank only repeat what another rank said, and which ranks had nothing of their own to say. Prints nothing.

A line is shown when its rank said it more often than it was shown. So what all ranks say is shown once, in the moment in which the
first of them says it, and nothing that differs is lost.
"""

from __future__ import annotations

from collections import Counter

from mgpu_jupyter.client.words import numbers

MAX_LINES = 20_000
"""So many different lines are remembered; beyond that everything is shown."""


class Repeats:
    """The lines of one job, counted by rank."""

    def __init__(self) -> None:
        self._shown: Counter[str] = Counter()
        self._said: dict[int, Counter[str]] = {}
        self.folded: Counter[int] = Counter()
        """How many lines of each rank were not shown."""

    def is_new(self, rank: int, line: str) -> bool:
        """Tell whether this line says something that was not shown yet; blank ones are as new as any."""
        said = self._said.setdefault(rank, Counter())
        text = line.rstrip("\r\n")
        if len(self._shown) >= MAX_LINES and text not in self._shown:
            return True
        said[text] += 1
        if said[text] > self._shown[text]:
            self._shown[text] += 1
            return True
        self.folded[rank] += 1
        return False

    def summary(self, ranks: int) -> str:
        """Return what was folded and who was quiet, in a line; nothing when every rank was shown whole."""
        parts = []
        if self.folded:
            lines = sum(self.folded.values())
            who = f"{'ranks' if len(self.folded) > 1 else 'rank'} {numbers(sorted(self.folded))}"
            parts.append(f"{lines} line{'s' if lines > 1 else ''} of {who} repeat{'s' if lines == 1 else ''} what another said")
        if self._said and (quiet := [rank for rank in range(ranks) if rank not in self._said]):
            parts.append(f"{'ranks' if len(quiet) > 1 else 'rank'} {numbers(quiet)} said nothing")
        text = "; ".join(parts)
        return f"{text[:1].upper()}{text[1:]}." if text else ""
