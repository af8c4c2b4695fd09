"""Merges lines of several ranks into one text: each with its rank in front, equal ones once, and a progress
bar that redraws. Prints nothing.

A line is held for a moment, to see which other ranks print it: then `0–7 │` is put before it. Later copies
are folded and counted.
"""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from collections.abc import Callable

from mgpu_jupyter.client.lines import MAX_HELD_CHARS
from mgpu_jupyter.notebook.header_text import ranges

MAX_LINES = 20_000
"""How many different lines are remembered; beyond that everything is shown."""
GATHER_S = 0.3
REDRAW_S = 0.1
COLOURS = (34, 35, 32, 36)
"""ANSI blue, magenta, green, cyan: readable in light and dark; red means trouble and yellow cannot be read on
white.
"""
_LINE_END = re.compile(r"\r\n|\n|\r+(?=[^\r\n])")  # a last \r may be half of \r\n
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


class _Line:
    def __init__(self, text: str, rank: int, at: float) -> None:
        self.text = text
        self.ranks = [rank]
        self.at = at


class RankLines:
    """The output of one job with several ranks."""

    def __init__(self, ranks: int, *, colour: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._ranks = ranks
        self._colour = colour
        self._clock = clock
        self._width = max(len(f"0–{ranks - 1}"), 3)
        self._held: dict[tuple[int, str], str] = {}
        self._waiting: deque[_Line] = deque()
        self._open: dict[tuple[str, int], _Line] = {}
        """Lines that wait, by their text and how often it was shown."""
        self._shown: Counter[str] = Counter()
        self._said: dict[int, Counter[str]] = {}
        self._bar: tuple[int, str] | None = None
        self._is_drawn = True
        self._drawn_at = 0.0
        self._drawn_width = 0
        self.folded: Counter[int] = Counter()
        """How many lines of each rank were not shown, because another had printed the same."""
        self.spoke: set[int] = set()

    def feed(self, rank: int, stream: str, text: str) -> str:
        """Add output of a rank; return what is to be written now."""
        self.spoke.add(rank)
        key = (rank, stream)
        text = self._held.pop(key, "") + text
        position = 0
        for found in _LINE_END.finditer(text):
            line = text[position : found.start()]
            position = found.end()
            if found[0].startswith("\r") and not found[0].endswith("\n"):
                if line:
                    self._bar, self._is_drawn = (rank, line), False
            else:
                self._line(rank, line)
        rest = text[position:]
        if len(rest) > MAX_HELD_CHARS:
            self._line(rank, rest)
        elif rest:
            self._held[key] = rest
            if rest.endswith("\r") or (self._bar is not None and self._bar[0] == rank):
                self._bar, self._is_drawn = (rank, rest.strip("\r")), False
        return self.due()

    def due(self) -> str:
        """Return the lines that waited long enough, and the progress bar if it moved."""
        now = self._clock()
        out = []
        while self._waiting and (
            len(self._waiting[0].ranks) == self._ranks or now - self._waiting[0].at >= GATHER_S
        ):
            out.append(self._emit())
        if not self._is_drawn and self._bar is not None and now - self._drawn_at >= REDRAW_S:
            rank, text = self._bar
            out.append(self._overwrite(self._label([rank]) + text))
            self._is_drawn, self._drawn_at = True, now
        return "".join(out)

    def flush(self) -> str:
        """Return the rest, as whole lines."""
        for (rank, _), rest in sorted(self._held.items()):
            if text := rest.strip("\r").rpartition("\r")[2]:
                self._line(rank, text)
        self._held.clear()
        out = []
        while self._waiting:
            out.append(self._emit())
        if self._drawn_width:
            out.append("\n")
            self._drawn_width = 0
        return "".join(out)

    def summary(self) -> str:
        """Return in a line what was folded and which ranks were silent; empty when every rank was shown
        whole.
        """
        parts = []
        if self.folded:
            counts = sorted(set(self.folded.values()))
            lines = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
            each = " each" if len(self.folded) > 1 else ""
            parts.append(
                f"{_ranks(sorted(self.folded))}: {lines} more line{'' if counts == [1] else 's'}{each}"
            )
        if self.spoke and (quiet := [rank for rank in range(self._ranks) if rank not in self.spoke]):
            parts.append(f"{_ranks(quiet)}: no output")
        return " · ".join(parts)

    def _line(self, rank: int, line: str) -> None:
        text = line.rpartition("\r")[2] if "\r" in line else line
        if self._bar is not None and self._bar[0] == rank:
            self._bar, self._is_drawn = None, True
        said = self._said.setdefault(rank, Counter())
        if len(self._shown) >= MAX_LINES and text not in self._shown:
            self._waiting.append(_Line(text, rank, self._clock()))
            return
        said[text] += 1
        if said[text] > self._shown[text]:
            self._shown[text] += 1
            new = _Line(text, rank, self._clock())
            self._waiting.append(new)
            self._open[text, self._shown[text]] = new
        elif (same := self._open.get((text, said[text]))) is not None:
            same.ranks.append(rank)
        else:
            self.folded[rank] += 1

    def _emit(self) -> str:
        line = self._waiting.popleft()
        for number in range(self._shown[line.text], 0, -1):
            if self._open.get((line.text, number)) is line:
                del self._open[line.text, number]
                break
        text = self._label(sorted(line.ranks)) + line.text
        if not self._drawn_width:
            return text + "\n"
        over = self._overwrite(text) + "\n"
        self._drawn_width = 0
        self._is_drawn = self._bar is None
        return over

    def _overwrite(self, text: str) -> str:
        """Return the text that replaces the present progress bar by `text`."""
        width = len(_ESCAPES.sub("", text))
        out = ("\r" if self._drawn_width else "") + text + " " * max(self._drawn_width - width, 0)
        self._drawn_width = max(width, 1)
        return out

    def _label(self, ranks: list[int]) -> str:
        text = f"{ranges(ranks):>{self._width}}"
        if self._colour and len(ranks) == 1:
            text = f"\x1b[{COLOURS[ranks[0] % len(COLOURS)]}m{text}\x1b[0m"
        return f"{text} │ "


def _ranks(ranks: list[int]) -> str:
    return f"{'Ranks' if len(ranks) > 1 else 'Rank'} {ranges(ranks)}"
