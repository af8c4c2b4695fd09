"""Which files of a folder stay at home: patterns as in `.gitignore`, in a file `.mgpuignore` at its top. Pure.

A later pattern wins; `!` takes back; a slash at the end means directories alone, one elsewhere ties a pattern to the top; `*` and `?`
stop at slashes and `**` does not. What is in a directory that stays at home stays there too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

FILE_NAME = ".mgpuignore"
ALWAYS = (".git/", "__pycache__/", ".ipynb_checkpoints/", FILE_NAME)
_CLASS = re.compile(r"\[(!?)([^]]+)\]")


class Ignore:
    """The patterns of one folder, those that always hold first."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._rules = [rule for line in (*ALWAYS, *lines) if (rule := _read(line)) is not None]

    def leaves_out(self, path: str, *, is_directory: bool) -> bool:
        """Tell whether this stays at home, by itself."""
        is_out = False
        for pattern, is_taken_back, directories_alone in self._rules:
            if (is_directory or not directories_alone) and pattern.fullmatch(path):
                is_out = not is_taken_back
        return is_out


def _read(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    text = line.rstrip()
    if not text or text.startswith("#"):
        return None
    is_taken_back = text.startswith("!")
    text = text.removeprefix("!").removeprefix("\\")
    directories_alone = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    is_tied = "/" in text
    return re.compile(("" if is_tied else "(?:.*/)?") + _expression(text.lstrip("/")), re.DOTALL), is_taken_back, directories_alone


def _expression(text: str) -> str:
    parts = []
    position = 0
    while position < len(text):
        rest = text[position:]
        if rest.startswith("**/"):
            parts.append("(?:.*/)?")
            position += 3
        elif rest.startswith("**"):
            parts.append(".*")
            position += 2
        elif rest[0] in "*?":
            parts.append("[^/]*" if rest[0] == "*" else "[^/]")
            position += 1
        elif found := _CLASS.match(rest):
            inside = found[2].replace("\\", "\\\\")
            parts.append(f"[{'^' if found[1] else ''}{inside}]")
            position += found.end()
        else:
            parts.append(re.escape(rest[0]))
            position += 1
    return "".join(parts)
