"""Takes secrets out of the words that `ps` shows of this process. The words that the program works with stay as they are."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path

_ARG_START, _ARG_END = 48, 49  # fields of /proc/self/stat, counted from 1


def wipe_from_ps(secrets: Iterable[str]) -> None:
    """Overwrite each of `secrets` in this process's argument area; what cannot be done is left."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = (int(fields[number - 3]) for number in (_ARG_START, _ARG_END))
        if not 0 < start < end:
            return
        area = ctypes.string_at(start, end - start)
    except (OSError, ValueError, IndexError):
        return
    for secret in filter(None, secrets):
        word = secret.encode(errors="surrogateescape")
        at = area.find(word)
        while at >= 0:
            ctypes.memset(start + at, ord("*"), len(word))
            at = area.find(word, at + len(word))
