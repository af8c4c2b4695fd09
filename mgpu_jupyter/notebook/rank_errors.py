"""What ended the ranks of a cell's job, each thing once: held until the job is over, because the cell's own
error shows it then.

A job that goes on long after one of its ranks failed shows the error among its output, and the cell's error
is one line. Writes nothing itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api import models
from mgpu_jupyter.client.words import cause, first_to_fail
from mgpu_jupyter.notebook.header_text import ranges
from mgpu_jupyter.notebook.tracebacks import RemoteError, read

HOLD_S = 3.0
SHOWN_OTHERS = 8


class RankErrors:
    """The errors of one attempt of a job, by rank."""

    def __init__(
        self, draw: Callable[[RemoteError], list[str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._draw = draw
        self._clock = clock
        self._errors: dict[int, RemoteError] = {}
        self._came_at: dict[int, float] = {}
        self._written: set[RemoteError] = set()

    def add(self, rank: int, data: Mapping[str, Any]) -> None:
        """Take in what a rank told."""
        self._errors[rank] = read(data)
        self._came_at[rank] = self._clock()

    def due(self) -> str:
        """Return what was held so long that it belongs into the output."""
        return self._text([rank for rank, at in self._came_at.items() if self._clock() - at >= HOLD_S])

    def rest(self) -> str:
        """Return all that no error of the cell will show, and begin anew."""
        text = self._text(list(self._errors))
        self._errors.clear()
        self._came_at.clear()
        self._written.clear()
        return text

    def lines(self, job: models.Job) -> list[str]:
        """Return the lines of the cell's error: what the rank that failed first raised, and what became of
        the others; none where no rank told of an error.
        """
        if not self._errors:
            return []
        culprit = first_to_fail(job)
        first = (
            culprit.rank if culprit is not None and culprit.rank in self._errors else next(iter(self._errors))
        )
        error = self._errors[first]
        lines = [error.last_line] if error in self._written else self._draw(error)
        told: list[str] = []
        if culprit is not None and culprit.rank != first:
            told.append(f"This is rank {first}; {cause(job)}.")
        alike = [rank for rank, one in self._errors.items() if one == error]
        if len(alike) > 1:
            told.append(f"{ranks(alike)} failed alike.")
        return [*lines, *([""] if told else []), *told, *self._others(error)]

    def quiet(self, job: models.Job) -> str:
        """Return which ranks did not fail by themselves, as a sentence."""
        culprit = first_to_fail(job)
        others = [
            one.rank
            for one in job.placements
            if culprit is not None and one.rank != culprit.rank and one.rank not in self._errors
        ]
        if culprit is None or not others:
            return ""
        return f"{ranks(others)}: stopped because rank {culprit.rank} failed."

    def _others(self, error: RemoteError) -> list[str]:
        """Return what other ranks raised that is not the same, one line for each thing."""
        by_line: dict[str, list[int]] = {}
        for rank, one in sorted(self._errors.items()):
            if one != error:
                by_line.setdefault(one.last_line, []).append(rank)
        lines = [f"{ranks(found)}: {line}" for line, found in by_line.items()]
        more = len(lines) - SHOWN_OTHERS
        return lines if more <= 0 else [*lines[:SHOWN_OTHERS], f"and {more} more"]

    def _text(self, chosen: list[int]) -> str:
        """Return the errors of these ranks as they are drawn, those that are alike once."""
        text = ""
        for error in dict.fromkeys(self._errors[rank] for rank in chosen):
            if error not in self._written:
                self._written.add(error)
                text += "\n".join(self._draw(error)) + "\n"
        return text


def ranks(found: list[int]) -> str:
    """Return `Rank 1` or `Ranks 0–3`."""
    return printable(f"{'Ranks' if len(found) > 1 else 'Rank'} {ranges(sorted(found))}")
