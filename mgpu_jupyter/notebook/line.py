"""Splits a magic's line into words as a POSIX shell does, with `$name` from the notebook. Runs nothing.

Rules, in place of IPython's own substitution, which would rewrite `awk '{print}'` and `for i in …; do echo $i`:
single quotes and `\\$` protect; elsewhere `$name` and `${name}` are the notebook's variable if it is text, a number or a path, else the
kernel's environment variable (as in a shell), else they stay as they are. Variables that a job finds set on its node (`MGPU_…`,
`CUDA_VISIBLE_DEVICES`, `RANK` …) always stay, for the shell there. `{expression}` is Python before `--` and plain text after it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from numbers import Number

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.job import MAX_COMMAND_CHARS

Lookup = Callable[[str], str | None]
"""The value of a name or an expression, or None to leave the text as it is."""

JOB_PREFIXES = ("MGPU_", "CUDA_", "SLURM_", "PET_", "OMPI_")
JOB_VARIABLES = frozenset(("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
MAX_LINE_CHARS = 2 * MAX_COMMAND_CHARS  # quotes and flags beside the command
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_EXPRESSION = re.compile(r"\{([^{}]+)\}")
_HISTORY = re.compile(r"_+[a-z]*\d*")  # IPython's `_`, `__`, `_12`, `_i3`


def variables(namespace: Mapping[str, object], environ: Mapping[str, str]) -> Lookup:
    """Return how `$name` is looked up."""

    def lookup(name: str) -> str | None:
        value = None if _HISTORY.fullmatch(name) else namespace.get(name)
        if isinstance(value, str | Number):
            return str(value)
        if isinstance(value, os.PathLike):
            return str(os.fspath(value))
        if name in JOB_VARIABLES or name.startswith(JOB_PREFIXES):
            return None
        return environ.get(name)

    return lookup


def split_line(line: str, lookup: Lookup, evaluate: Lookup = lambda _: None) -> list[str]:
    """Return the words of `line`; a value is never split into several words."""
    if len(line) > MAX_LINE_CHARS:
        raise InvalidRequest("command-too-long", f"The line is over {MAX_LINE_CHARS} characters: put it into a script file.")
    values = _Values(lookup, evaluate)
    words: list[str] = []
    word: list[str] | None = None
    position = 0
    while position < len(line):
        char = line[position]
        if char.isspace():
            if word is not None:
                words.append("".join(word))
                values.in_command |= words[-1] == "--"
            word = None
            position += 1
            continue
        word = [] if word is None else word
        if char == "'":
            end = _closing(line, position)
            word.append(line[position + 1 : end])
            position = end + 1
        elif char == '"':
            position = _double_quoted(line, position + 1, word, values)
        elif char == "\\":
            if position + 1 == len(line):
                raise InvalidRequest("bad-quotes", "The line ends with a backslash: take it out.")
            word.append(line[position + 1])
            position += 2
        else:
            position = _plain(line, position, word, values)
    if word is not None:
        words.append("".join(word))
    return words


def split_words(line: str) -> list[str]:
    """Return the words of a line in which IPython has put the values already."""
    return split_line(line, lambda _: None)


def _double_quoted(line: str, position: int, word: list[str], values: _Values) -> int:
    start = position
    while position < len(line):
        char = line[position]
        if char == '"':
            return position + 1
        if char == "\\" and line[position + 1 : position + 2] in ('"', "\\", "$"):
            word.append(line[position + 1])
            position += 2
        else:
            position = _plain(line, position, word, values)
    return _closing(line, start - 1)


def _plain(line: str, position: int, word: list[str], values: _Values) -> int:
    found, value = values.at(line, position)
    if found is None:
        word.append(line[position])
        return position + 1
    word.append(found[0] if value is None else value)
    return found.end()


class _Values:
    """What stands at a place of the line, and its value if it has one."""

    def __init__(self, lookup: Lookup, evaluate: Lookup) -> None:
        self.in_command = False
        self._lookup = lookup
        self._evaluate = evaluate

    def at(self, line: str, position: int) -> tuple[re.Match[str] | None, str | None]:
        if found := _VARIABLE.match(line, position):
            return found, self._lookup(found[1] or found[2])
        found = None if self.in_command else _EXPRESSION.match(line, position)
        value = None if found is None else self._evaluate(found[1])
        return (None, None) if value is None else (found, value)


def _closing(line: str, start: int) -> int:
    end = line.find("'", start + 1) if line[start] == "'" else -1
    if end < 0:
        raise InvalidRequest(
            "bad-quotes", f"The quotation mark at {line[start : start + 20]} is never closed: close it, or write \\{line[start]}"
        )
    return end
