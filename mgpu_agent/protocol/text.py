"""Text that somebody else wrote, made harmless for where it goes: a terminal, HTML, a log, JSON on a screen.
One function for each.

Foreign is whatever a node, a user, a master or a file says, also after a check: the program that checked it
may be older or hostile. Decides nothing about what is shown. The output of a job does not come here: whoever
follows a job sees it exactly as written.
"""

from __future__ import annotations

import html
import re
import sys
import unicodedata
from typing import TextIO

import msgspec

VALUE_CHARS = 4_096  # the longest path of Linux; no value is useful beyond that
HTML_CHARS = 1_000_000
MARKS = 4
"""The most combining marks on one letter: more than any script needs, too few to paint over the lines around
it.
"""
UNSEEN = "\ufffd"
_CUT = "…"
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters by their category, but invisible
_MARKS = ("Mn", "Me")
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")


def printable(text: str, limit: int = VALUE_CHARS) -> str:
    """Return a value as part of one line: spaces for line breaks, a sign for what is invisible or a control
    character, not too long.
    """
    return _harmless(text, limit, "")


def tell(*lines: str, file: TextIO | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print lines for people, each on one line whatever is in it; mgpu prints to a terminal in no other
    way.
    """
    target = sys.stdout if file is None else file
    shown = "\n".join(_harmless(line, len(line), "\t") for line in lines)
    try:
        print(shown, file=target, end=end, flush=flush)
    except UnicodeEncodeError:  # a terminal with a small character set
        encoding = target.encoding
        print(shown.encode(encoding, "replace").decode(encoding), file=target, end=end, flush=flush)


def as_html(text: object, *, lines: bool = False) -> str:
    """Return any text so that HTML only shows it, in an element or in a quoted attribute; `lines` keeps line
    breaks.
    """
    shown = _harmless(str(text), HTML_CHARS, "\n\t") if lines else printable(str(text))
    return html.escape(shown, quote=True)


def json_text(value: object) -> str:
    """Return one JSON document that a terminal can show: control characters are escaped, and programs read
    the same.
    """
    try:
        encoded = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # lone surrogates, as in names of files that are not UTF-8
        import json

        encoded = json.dumps(msgspec.to_builtins(value), separators=(",", ":"))
    return _NOT_ASCII.sub(_escape, encoded)


def width(text: str) -> int:
    """Return how many columns of a terminal a line takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def pad(text: str, columns: int) -> str:
    """Return a line that takes at least this many columns."""
    return text + " " * (columns - width(text))


def _harmless(text: str, limit: int, kept: str) -> str:
    if len(text) > limit:  # cut first, so that the cost of a huge text is bounded, too
        text = text[: limit - 1] + _CUT
    if text.isascii() and text.isprintable():
        return text
    shown, marks = [], 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in _MARKS else 0
        if marks > MARKS:
            continue
        if char in kept or (char.isprintable() and char not in _BLANK):
            shown.append(char)
        else:
            shown.append(" " if char.isspace() else UNSEEN)
    return "".join(shown)


def _escape(found: re.Match[str]) -> str:
    char = found.group()
    if char.isprintable() and char not in _BLANK and unicodedata.category(char) not in _MARKS:
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
