"""One module for each language words sizes; nothing else divides bytes for people or writes a unit behind a
number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON, TYPESCRIPT = "mgpu_agent/protocol/wording.py", "labextension/src/text/format.ts"
AS_TYPED = {"mgpu_jupyter/scheduler/explain/changes.py": "flags of an offer, as people type them: 20G"}
UNIT = re.compile(r"\s?[kKMGT]i?B\b")
NAMES = re.compile(r"_?(GB|MB|KB|GIB|MIB|KIB)")
FACTORS = {1e3, 1e6, 1e9, 1e12, 1 << 10, 1 << 20, 1 << 30, 1 << 40}
DIVIDES = re.compile(r"/ ?(1024|1e[369]|1_?000_?000|2 ?\*\* ?30|1024 ?\*\* ?\d)")
LABEL = re.compile(r"['`}][^'`]*\b[kKMGT]i?B\b")


def value_of(node: ast.expr) -> float | None:
    """Return the number that an expression of numbers is."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=ast.Pow() | ast.LShift() | ast.Mult() as op, right=right):
            one, other = value_of(left), value_of(right)
            if one is None or other is None:
                return None
            return {ast.Pow: one**other, ast.Mult: one * other}.get(type(op), one * 2**other)
    return None


def is_factor(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return bool(NAMES.fullmatch(name)) or value_of(node) in FACTORS


def found_in(source: str) -> Iterator[str]:
    """Return the pieces of text in which bytes are divided or that have a unit behind a number."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        text = ast.unparse(node)
        divided = any(
            isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div | ast.FloorDiv) and is_factor(one.right)
            for one in ast.walk(node)
        )
        labelled = any(
            isinstance(before, ast.FormattedValue)
            and isinstance(after, ast.Constant)
            and UNIT.match(str(after.value))
            for before, after in zip(node.values, node.values[1:], strict=False)
        )
        # A thousand is also a thousand milliseconds: without a unit only larger numbers tell.
        if labelled or (divided and not re.search(r"/ 1000(\.0)?\b", text)):
            yield text


def test_only_one_module_words_sizes_in_python() -> None:
    found = {
        name: pieces
        for path in sorted((*ROOT.glob("mgpu_agent/**/*.py"), *ROOT.glob("mgpu_jupyter/**/*.py")))
        if (name := str(path.relative_to(ROOT))) != PYTHON
        and name not in AS_TYPED
        and (pieces := list(found_in(path.read_text())))
    }
    assert found == LIMITS


def test_only_one_module_words_sizes_in_typescript() -> None:
    found = {
        name: lines
        for path in sorted(ROOT.glob("labextension/src/**/*.ts*"))
        if (name := str(path.relative_to(ROOT))) != TYPESCRIPT
        and not name.endswith(".gen.ts")
        and (
            lines := [
                line.strip()
                for line in path.read_text().splitlines()
                if not line.strip().startswith(("*", "/*", "//"))
                and (DIVIDES.search(line) or LABEL.search(line))
            ]
        )
    }
    assert found == {}


def test_it_finds_what_it_looks_for() -> None:
    for source in (
        'f"{a / 1e9:.1f}"',
        'f"{a // 1024**3} of {b}"',
        'f"{a / _MIB:.0f}"',
        'f"{a / words.GB}"',
        'f"{a} GB"',
        'f"{a} MiB left"',
        'f"{a / (1 << 20)}"',
    ):
        assert list(found_in(source)) != []
    assert list(found_in('f"{a / 1000:.0f} ms {b}" + f"{c} of H100 80GB" + str(n / 1024)')) == []


LIMITS = {
    "mgpu_jupyter/server/limits.py": ["f'you send more than {self._limits.body_mb} MiB at once'"],
}
"""What is set as a number of MiB is told as that number."""
