"""Which tests a mutant meets: those that run its line, also in programs they start, and new ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.mutate.lines import Map, digest, digests, lines_of, names_of
from tests.mutate.running import Copy, Result, has_namespaces
from tests.mutate.selection import Chosen, Ran
from tests.mutate.sites import Mutant, mutants_of

SOURCE = '''
LIMIT = 3


def small(number: int = 1) -> bool:
    """Tell."""
    if (
        number < LIMIT
    ):
        return True
    match number:
        case int() if number > 4:
            return False
    return (
        number == 3
    )
'''


@pytest.mark.parametrize(
    ("after", "lines"),
    [
        ("LIMIT = 4", None),
        ("def small(number: int = 2) -> bool:", None),
        ("number <= LIMIT", {7, 8, 9}),
        ("return False", {10}),
        ("case int() if number >= 4:", {12}),
        ("number != 3", {14, 15, 16}),
    ],
)
def test_a_mutant_matters_to_the_lines_of_its_statement(after: str, lines: set[int] | None) -> None:
    (mutant,) = (one for one in mutants_of("x.py", SOURCE) if one.after == after)
    assert lines_of(SOURCE, mutant) == lines


def test_what_runs_at_load_is_known_by_its_names() -> None:
    source = (
        "A = B = 1\nclass C:\n    d: int = 2\n    def e(self, f=3):\n        return 4\nwhile 5:\n    pass\n"
    )
    assert [names_of(source, mutant) for mutant in mutants_of("x.py", source)] == [
        {"A", "B"},
        {"C", "d"},
        {"C", "e"},
        {"C", "e"},
        {"C", "e"},
        set(),
    ]


PRODUCT = """
def near(number):
    return number + 1

def far(number):
    return number + 2

FIRST = 1

def first():
    return FIRST
"""
TESTS = """
import os
import subprocess
import sys

from mgpu_agent import far, first, near

def test_near():
    assert near(1) == 2

def test_far():
    code = "import mgpu_agent; print(mgpu_agent.far(1)); import os; os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code], cwd=os.path.dirname(__file__), env={})

def test_first():
    assert first() == 1

def test_neither():
    assert True
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository with the plugin in it."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    path = tmp_path / "checkout"
    (path / ".venv").mkdir(parents=True)
    (path / "mgpu_agent").mkdir()
    (path / "mgpu_agent/__init__.py").write_text(PRODUCT)
    (path / "tests/mutate").mkdir(parents=True)
    for name in ("__init__.py", "mutate/__init__.py"):
        (path / "tests" / name).touch()
    plugin = Path(__file__).with_name("selection.py")
    (path / "tests/mutate/selection.py").write_text(plugin.read_text())
    (path / "test_product.py").write_text(TESTS)
    (path / ".gitignore").write_text("__pycache__/\n.venv/\n")
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    return path


def the(after: str) -> Mutant:
    (found,) = (one for one in mutants_of("mgpu_agent/__init__.py", PRODUCT) if one.after == after)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="needs namespaces")
def test_the_tests_that_run_a_line_are_chosen_also_by_what_killed_programs_ran(
    root: Path, tmp_path: Path
) -> None:
    copy = Copy(tmp_path / "copies", root)
    ran, notes = copy.map("test_product.py", 60.0)
    lines = Map(
        sources={
            file: digest((root / file).read_bytes()) for file in ("mgpu_agent/__init__.py", "test_product.py")
        }
    )
    lines.add("", ran, notes)
    assert [(one.test, one.has_passed) for one in ran] == [
        ("test_product.py::test_near", True),
        ("test_product.py::test_far", True),
        ("test_product.py::test_first", True),
        ("test_product.py::test_neither", True),
    ]
    assert (copy.path / "mgpu_agent/__init__.py").read_text() == PRODUCT, "it is taken out again"

    known = sorted(lines.tests)
    near, far, first = the("return number - 1"), the("return number - 2"), the("FIRST = 2")
    files = ["test_product.py"]
    assert lines.choose(root, near, files) == (files, Chosen(["test_product.py::test_near"], known))
    assert lines.choose(root, far, files) == (files, Chosen(["test_product.py::test_far"], known))
    assert lines.choose(root, first, files) == (files, Chosen(["test_product.py::test_first"], known))

    assert copy.judge(near, files, [], 60.0, 60.0, chosen=lines.choose(root, near, files)[1]) == Result(
        mutant=near, killed_by="folder", told="FAILED test_product.py::test_near"
    )
    only_far = Chosen(["test_product.py::test_far"], known)
    assert copy.judge(near, files, [], 60.0, 60.0, chosen=only_far) == Result(mutant=near)
    assert copy.judge(near, files, [], 60.0, 60.0, chosen=Chosen([], known)) == Result(mutant=near)
    unknown = Chosen([], [test for test in known if test != "test_product.py::test_near"])
    assert copy.judge(near, files, [], 60.0, 60.0, chosen=unknown).killed_by == "folder"


def test_new_and_changed_test_files_are_run_and_come_first(tmp_path: Path) -> None:
    (tmp_path / "mgpu_agent").mkdir()
    (tmp_path / "mgpu_agent/__init__.py").write_text(PRODUCT)
    (tmp_path / "tests").mkdir()
    names = ["tests/test_slow.py", "tests/test_quick.py", "tests/test_other.py", "tests/test_changed.py"]
    for name in names:
        (tmp_path / name).write_text(name)
    lines = Map(sources=digests(tmp_path))
    hit = {"mgpu_agent/__init__.py": [3]}
    ran = [Ran(f"{names[0]}::a", 9.0, True, hit), Ran(f"{names[2]}::c", 1.0, True, {})]
    ran.append(Ran(f"{names[1]}::b[\t]", 1.0, True, {}))
    lines.add("tests", ran, f"{names[1]}::b[\t]\tmgpu_agent/__init__.py\t3\n")
    (tmp_path / names[3]).write_text("changed")
    (tmp_path / "tests/test_new.py").write_text("new")
    near = the("return number - 1")
    known = sorted(lines.tests)
    files, chosen = lines.choose(tmp_path, near, [*names, "tests/test_new.py"])
    assert files == [names[3], "tests/test_new.py", names[1], names[0]]
    assert chosen == Chosen([f"{names[1]}::b[\t]", f"{names[0]}::a"], known)
    assert lines.seconds(["tests"], chosen) == 10.0
    assert lines.seconds(["tests"], None) == 11.0

    (tmp_path / "mgpu_agent/__init__.py").write_text("# moved\n" + PRODUCT)
    assert lines.choose(tmp_path, near, names) == (names, None), "lines of another state say nothing"

    copied = Mutant("mgpu_agent/cell/runner.py", 1, 0, 1, "", "", "")
    named = [*names, "tests/agent/test_cell_display.py"]
    assert lines.choose(tmp_path, copied, named) == (named[-1:], None), "its lines run elsewhere"
