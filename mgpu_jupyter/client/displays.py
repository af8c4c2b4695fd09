"""Displays in the output of ranks: split into text and displays, or left out.

Their format is described in `mgpu_agent/cell/display.py`, which writes them. A sequence without the key of
the attempt is never shown as a display: the job only passed it on.
"""

from __future__ import annotations

import re
from typing import Any, Generic, Literal, TypeVar

import msgspec

BEGIN, END = "\x1b_mgpu;", "\x1b\\"
MAX_HELD = 24 * 1024 * 1024
"""A longer sequence never ends: it is passed on as it is."""
_SEQUENCE = re.compile(r"\x1b_mgpu;[^\x1b]*\x1b\\")
T = TypeVar("T", str, bytes)


class Display(msgspec.Struct, frozen=True):
    """One display of a rank."""

    kind: Literal["display", "update", "clear", "error"]
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    id: str = ""


def text_of(shown: Display) -> str:
    """Return a display for those who cannot show it: its text, as whole lines."""
    text = shown.data.get("text/plain")
    if not isinstance(text, str) or not text:
        return ""
    return text if text.endswith("\n") else f"{text}\n"


_decode = msgspec.json.Decoder(Display).decode


class _Held(Generic[T]):
    """Output of one source that comes in pieces, returned in whole sequences."""

    def __init__(self, begin: T, end: T) -> None:
        self._begin: T = begin
        self._end: T = end
        self._held: list[T] = []
        self._size = 0
        self._empty: T = begin[:0]

    def feed(self, piece: T) -> T:
        """Return all up to a sequence that is incomplete."""
        if self._held:
            self._held.append(piece)
            self._size += len(piece)
            # The end may be split, so the piece before counts; most pieces are only kept.
            if self._end not in self._held[-2][-1:] + piece and self._size <= MAX_HELD:
                return self._empty
            piece = self._empty.join(self._held)
            self._held = []
        cut = self._cut(piece)
        if cut < len(piece) and len(piece) - cut <= MAX_HELD:
            self._held, self._size = [piece[cut:]], len(piece) - cut
            return piece[:cut]
        return piece

    def flush(self) -> T:
        """Return what is still held."""
        held, self._held = self._empty.join(self._held), []
        return held

    def _cut(self, piece: T) -> int:
        """Return the start of a sequence that does not end within `piece`."""
        start = piece.rfind(self._begin)
        if start >= 0 and piece.find(self._end, start) < 0:
            return start
        for size in range(min(len(self._begin) - 1, len(piece)), 0, -1):
            if piece.endswith(self._begin[:size]):
                return len(piece) - size
        return len(piece)


class Splitter:
    """Splits the text of one rank's stream from the displays in it."""

    def __init__(self) -> None:
        self._pieces: _Held[str] = _Held(BEGIN, END)
        self._inside = False
        """Whether the text of a display that was shown is being read."""

    def feed(self, text: str, key: str) -> list[str | Display]:
        """Return text and displays; with an empty key, or for sequences of another key, only text."""
        return self._split(self._pieces.feed(text), key)

    def flush(self, key: str) -> list[str | Display]:
        """Return the rest; a sequence that never ended is left out."""
        held = self._pieces.flush()
        return self._split("" if held.startswith(BEGIN) else held, key)

    def _split(self, text: str, key: str) -> list[str | Display]:
        if BEGIN not in text:
            return [text] if text and not self._inside else []
        found: list[str | Display] = []
        own = f"{BEGIN}{key};"
        position = 0
        for sequence in _SEQUENCE.finditer(text):
            if sequence.start() > position and not self._inside:
                found.append(text[position : sequence.start()])
            position = sequence.end()
            if not key or not sequence[0].startswith(own):
                continue
            body = sequence[0][len(own) : -len(END)]
            self._inside = False
            if body and (display := _read(body)) is not None:
                self._inside = True
                found.append(display)
        if position < len(text) and not self._inside:
            found.append(text[position:])
        return found


class Stripper:
    """Bytes of one source without displays; their text stays."""

    def __init__(self) -> None:
        self._pieces: _Held[bytes] = _Held(BEGIN.encode(), END.encode())

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to write."""
        return _stripped(self._pieces.feed(data))

    def flush(self) -> bytes:
        """Return the rest."""
        return _stripped(self._pieces.flush())


_BYTES = re.compile(_SEQUENCE.pattern.encode())


def _stripped(data: bytes) -> bytes:
    return _BYTES.sub(b"", data) if b"\x1b_mgpu;" in data else data


def without_displays(text: str) -> str:
    """Return text as a reader without displays sees it, also when it begins within a sequence."""
    if END in text:
        head, _, rest = text.partition(END)
        if (
            BEGIN not in head
            and '"kind"' not in head
            and "\x1b" not in head
            and head.rstrip().endswith(("}", ";"))
        ):
            text = rest  # the end of a sequence whose beginning is missing
    return _SEQUENCE.sub("", text) if BEGIN in text else text


def _read(body: str) -> Display | None:
    try:
        return _decode(body)
    except msgspec.MsgspecError:
        return None
