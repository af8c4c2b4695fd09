"""What the job of a cell is called when nobody named it: after a title comment of the cell, else after its
notebook and number, else after what it calls. Pure: knows nothing of kernels, and `--name` goes before all of
it (`spec.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mgpu_agent.protocol.text import printable

MAX_CHARS = 60
MAX_PARSED_CHARS = 200_000
"""Longer sources are named after a line: to read them all would keep the one who waits."""
PASSING = frozenset(("print", "display", "exit", "quit", "show", "close"))
"""Functions that a cell calls beside what it is about."""
_DECORATION = re.compile(r"^[\s#%*=~|+>-]+|[\s#*=~|+<-]+$")
_DIRECTIVE = re.compile(
    r"#(?:\||MGPU\b|SBATCH\b|\s*(?:noqa|type:|fmt:|ruff:|mypy:|pylint:|pragma|-\*-|coding[:=]))"
)
"""Comments that are meant for a program."""
_CODE = (
    ast.Import,
    ast.ImportFrom,
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.Call,
    ast.Return,
    ast.Delete,
    ast.Assert,
)


def cell_name(source: str, notebook: str = "", count: int = 0) -> str:
    """Return what a cell's job is called, like `train the small model`, `try.ipynb [6]` or `train(...)`.

    `notebook` is the path of the notebook and `count` the number of the cell's run, as far as they are known.
    """
    if title := _title(source):
        return _short(title)
    if notebook and count > 0 and (name := _plain(re.split(r"[/\\]", notebook)[-1])):
        return f"{_short(name, MAX_CHARS - len(f' [{count}]'))} [{count}]"
    return _short(_plain(_called(source) or _line(source)))


def _title(source: str) -> str:
    """Return the comment that the source begins with, if it is words and not code or a note for a program."""
    lines = (line.strip() for line in source.splitlines())
    first = next((line for line in lines if line and not line.startswith("#!")), "")
    if not first.startswith("#") or _DIRECTIVE.match(first):
        return ""
    text = _plain(first)
    while (bare := _DECORATION.sub("", text)) != text:
        text = bare
    text = text.rstrip(".:")
    return text if any(char.isalnum() for char in text) and not _is_code(text) else ""


def _is_code(text: str) -> bool:
    tree = _parsed(text)
    return tree is not None and any(isinstance(node, _CODE) for node in ast.walk(tree))


def _called(source: str) -> str:
    """Return the last call of Python code that is more than a passing one, else its last call."""
    if source.startswith("#!") and "python" not in source.partition("\n")[0]:
        return ""
    tree = _parsed(source)
    if tree is None:
        return ""
    found = [(name, call) for call in _calls(tree.body) if (name := _dotted(call.func))]
    telling = [one for one in found if one[0].rpartition(".")[2] not in PASSING]
    if not found:
        return ""
    name, call = (telling or found)[-1]
    return f"{name}(...)" if call.args or call.keywords else f"{name}()"


def _calls(body: list[ast.stmt]) -> Iterator[ast.Call]:
    """Yield the calls that are statements or values of assignments, also within blocks that run."""
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call):
                yield call
            case ast.For() | ast.While() | ast.If() | ast.With() | ast.Try():
                yield from _calls(statement.body)
            case _:
                pass


def _dotted(func: ast.expr) -> str:
    """Return `trainer.fit` of an expression like that; nothing of others."""
    if isinstance(func, ast.Name):
        return func.id
    if isinstance(func, ast.Attribute) and (before := _dotted(func.value)):
        return f"{before}.{func.attr}"
    return ""


def _line(source: str) -> str:
    """Return the first line that is no comment and imports nothing, else the first that is no comment."""
    lines = [line for line in map(str.strip, source.splitlines()) if line and not line.startswith("#")]
    telling = (line for line in lines if not re.match(r"(import|from)\s", line))
    return next(telling, lines[0] if lines else "an empty cell")


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text) if len(text) <= MAX_PARSED_CHARS else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _plain(text: str) -> str:
    return " ".join(printable(text).split())


def _short(text: str, most: int = MAX_CHARS) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
