"""Where a source file can be made wrong, and how: one small change each. Runs nothing.

A mutant is a piece of source replaced by another, so that the rest of the file stays as it is, line by line.
Left out is what no test should hold on to: annotations, decorators, docstrings and other text, protocols,
logging.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.BitOr: "&",
    ast.BitAnd: "|",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
OTHER_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
LOGS = frozenset(("log", "logger", "logging", "warnings"))


class Mutant(msgspec.Struct, frozen=True, order=True):
    """One change of one file."""

    path: str
    line: int
    start: int
    """Where the replaced piece begins, in bytes of the file."""
    end: int
    text: str
    before: str
    """The line, or what begins on it, as it is."""
    after: str
    """The same with the change."""


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Return every mutant of a file, in the order of the file."""
    tree = ast.parse(source)
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = set()
    for node, text in _changes(tree):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        if data[start:end].decode() == text:
            continue
        line_start, line_end = starts[node.lineno - 1], starts[node.end_lineno or node.lineno]
        before = data[line_start:line_end].decode()
        after = data[line_start:start].decode() + text + data[end:line_end].decode()
        found.add(
            Mutant(path, node.lineno, start, end, text, " ".join(before.split()), " ".join(after.split()))
        )
    return sorted(found)


def apply(mutant: Mutant, source: str) -> str:
    """Return the source with this change."""
    data = source.encode()
    changed = (data[: mutant.start] + mutant.text.encode() + data[mutant.end :]).decode()
    ast.parse(changed)
    return changed


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield what can be replaced below a node, each with its replacement."""
    for child in _worth_it(node):
        if isinstance(child, ast.expr):
            yield from ((child, text) for text in _expression(child))
        elif isinstance(child, ast.stmt):
            yield from _statement(child)
        yield from _changes(child)


def _worth_it(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in (
            "annotation",
            "returns",
            "decorator_list",
            "type_params",
            "bases",
            "keywords",
        ) and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_skipped(child):
                yield child


def _is_skipped(node: ast.AST) -> bool:
    match node:
        case ast.ClassDef(bases=bases):
            return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in bases)
        case (
            ast.Expr(value=ast.Constant()) | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert()
        ):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in LOGS
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case (
            ast.Call(func=ast.Name(id=("Annotated" | "Meta" | "TypeVar" | "cast")))
            | ast.Subscript(value=ast.Name(id="Annotated"))
        ):
            return True
    return False


def _expression(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[op], left=left, comparators=[right]):
            yield f"{_text(left)} {COMPARISONS[type(op)]} {_text(right)}"
        case ast.BoolOp(op=op, values=values):
            yield f" {'or' if isinstance(op, ast.And) else 'and'} ".join(map(_text, values))
        case ast.BinOp(left=left, op=op, right=right) if (
            type(op) in ARITHMETIC and not _is_text(left) and not _is_text(right)
        ):
            yield f"{_text(left)} {ARITHMETIC[type(op)]} {_text(right)}"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _text(operand)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as operand):
            yield _text(operand)
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() as value):
            yield str(value + 1)
        case ast.Constant(value=float() as value):
            yield str(value * 2 + 1)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield f"{_text(body)} if not {_text(test)} else {_text(orelse)}"
        case ast.Call(func=ast.Name(id=name)) if name in OTHER_NAMES:
            yield OTHER_NAMES[name] + ast.unparse(node)[len(name) :]


def _statement(node: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.If(test=test):
            yield test, f"not {_text(test)}"
        case ast.Return(value=ast.expr() as value) if not (
            isinstance(value, ast.Constant) and value.value is None
        ):
            yield node, "return None"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete():
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass"
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in ARITHMETIC and not _is_text(
            value
        ):
            yield node, f"{ast.unparse(target)} {ARITHMETIC[type(op)]}= {ast.unparse(value)}"
        case ast.Continue():
            yield node, "break"
        case ast.Break():
            yield node, "continue"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _text(node: ast.expr) -> str:
    """Return an expression that can stand beside any operator."""
    plain = ast.unparse(node)
    is_atom = isinstance(
        node, ast.Name | ast.Attribute | ast.Constant | ast.Call | ast.Subscript | ast.Tuple | ast.List
    )
    return plain if is_atom else f"({plain})"
