"""Which tests run which lines: a test that does not run a changed line cannot fail by it.

What runs while a module is loaded (constants, defaults, fields of classes) reaches tests by its name: those
are chosen that run a line with it, or whose file has it. Where there are none, and for files that the map
does not know as they are, all tests of the folder are chosen.
"""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path

import msgspec

from tests.mutate.selection import Chosen, Ran
from tests.mutate.sites import Mutant

COPIED = "mgpu_agent/cell/"
"""Jobs run a copy of it, which no map sees: tests with its name are for it."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Map(msgspec.Struct):
    """The tests of some folders, as they ran."""

    sources: dict[str, str] = {}
    """The digest of each file of product and tests at that time."""
    folders: list[str] = []
    tests: dict[str, Ran] = {}
    broken: list[str] = []
    """Those that fail without any mutant."""

    def add(self, folder: str, ran: list[Ran], notes: str) -> None:
        """Take in what a folder's tests ran: in the process of pytest, and by its notes in others."""
        self.folders.append(folder)
        more: dict[str, dict[str, set[int]]] = {}
        for note in notes.splitlines():
            test, path, line = note.rsplit("\t", 2)
            more.setdefault(test, {}).setdefault(path, set()).add(int(line))
        for one in ran:
            lines = {path: set(own) for path, own in one.lines.items()}
            for path, own in more.get(one.test, {}).items():
                lines.setdefault(path, set()).update(own)
            plain = {path: sorted(own) for path, own in lines.items()}
            self.tests[one.test] = Ran(one.test, one.seconds, one.has_passed, plain)

    def choose(
        self, root: Path, mutant: Mutant, files: list[str], cap_s: float = 0.0
    ) -> tuple[list[str], Chosen | None]:
        """Return which of these files to run and which tests of them; None for all tests. Of more than
        `cap_s` seconds of tests only those that run the fewest lines are left: they mean this line most.
        """
        if mutant.path.startswith(COPIED):
            return [file for file in files if Path(COPIED).name in Path(file).name], None
        source = (root / mutant.path).read_bytes()
        if self.sources.get(mutant.path) != digest(source):
            return files, None
        lines = lines_of(source.decode(), mutant)
        names = set() if lines else names_of(source.decode(), mutant)
        if not lines and not names:
            return files, None
        wanted = {mutant.path: lines} if lines else self._lines_with(root, names)
        told = {file for file in files if names and _lines_naming(names, (root / file).read_text())}
        hits = {
            test: ran.seconds
            for test, ran in self.tests.items()
            if (file := test.split("::")[0]) in files
            and (
                file in told
                or any(not own.isdisjoint(ran.lines.get(path, ())) for path, own in wanted.items())
            )
        }
        if names and not hits:
            return files, None
        if cap_s and sum(hits.values()) > cap_s:
            hits = self._the_nearest(hits, cap_s)
        seconds: dict[str, float] = {}
        for test, took in hits.items():
            file = test.split("::")[0]
            seconds[file] = seconds.get(file, 0.0) + took
        ranked = []
        for position, file in enumerate(files):
            is_new = self.sources.get(file) != digest((root / file).read_bytes())
            if is_new or file in seconds:
                ranked.append((not is_new, file not in told, seconds.get(file, 0.0), position, file))
        return [file for *_, file in sorted(ranked)], Chosen(sorted(hits), sorted(self.tests))

    def _the_nearest(self, tests: dict[str, float], cap_s: float) -> dict[str, float]:
        kept: dict[str, float] = {}
        for test in sorted(tests, key=lambda name: sum(map(len, self.tests[name].lines.values()))):
            if not kept or sum(kept.values()) + tests[test] <= cap_s:
                kept[test] = tests[test]
        return kept

    def _lines_with(self, root: Path, names: set[str]) -> dict[str, set[int]]:
        """Return the lines of the product, where it is as it was, that have one of these names."""
        found = {}
        for path, seen in self.sources.items():
            if not path.startswith("tests/") and (root / path).exists():
                source = (root / path).read_bytes()
                lines = _lines_naming(names, source.decode()) if digest(source) == seen else set()
                if lines:
                    found[path] = lines
        return found

    def seconds(self, folders: list[str], chosen: Chosen | None) -> float:
        """Return how long the tests for a mutant took: the chosen ones, or all of its folders."""
        places = tuple(f"{folder}/" for folder in folders)
        tests = [test for test in self.tests if test.startswith(places)] if chosen is None else chosen.tests
        return sum(self.tests[test].seconds for test in tests)


def digest(source: bytes) -> str:
    """Return what tells one state of a file from another."""
    return hashlib.sha256(source).hexdigest()


def digests(root: Path) -> dict[str, str]:
    """Return that of each file of the product and its tests."""
    return {
        str(file.relative_to(root)): digest(file.read_bytes())
        for top in ("mgpu_agent", "mgpu_jupyter", "tests")
        for file in sorted((root / top).rglob("*.py"))
    }


def lines_of(source: str, mutant: Mutant) -> set[int] | None:
    """Return the lines of the statement that a mutant changes; None if it runs while the module is loaded."""
    end_line = _end_line(source, mutant)
    around = _around(source, mutant)
    if not around or not any(isinstance(node, FUNCTIONS) for node in around[:-1]):
        return None
    if isinstance(around[-1], FUNCTIONS) and len([one for one in around if isinstance(one, FUNCTIONS)]) == 1:
        return None
    statement = around[-1]
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    last = statement.end_lineno or statement.lineno
    if body:
        first = body[0]
        begin = first.pattern.lineno if isinstance(first, ast.match_case) else first.lineno
        last = max(statement.lineno, begin - 1)
        if mutant.line > last:  # a guard of a case
            return set(range(mutant.line, end_line + 1))
    return set(range(statement.lineno, max(last, end_line) + 1))


def names_of(source: str, mutant: Mutant) -> set[str]:
    """Return what others call that which a mutant changes while the module is loaded: the name that is
    assigned, the function of a default, the class of a field.
    """
    names: set[str] = set()
    for node in _around(source, mutant):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names.update(
                    one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
                )
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names - {"__init__"}


def _around(source: str, mutant: Mutant) -> list[ast.stmt]:
    """Return the statements around a mutant, the outermost first."""
    end_line = _end_line(source, mutant)
    found: list[ast.stmt] = []
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.stmt):
            if not node.lineno <= mutant.line <= end_line <= (node.end_lineno or 0):
                continue
            found.append(node)
        nodes += ast.iter_child_nodes(node)
    return sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)))


def _end_line(source: str, mutant: Mutant) -> int:
    return source.encode()[: mutant.end].count(b"\n") + 1


def _lines_naming(names: set[str], text: str) -> set[int]:
    """Return the lines that have one of these names as a word."""
    word = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    return {number for number, line in enumerate(text.splitlines(), 1) if word.search(line)}
