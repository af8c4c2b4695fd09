"""What ended a cell on a node, drawn by the notebook's own IPython: its colours, its `%xmode`, and `Cell
In[8]` for the cell's file.

What the node told (`mgpu_agent/cell/uncaught.py`) is foreign: it is checked, made plain text, and becomes
exceptions with frames that never ran, whose lines IPython finds where Python keeps lines of files. Nothing of
it is run, no file is read, and what is put there is taken away again.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from traceback import extract_tb, walk_tb
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.text import printable

KIND = "application/vnd.mgpu.error+json"
MAX_TEXT_LINES = 2_000
Line = Annotated[int, Meta(ge=1, le=500_000)]
Column = Annotated[int, Meta(ge=0, le=1_000_000)]
Index = Annotated[int, Meta(ge=0)]


class File(msgspec.Struct, frozen=True):
    """A file that frames are in, as far as its lines are told."""

    name: str
    is_cell: bool
    lines: tuple[tuple[Line, str], ...] = ()


class Frame(msgspec.Struct, frozen=True):
    """One call: the line in its file, and the function."""

    file: Index
    line: Line
    function: str
    arguments: Annotated[tuple[str, ...], Meta(max_length=300)] = ()


class Syntax(msgspec.Struct, frozen=True):
    """Where a source is no Python."""

    file: Index
    line: Line
    column: Column = 0
    end_line: Line = 1
    end_column: Column = 0
    text: str = ""


class Raised(msgspec.Struct, frozen=True):
    """One exception, and how the one before it in the list comes from it."""

    name: str
    text: str
    link: str = ""
    notes: tuple[str, ...] = ()
    frames: Annotated[tuple[Frame, ...], Meta(max_length=1_000)] = ()
    syntax: Syntax | None = None


class _Told(msgspec.Struct, frozen=True):
    chain: Annotated[tuple[Raised, ...], Meta(min_length=1, max_length=50)]
    files: tuple[File, ...]
    cell: Annotated[int, Meta(ge=0, le=10**9)] = 0


class RemoteError(msgspec.Struct, frozen=True):
    """What ended a cell: the text that Python prints, and what is needed to draw it, if the node told it."""

    text: str
    told: _Told | None = None

    @property
    def last_line(self) -> str:
        """Return `ValueError: no`."""
        if self.told is not None:
            first = self.told.chain[0]
            return printable(f"{first.name}: {first.text}" if first.text else first.name)
        lines = [line for line in self.text.splitlines() if line.strip()]
        return printable(lines[-1]) if lines else ""


def read(data: Mapping[str, Any]) -> RemoteError:
    """Return what a rank told; what cannot be understood is only text."""
    text = data.get("text/plain")
    try:
        told = msgspec.convert(data.get(KIND), _Told)
    except msgspec.ValidationError:
        told = None
    if told is not None and any(
        place.file >= len(told.files)
        for one in told.chain
        for place in (*one.frames, *((one.syntax,) if one.syntax is not None else ()))
    ):
        told = None
    return RemoteError(text=text if isinstance(text, str) else "", told=told)


def plain_lines(text: str) -> list[str]:
    """Return foreign text as lines that a terminal shows and nothing else."""
    return [printable(line.expandtabs()) for line in text.rstrip("\n").split("\n")[:MAX_TEXT_LINES]]


class Drawing:
    """Draws errors as one shell draws its own."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __call__(self, error: RemoteError) -> list[str]:
        """Return the lines of an error; without IPython's own drawing, those that Python prints."""
        if error.told is not None and getattr(self._shell, "InteractiveTB", None) is not None:
            try:
                return self._drawn(error.told)
            except Exception:  # noqa: BLE001 - other versions of IPython may stumble over what never ran
                return plain_lines(error.text)
        return plain_lines(error.text)

    def _drawn(self, told: _Told) -> list[str]:
        with self._lines_of(told) as names:
            raised = _exception(told, names)
            draw: Callable[..., list[str]] = self._shell.InteractiveTB.structured_traceback
            trace: Any = raised.__traceback__
            if isinstance(raised, SyntaxError):
                draw, trace = self._shell.SyntaxTB.structured_traceback, extract_tb(trace)
            return list(draw(type(raised), raised, trace, tb_offset=0))

    @contextmanager
    def _lines_of(self, told: _Told) -> Iterator[list[str]]:
        """Put the lines of all files where IPython looks for them; yield the names that they have there.

        These are names of no file: IPython would count the lines of one that is here under the same path.
        """
        compiler = self._shell.compile
        named = compiler.format_code_name
        shown: dict[str, tuple[str, str]] = {}
        for number, file in enumerate(told.files):
            name, lines = f"<mgpu-{number}>", _whole(file)
            linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
            prompt = f"In[{told.cell or ' '}]"
            shown[name] = ("Cell", prompt) if file.is_cell else ("File", printable(file.name))
        compiler.format_code_name = lambda name: shown[name] if name in shown else named(name)
        try:
            yield list(shown)
        finally:
            del compiler.format_code_name
            for name in shown:
                linecache.cache.pop(name, None)


def _whole(file: File) -> list[str]:
    """Return a file's lines from its first on, empty ones for those that were not told."""
    known = {number: printable(text.expandtabs(), limit=1_000) for number, text in file.lines}
    for number in [number for number, text in known.items() if text[:1] == " " and number - 1 not in known]:
        known[number - 1] = "if 1:"  # a method without its class is Python then, and has its colours
    return [known.get(number, "") + "\n" for number in range(1, max(known, default=0) + 1)]


# --- exceptions that were raised elsewhere --------------------------------------------------------------


def _exception(told: _Told, names: list[str]) -> BaseException:
    first: BaseException | None = None
    for one in reversed(told.chain):  # the one that came last is the first
        made = _one(one, names)
        if first is not None:
            link = told.chain[told.chain.index(one) + 1].link
            made.__cause__, made.__context__ = (first, None) if link == "cause" else (None, first)
            made.__suppress_context__ = link == "cause"
        first = made
    assert first is not None
    return first


def _one(raised: Raised, names: list[str]) -> BaseException:
    text = "\n".join(plain_lines(raised.text))
    name = printable(raised.name, limit=200)
    made: BaseException
    if raised.syntax is not None:
        at = raised.syntax
        where = (names[at.file], at.line, at.column, printable(at.text), at.end_line, at.end_column)
        made = type(name, (SyntaxError,), {"__module__": "builtins"})(text, where)
    else:
        made = type(name, (Exception,), {"__module__": "builtins", "__str__": lambda _: text})()
    for note in raised.notes:
        made.add_note("\n".join(plain_lines(note)))
    trace: TracebackType | None = None
    codes: dict[tuple[str, str], FrameType] = {}
    for frame in reversed(raised.frames):
        # Calls of one function share its code, by which IPython leaves out those of a recursion.
        key = (names[frame.file], frame.function)
        if key not in codes:
            codes[key] = _frame_of(names[frame.file], frame)
        trace = TracebackType(trace, codes[key], 0, frame.line)
    return made.with_traceback(trace)


class _Unknown:
    """The value of an argument: it stayed on the node."""

    def __repr__(self) -> str:
        return "…"


class _Reached(Exception):
    """Leaves a function that was called for its frame."""


def _template() -> None:
    raise _Reached


def _frame_of(file: str, frame: Frame) -> FrameType:
    """Return a frame of a function with this name and these arguments, which does nothing."""
    words = [printable(word, limit=200) for word in frame.arguments]
    code = _template.__code__
    plain = [word for word in words if not word.startswith("*")]
    starred = [word for word in words if word.startswith("*")]
    flags = code.co_flags
    for word in starred:
        flags |= 8 if word.startswith("**") else 4
    variables = (*plain, *(word.lstrip("*") for word in starred))
    function = printable(frame.function, limit=500)
    made: CodeType = code.replace(
        co_filename=file,
        co_name=function,
        co_qualname=function,
        co_firstlineno=frame.line,
        co_argcount=len(plain),
        co_nlocals=len(variables),
        co_varnames=variables,
        co_flags=flags,
    )
    try:
        FunctionType(made, {"_Reached": _Reached})(*(_Unknown() for _ in plain))
    except _Reached as reached:
        *_, (found, _) = walk_tb(reached.__traceback__)
        return found
    raise AssertionError("a template only raises")
