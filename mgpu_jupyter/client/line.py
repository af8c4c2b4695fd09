"""Reads a line that no shell has read (of a magic or a form): words as a POSIX shell splits them, with
`$name` from the notebook. Runs nothing.

Rules, in place of IPython's own substitution, which would rewrite `awk '{print}'` and `for i in …; do echo
$i`: single quotes and `\\$` protect; elsewhere `$name` and `${name}` are the notebook's variable if it is
text, a number or a path, else the kernel's environment variable (as in a shell), else they stay as they are.
Variables that a job finds set on its node (`MGPU_…`, `CUDA_VISIBLE_DEVICES`, `RANK` …) always stay, for the
shell there. `{expression}` is Python before `--` and plain text after it.

A command is its words, unless something outside quotes needs a shell (`a && b`, `x > y`, `*.py`, `$RANK`,
`A=1 b`): then the text from there on runs under `bash -lc` on the node, with values of the notebook quoted.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from numbers import Number

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.job import MAX_COMMAND_CHARS

Lookup = Callable[[str], str | None]
"""The value of a name or an expression, or None to leave the text as it is."""

JOB_PREFIXES = ("MGPU_", "CUDA_", "SLURM_", "PET_", "OMPI_")
JOB_VARIABLES = frozenset(
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
)
MAX_LINE_CHARS = 2 * MAX_COMMAND_CHARS  # quotes and flags beside the command
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_EXPRESSION = re.compile(r"\{([^{}]+)\}")
OPERATORS = frozenset(";&|<>`")
SHELL_SIGNS = OPERATORS | frozenset("*?[")
"""Characters that a shell acts upon outside quotes."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_RUN = re.compile(r"[^\s'\"\\$;&|<>`*?\[{]+")
_QUOTED_RUN = re.compile(r'[^"\\${]+')
"""Characters without a special meaning."""
_IN_QUOTES = re.compile(r'["$`\\]')
_HISTORY = re.compile(r"_+[a-z]*\d*")  # IPython's `_`, `__`, `_12`, `_i3`


def variables(namespace: Mapping[str, object], environ: Mapping[str, str]) -> Lookup:
    """Return the function that looks up `$name`."""

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


class Typed(msgspec.Struct, frozen=True):
    """A parsed line."""

    words: list[str]
    text: str
    """The line as a shell on a node would read it."""
    begins: list[int]
    """Where each word begins in that text."""
    needs_shell: list[bool]
    """For each word: whether it needs a shell."""

    def command(self, at: int) -> list[str]:
        """Return the command that begins at a word: its words, or a shell with its text."""
        if at < len(self.words) and (
            any(self.needs_shell[at:]) or _ASSIGNMENT.match(self.text, self.begins[at])
        ):
            return in_shell(self.text[self.begins[at] :].strip())
        return self.words[at:]


def in_shell(text: str) -> list[str]:
    """Return the command that runs text in a shell."""
    return ["bash", "-lc", text]


def read_line(line: str, lookup: Lookup = lambda _: None, evaluate: Lookup = lambda _: None) -> Typed:
    """Return the parsed line; a value is never split into several words."""
    if len(line) > MAX_LINE_CHARS:
        raise InvalidRequest(
            "command-too-long", f"The line is over {MAX_LINE_CHARS} characters: put it into a script file."
        )
    return _Reader(line, _Values(lookup, evaluate)).read()


def split_line(line: str, lookup: Lookup, evaluate: Lookup = lambda _: None) -> list[str]:
    """Return the words of `line`."""
    return read_line(line, lookup, evaluate).words


def split_words(line: str) -> list[str]:
    """Return the words of a line in which IPython has already substituted the values."""
    return read_line(line).words


class _Reader:
    """Goes through a line once, and builds words and shell text side by side."""

    def __init__(self, line: str, values: _Values) -> None:
        self._line = line
        self._values = values
        self._position = 0
        self._words: list[str] = []
        self._word: list[str] | None = None
        self._text: list[str] = []
        self._length = 0
        self._begins: list[int] = []
        self._needs: list[bool] = []

    def read(self) -> Typed:
        """Return the whole line."""
        while self._position < len(self._line):
            char = self._line[self._position]
            if char.isspace():
                self._end_word()
                if char == "\n" and self._needs and self._line[self._position :].strip():
                    self._needs[-1] = True  # a command on the next line
                self._take(char)
                continue
            if self._word is None:
                self._word = []
                self._begins.append(self._length)
                self._needs.append(char == "~")
            if char == "'":
                end = _closing(self._line, self._position)
                self._add(self._line[self._position + 1 : end], end + 1)
            elif char == '"':
                self._double_quoted()
            elif char == "\\":
                if self._position + 1 == len(self._line):
                    raise InvalidRequest("bad-quotes", "The line ends with a backslash: take it out.")
                self._add(self._line[self._position + 1], self._position + 2)
            else:
                self._needs[-1] |= char in SHELL_SIGNS or self._line.startswith("$(", self._position)
                self._plain(in_quotes=False)
        self._end_word()
        return Typed(self._words, "".join(self._text), self._begins, self._needs)

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append("".join(self._word))
            self._values.in_command |= self._words[-1] == "--"
        self._word = None

    def _take(self, text: str) -> None:
        self._write(text)
        self._position += len(text)

    def _write(self, text: str) -> None:
        self._text.append(text)
        self._length += len(text)

    def _add(self, value: str, end: int) -> None:
        """Add to the word the meaning of the text up to `end`."""
        if self._word is not None:
            self._word.append(value)
        self._take(self._line[self._position : end])

    def _double_quoted(self) -> None:
        line, start = self._line, self._position
        self._take('"')
        while self._position < len(line):
            char = line[self._position]
            if char == '"':
                self._take('"')
                return
            if char == "\\" and line[self._position + 1 : self._position + 2] in ('"', "\\", "$"):
                self._add(line[self._position + 1], self._position + 2)
            else:
                self._plain(in_quotes=True)
        _closing(line, start)

    def _plain(self, *, in_quotes: bool) -> None:
        if run := (_QUOTED_RUN if in_quotes else _RUN).match(self._line, self._position):
            self._add(run[0], run.end())
            return
        found, value = self._values.at(self._line, self._position)
        if found is None:
            self._add(self._line[self._position], self._position + 1)
        elif value is None:
            self._needs[-1] |= not in_quotes and found[0].startswith("$")
            self._add(found[0], found.end())
        else:
            if self._word is not None:
                self._word.append(value)
            self._write(_IN_QUOTES.sub(r"\\\g<0>", value) if in_quotes else shlex.quote(value))
            self._position = found.end()


class _Values:
    """The name or expression at a place of the line, and its value if it has one."""

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
            "bad-quotes",
            f"The quotation mark at {line[start : start + 20]} is never closed: close it, or write "
            f"\\{line[start]}",
        )
    return end
