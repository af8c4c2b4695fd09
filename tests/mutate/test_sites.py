"""Which mutants a file has: whole lists of small sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutate.__main__ import PACKAGES, all_mutants, known_equivalents, sample, survivors, table
from tests.mutate.running import Result, files_for, folders_of
from tests.mutate.sites import Mutant, apply, mutants_of

ROOT = Path(__file__).parents[2]


def afters(source: str) -> list[str]:
    return [mutant.after for mutant in mutants_of("x.py", source)]


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a is not None", ["x = a is None"]),
        ("x = a and (b or c)", ["x = a or (b or c)", "x = a and (b and c)"]),
        ("x = not a", ["x = a"]),
        ("x = a + 1", ["x = a - 1", "x = a + 2"]),
        ("x = (a + b) * c", ["x = (a + b) / c", "x = (a - b) * c"]),
        ("x = -1", ["x = 1", "x = -2"]),
        ("x = 1.5", ["x = 4.0"]),
        ("x = True", ["x = False"]),
        ("x = max(a, b)", ["x = min(a, b)"]),
        ("x = a if b else c", ["x = a if not b else c"]),
        ("x += a", ["x -= a"]),
        ("x.y = a", ["pass"]),
        ("x[a] = b", ["pass"]),
        ("del x[a]", ["pass"]),
        ("run(a)", ["pass"]),
        ("x = y = 'text' + 'more'", []),
        ("x: Literal[1] = a", []),
        ("log.info('%d', 1)", []),
        ("assert a < b", []),
        ("'docstring'", []),
        ("from x import y", []),
        ("x = f'{a + 1}'", []),
    ],
)
def test_a_line_has_these_mutants(line: str, after: list[str]) -> None:
    assert afters(line + "\n") == after


def test_statements_of_functions_and_loops() -> None:
    source = """
def read(a: int = 1) -> int | None:
    for one in a:
        if one:
            continue
        break
    return a

@cached(1)
def nothing() -> None:
    return None

class Port(Protocol):
    def send(self) -> int:
        return 1
"""
    assert [(mutant.line, mutant.text) for mutant in mutants_of("x.py", source)] == [
        (2, "2"),
        (4, "not one"),
        (5, "break"),
        (6, "continue"),
        (7, "return None"),
    ]


def test_a_mutant_changes_its_piece_alone_also_behind_wide_letters() -> None:
    source = "a = 'Größe'; b = (c  <\n     d)  # 1 < 2\n"
    (mutant,) = mutants_of("x.py", source)
    assert apply(mutant, source) == "a = 'Größe'; b = (c <= d)  # 1 < 2\n"
    assert (mutant.before, mutant.after) == (
        "a = 'Größe'; b = (c < d) # 1 < 2",
        "a = 'Größe'; b = (c <= d) # 1 < 2",
    )


def test_a_seed_says_which_and_a_larger_count_begins_with_the_same() -> None:
    every = all_mutants(ROOT, ["mgpu_jupyter/model", "mgpu_agent/core/gpus.py"])
    assert set(every) == {"mgpu_jupyter/model", "mgpu_agent/core"}
    few, many = sample(every, 7, 10), sample(every, 7, 40)
    assert (len(few), len(set(many)), few) == (10, 40, many[:10])
    assert sample(every, 8, 10) != few


def test_a_file_meets_the_tests_of_its_package_and_those_that_name_it_first() -> None:
    assert folders_of("mgpu_jupyter/scheduler/planning/shares.py") == ["tests/scheduler"]
    assert folders_of("mgpu_agent/keeper/hooks.py") == ["tests/agent"]
    assert folders_of("mgpu_agent/protocol/text.py") == ["tests/protocol", "tests/agent"]
    assert folders_of("mgpu_jupyter/notebook/panel/log_reader.py") == ["tests/notebook"]
    files = files_for(ROOT, "mgpu_jupyter/notebook/panel/log_reader.py")
    assert files[0] == "tests/notebook/test_log_reader.py"
    assert sorted(files) == sorted(
        f"tests/notebook/{path.name}" for path in (ROOT / "tests/notebook").glob("test_*.py")
    )


def test_every_package_has_tests_of_its_own() -> None:
    paths = [str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).glob("*/**/*.py")]
    assert len(paths) > 300
    assert {folder for path in paths for folder in folders_of(path) if not (ROOT / folder).is_dir()} == set()


def test_what_is_listed_as_equivalent_is_a_mutant_of_today_and_says_why() -> None:
    listed = known_equivalents()
    of_files = {path: (ROOT / path).read_text() for path, _, _ in listed}
    today = {
        (one.path, one.before, one.after)
        for path, source in of_files.items()
        for one in mutants_of(path, source)
    }
    assert set(listed) - today == set()
    assert [change for change, why in listed.items() if len(why) < 10] == []


def test_the_score_leaves_out_what_is_equivalent() -> None:
    def a_result(path: str, **more: str) -> Result:
        return Result(mutant=Mutant(path, 3, 1, 2, "<", f"a > b in {path}", f"a < b in {path}"), **more)

    results = [
        a_result("a/b/c.py", killed_by="folder", told="FAILED x"),
        a_result("a/b/d.py", killed_by="wider"),
        a_result("a/b/e.py", equivalent="b is never a."),
        a_result("a/f.py"),
    ]
    assert table(results).splitlines() == [
        "package  mutants  equivalent  by folder  by all  survived",
        "a        1        0           0 %        0 %     1",
        "a/b      3        1           50 %       100 %   0",
        "all      4        1           33 %       67 %    1",
    ]
    assert survivors(results).splitlines() == [
        "a/b/e.py:3",
        "  - a > b in a/b/e.py",
        "  + a < b in a/b/e.py",
        "  equivalent: b is never a.",
        "a/f.py:3",
        "  - a > b in a/f.py",
        "  + a < b in a/f.py",
    ]
