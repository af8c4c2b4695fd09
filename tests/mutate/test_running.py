"""Runs on copies: a mutant is killed, survives, or hangs and is ended; the checkout stays as it is."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.mutate.running import Copy, Result, has_namespaces
from tests.mutate.sites import Mutant, mutants_of

pytestmark = pytest.mark.slow

SOURCE = """
def larger(a, b):
    while a < 0:
        a += 1
    return a > b
"""
TESTS = """
import os
import subprocess
import sys

from product import larger

def test_larger():
    code = "import product; print(product.larger(2, 1), product.__file__)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=os.path.dirname(__file__)).stdout
    assert told.split() == ["True", os.path.join(os.path.dirname(__file__), "product.py")]
    assert larger(-2, -1)
"""  # noqa: E501


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository with an environment beside it, as the checkout has it."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    path = tmp_path / "checkout"
    (path / ".venv").mkdir(parents=True)
    (path / "product.py").write_text(SOURCE)
    (path / "test_product.py").write_text(TESTS)
    (path / ".gitignore").write_text("__pycache__/\n.venv/\n")
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    return path


def the(after: str) -> Mutant:
    (found,) = (mutant for mutant in mutants_of("product.py", SOURCE) if mutant.after == after)
    return found


@pytest.mark.skipif(not has_namespaces(), reason="needs namespaces")
def test_mutants_are_killed_survive_or_hang_and_the_checkout_stays(root: Path, tmp_path: Path) -> None:
    copy = Copy(tmp_path / "copies", root)
    seen = {path: path.read_bytes() for path in root.glob("*.py")}
    assert copy.test(["test_product.py"], 60.0) == (False, "")

    killed, survived, hung = the("return None"), the("return a >= b"), the("a -= 1")
    by_folder = Result(mutant=killed, killed_by="folder", told="FAILED test_product.py::test_larger")
    assert copy.judge(killed, ["test_product.py"], [], 60.0, 60.0) == by_folder
    assert copy.judge(survived, ["test_product.py"], [], 60.0, 60.0) == Result(mutant=survived)
    assert copy.judge(hung, ["test_product.py"], [], 3.0, 60.0) == Result(
        mutant=hung, killed_by="folder", told="not over within 3 s"
    )

    assert copy.test(["test_product.py"], 60.0) == (False, ""), "each is taken out again"
    assert {path: path.read_bytes() for path in root.glob("*.py")} == seen
    assert not list(root.rglob("*.pyc"))


@pytest.mark.skipif(not has_namespaces(), reason="needs namespaces")
def test_what_tests_leave_running_ends_with_the_run(root: Path, tmp_path: Path) -> None:
    mark = f"41{time.time_ns() % 10**9}"
    script = f"import subprocess; subprocess.Popen(['sleep', '{mark}'], start_new_session=True)"
    assert Copy(tmp_path / "copies", root).run(["-c", script], 60.0) == (0, "")
    assert (
        mark not in subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True).stdout
    )


def test_without_namespaces_the_copy_comes_first_all_the_same(root: Path, tmp_path: Path) -> None:
    copy = Copy(tmp_path / "copies", root, alone=False)
    code, output = copy.run(["-c", "import product; print(product.__file__)"], 60.0)
    assert (code, output.strip()) == (0, str(copy.path / "product.py"))
    killed = the("return None")
    assert copy.judge(killed, ["test_product.py"], [], 60.0, 60.0).killed_by == "folder"
    assert copy.run(["-c", "import time; time.sleep(3600)"], 0.5) == (None, "")


@pytest.mark.skipif(not has_namespaces(), reason="needs namespaces")
def test_what_types_forbid_counts_as_noticed_if_that_is_asked_for(root: Path, tmp_path: Path) -> None:
    source = "def larger(a: int, b: int) -> bool:\n    return a > b\n"
    (root / "product.py").write_text(source)
    (root / "pyproject.toml").write_text('[tool.mypy]\nstrict = true\nfiles = ["product.py"]\n')
    forbidden, allowed = sorted(mutants_of("product.py", source), key=lambda one: one.text != "return None")
    copy = Copy(tmp_path / "copies", root)
    assert copy.judge(allowed, [], [], 60.0, 60.0, by_types=True) == Result(mutant=allowed)
    said = 'Incompatible return value type (got "None", expected "bool")  [return-value]'
    assert copy.judge(forbidden, [], [], 60.0, 60.0, by_types=True) == Result(
        mutant=forbidden, killed_by="wider", told=f"mypy: product.py:2: error: {said}"
    )
