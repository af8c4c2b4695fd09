"""What a cell raised and nobody caught, told so that a notebook can draw it as an error of its own cells.

To stderr goes the text that Python prints, with `Cell In[8]` in place of the cell's file, and around it a
sequence of `display.py` with the frames, the lines around each, and the exceptions before it. Frames of the
programs beside this file are left out. Draws nothing. Runs with the interpreter of the job: standard library
only.
"""

from __future__ import annotations

import inspect
import linecache
import os
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType
    from typing import Any

KIND = "application/vnd.mgpu.error+json"
HERE = os.path.dirname(os.path.abspath(__file__))
AROUND = 5
"""So many lines before and after one that failed; the cell and functions that are not long are told whole."""
MAX_FUNCTION_LINES = 300
MAX_SOURCE_CHARS = 100_000
MAX_LINE_CHARS = 1_000
MAX_TEXT_CHARS = 100_000
MAX_FRAMES = 400
"""Of one exception: its first and its last ones."""
MAX_EXCEPTIONS = 20


def bundle_of(error: BaseException, trace: TracebackType | None, path: str, cell: str) -> dict[str, Any]:
    """Return an exception as text and as what a notebook draws; `cell` is the number of the cell at `path`,
    or nothing.
    """
    made: dict[str, Any] = {"text/plain": _text(error, trace, path, cell)}
    if not hasattr(error, "exceptions"):  # a group is a tree, which Python's own text shows best
        made[KIND] = _Told(path, cell).all_of(error, trace)
    return made


def _text(error: BaseException, trace: TracebackType | None, path: str, cell: str) -> str:
    named = f"Cell In[{cell}]" if cell else "Cell"
    lines = traceback.TracebackException(type(error), error, trace).format()
    return "".join(line.replace(f'File "{path}"', named) for line in lines)


class _Told:
    """The frames of a chain of exceptions, with the files that they are in."""

    def __init__(self, path: str, cell: str) -> None:
        self._path = path
        self._cell = int(cell) if cell.isdigit() else 0
        self._files: dict[str, dict[int, str]] = {path: self._whole_cell()}

    def all_of(self, error: BaseException, trace: TracebackType | None) -> dict[str, Any]:
        chain: list[dict[str, Any]] = []
        seen: set[int] = set()
        link, now = "", error
        while id(now) not in seen and len(chain) < MAX_EXCEPTIONS:
            seen.add(id(now))
            chain.append({"link": link, **self._one(now, trace)})
            if now.__cause__ is not None:
                link, now = "cause", now.__cause__
            elif now.__context__ is not None and not now.__suppress_context__:
                link, now = "context", now.__context__
            trace = now.__traceback__
        files = [
            {
                "name": "" if name == self._path else name,
                "is_cell": name == self._path,
                "lines": sorted(lines.items()),
            }
            for name, lines in self._files.items()
        ]
        return {"cell": self._cell, "chain": chain, "files": files}

    def _one(self, error: BaseException, trace: TracebackType | None) -> dict[str, Any]:
        frames = [
            self._frame(frame, line)
            for frame, line in traceback.walk_tb(trace)
            if os.path.dirname(frame.f_code.co_filename) != HERE
        ]
        if len(frames) > MAX_FRAMES:
            frames = frames[: MAX_FRAMES // 2] + frames[-MAX_FRAMES // 2 :]
        told: dict[str, Any] = {
            "name": type(error).__name__,
            "text": _words_of(error)[:MAX_TEXT_CHARS],
            "notes": [str(note)[:MAX_TEXT_CHARS] for note in _notes(error)],
            "frames": frames,
        }
        if isinstance(error, SyntaxError) and error.filename is not None and error.lineno is not None:
            told["text"] = str(error.msg)
            told["syntax"] = {
                "file": self._file(error.filename),
                "line": error.lineno,
                "column": error.offset or 0,
                "end_line": getattr(error, "end_lineno", None) or error.lineno,
                "end_column": getattr(error, "end_offset", None) or 0,
                "text": (error.text or "")[:MAX_LINE_CHARS],
            }
        return told

    def _frame(self, frame: FrameType, line: int) -> dict[str, Any]:
        code = frame.f_code
        lines = self._files.setdefault(code.co_filename, {})
        if line not in lines:
            source = linecache.getlines(code.co_filename, frame.f_globals)
            for number in _wanted(source, code, line):
                lines[number] = source[number - 1].rstrip("\r\n")[:MAX_LINE_CHARS]
        return {
            "file": self._file(code.co_filename),
            "line": line,
            "function": getattr(code, "co_qualname", code.co_name),
            "arguments": _arguments(code),
        }

    def _file(self, name: str) -> int:
        self._files.setdefault(name, {})
        return list(self._files).index(name)

    def _whole_cell(self) -> dict[int, str]:
        lines = linecache.getlines(self._path)
        if sum(map(len, lines)) > MAX_SOURCE_CHARS:
            return {}
        return {number: line.rstrip("\r\n") for number, line in enumerate(lines, start=1)}


def _wanted(source: list[str], code: CodeType, line: int) -> range:
    """Return the numbers of the lines to tell: those of the function, else some around the line."""
    first = code.co_firstlineno
    if code.co_name != "<module>" and first <= line <= len(source):
        end = first + len(inspect.getblock(source[first - 1 : first + MAX_FUNCTION_LINES]))
        if line < end < first + MAX_FUNCTION_LINES:
            return range(first, end)
    return range(max(line - AROUND, 1), min(line + AROUND, len(source)) + 1)


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever a class of the user's does
        return "<exception str() failed>"


def _notes(error: BaseException) -> list[object]:
    notes = getattr(error, "__notes__", None)
    return notes[:MAX_EXCEPTIONS] if isinstance(notes, list) else []


def _arguments(code: CodeType) -> list[str]:
    """Return the names of a function's arguments as they are written, with their stars."""
    count = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[:count])
    for flag, star in ((4, "*"), (8, "**")):
        if code.co_flags & flag:
            names.append(star + code.co_varnames[count])
            count += 1
    return names
