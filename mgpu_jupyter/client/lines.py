"""Turns pieces of several ranks' output into whole, labelled lines, and keeps the last ones. Prints
nothing.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Hashable

from mgpu_jupyter.client.displays import without_displays

MAX_HELD_CHARS = 64 * 1024  # a rank that never ends its line is shown anyway
TAIL_CHARS = 16 * 1024
_LINE_END = re.compile(r"\r\n|\n|\r(?=.)", re.DOTALL)  # a last \r may be half of \r\n
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class Decoder:
    """UTF-8 that comes in pieces, one state for each source; a split character is joined again."""

    def __init__(self) -> None:
        self._decoders: dict[Hashable, codecs.IncrementalDecoder] = {}

    def feed(self, source: Hashable, data: bytes) -> str:
        """Return the text that is complete."""
        decoder = self._decoders.get(source)
        if decoder is None:
            decoder = self._decoders[source] = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(data)

    def flush(self, source: Hashable) -> str:
        """Return the replacement for a character that was never completed."""
        decoder = self._decoders.pop(source, None)
        return decoder.decode(b"", True) if decoder else ""


class Labeller:
    """Puts the rank before each line; a line is held until it is complete, so that ranks do not mix.

    A carriage return ends a line, too, so that progress bars of several ranks still redraw.
    """

    def __init__(self, label: str, is_new: Callable[[int, str], bool] = lambda _rank, _line: True) -> None:
        self._label = label
        self._is_new = is_new
        """Tells whether a line is shown at all."""
        self._held: dict[Hashable, str] = {}

    def feed(self, rank: int, text: str, source: Hashable = None) -> str:
        """Return the lines that are complete now."""
        key = (rank, source)
        text = self._held.pop(key, "") + text
        done: list[str] = []
        position = 0
        for found in _LINE_END.finditer(text):
            done.append(self._labelled(rank, text[position : found.end()]))
            position = found.end()
        rest = text[position:]
        if len(rest) > MAX_HELD_CHARS:
            done.append(f"{line}\n" if (line := self._labelled(rank, rest)) else "")
        elif rest:
            self._held[key] = rest
        return "".join(done)

    def flush(self, rank: int, source: Hashable = None) -> str:
        """Return the line that the rank never ended."""
        rest = self._held.pop((rank, source), "")
        line = self._labelled(rank, rest) if rest else ""
        return line + ("" if rest.endswith("\r") else "\n") if line else ""

    def _labelled(self, rank: int, line: str) -> str:
        if line == "\r":
            return line
        return self._label.format(rank) + line if self._is_new(rank, line) else ""


class Tail:
    """The last lines of each rank as people see them: without colours and overwritten progress bars."""

    def __init__(self) -> None:
        self._text: dict[int, str] = {}

    def feed(self, rank: int, text: str) -> None:
        """Remember the end of `text`."""
        self._text[rank] = (self._text.get(rank, "") + text)[-TAIL_CHARS:]

    def last_lines(self, rank: int, count: int) -> tuple[str, ...]:
        """Return the last lines of a rank that are not blank."""
        plain = _ESCAPES.sub("", without_displays(self._text.get(rank, ""))).replace("\r\n", "\n")
        lines = (line.rstrip("\r").rpartition("\r")[2].rstrip() for line in plain.split("\n"))
        return tuple(line for line in lines if line)[-count:]
