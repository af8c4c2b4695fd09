"""What ranks displayed, found in their output: split into text and displays for notebooks, or left out so that only the text stays.

How such a sequence looks is said in `mgpu_agent/cell/display.py`, which writes it. One that does not carry the key of the attempt is
never shown: it is something that the job only passed on.
"""

from __future__ import annotations

import re
from typing import Any, Generic, Literal, TypeVar

import msgspec

BEGIN, END = "\x1b_mgpu;", "\x1b\\"
MAX_HELD = 24 * 1024 * 1024
"""A sequence that is longer never ends: it is let go as it is."""
_SEQUENCE = re.compile(r"\x1b_mgpu;[^\x1b]*\x1b\\")
T = TypeVar("T", str, bytes)


class Display(msgspec.Struct, frozen=True):
    """One thing that a rank displayed."""

    kind: Literal["display", "update", "clear"]
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    id: str = ""


_decode = msgspec.json.Decoder(Display).decode


class _Held(Generic[T]):
    """The output of one source in pieces, whole sequences at a time."""

    def __init__(self, begin: T, end: T) -> None:
        self._begin: T = begin
        self._end: T = end
        self._held: list[T] = []
        self._size = 0
        self._empty: T = begin[:0]

    def feed(self, piece: T) -> T:
        """Return all up to a sequence that is not whole yet."""
        if self._held:
            self._held.append(piece)
            self._size += len(piece)
            # The end may be cut in two, so the piece before counts too; most pieces of a long sequence are only kept.
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
        """Return where a sequence begins that does not end within `piece`."""
        start = piece.rfind(self._begin)
        if start >= 0 and piece.find(self._end, start) < 0:
            return start
        for size in range(min(len(self._begin) - 1, len(piece)), 0, -1):
            if piece.endswith(self._begin[:size]):
                return len(piece) - size
        return len(piece)


class Splitter:
    """The text of one rank's stream, with the displays in it in their places."""

    def __init__(self) -> None:
        self._pieces: _Held[str] = _Held(BEGIN, END)
        self._inside = False
        """Whether what comes is the text of a display that was shown."""

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
    """Bytes of one source without displays; what they say as text stays."""

    def __init__(self) -> None:
        self._pieces: _Held[bytes] = _Held(BEGIN.encode(), END.encode())

    def feed(self, data: bytes) -> bytes:
        """Return what is to be written."""
        return _stripped(self._pieces.feed(data))

    def flush(self) -> bytes:
        """Return the rest."""
        return _stripped(self._pieces.flush())


_BYTES = re.compile(_SEQUENCE.pattern.encode())


def _stripped(data: bytes) -> bytes:
    return _BYTES.sub(b"", data) if b"\x1b_mgpu;" in data else data


def without_displays(text: str) -> str:
    """Return text as one who cannot show displays reads it; also when it begins within a sequence."""
    if END in text:
        head, _, rest = text.partition(END)
        if BEGIN not in head and '"kind"' not in head and "\x1b" not in head and head.rstrip().endswith(("}", ";")):
            text = rest  # the tail of a sequence whose beginning is not here
    return _SEQUENCE.sub("", text) if BEGIN in text else text


def _read(body: str) -> Display | None:
    try:
        return _decode(body)
    except msgspec.MsgspecError:
        return None
