"""A plugin of pytest: notes which lines each test runs, or runs only the tests that can tell a mutant.

`-p tests.mutate.selection --mutate-map=FOLDER` writes `tests.jsonl` there, a line for each test that ran;
`--mutate-tests=FILE` names tests, one a line of JSON; others that the map knows are left out.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest


class Ran(msgspec.Struct, frozen=True):
    """A test of the map."""

    test: str
    seconds: float
    has_passed: bool
    lines: dict[str, list[int]]
    """By path of the product's file."""


class Chosen(msgspec.Struct, frozen=True):
    """The tests for a mutant: those that run its line, and those that the map does not know."""

    tests: list[str]
    known: list[str]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say where to write to, or what to run."""
    parser.addoption("--mutate-map", type=Path)
    parser.addoption("--mutate-tests", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    """Note lines if that is asked for."""
    if place := config.getoption("--mutate-map"):
        config.pluginmanager.register(Mapping(place))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the others out."""
    path = config.getoption("--mutate-tests")
    if path is None:
        return
    chosen = msgspec.json.decode(path.read_bytes(), type=Chosen)
    left_out = set(chosen.known) - set(chosen.tests)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


class Mapping:
    """Writes down each test with the lines that this process saw."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._file = (place / "tests.jsonl").open("ab")
        self._owner = os.getpid()
        self._failed = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what one test runs."""
        (self._place / "current").write_text(item.nodeid)
        tracer = sys.modules.get("mgpu_mutate_tracer")
        if tracer is not None:
            tracer.begin(item.nodeid)
        self._failed = False
        begun = time.monotonic()
        result = yield
        lines: dict[str, list[int]] = {}
        if tracer is not None:
            for path, line in sorted(tracer.end()):
                lines.setdefault(path, []).append(line)
        ran = Ran(item.nodeid, time.monotonic() - begun, not self._failed, lines)
        self._file.write(msgspec.json.encode(ran) + b"\n")
        self._file.flush()
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep whether it failed."""
        self._failed |= report.failed
