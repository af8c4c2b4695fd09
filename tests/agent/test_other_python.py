"""A node whose Python changed since it was asked refuses a launch that brings variables; where files do not
tell, the cell itself does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_agent.keeper.messages import StartTasks
from mgpu_agent.process.cells import RUNNER
from mgpu_agent.process.preparation import Preparation, Unprepared
from mgpu_agent.process.spool import Spool
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.model import LaunchSpec, PythonWish, TaskSpec

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
KEY = AttemptKey(JobId("ABCD1234"), 1, 7)


@pytest.fixture
def preparation(tmp_path: Path) -> Iterator[Preparation]:
    spool = Spool(tmp_path)
    yield Preparation(NodeId("n1"), spool, (), {})
    spool.close()


def interpreter(place: Path, version: str = "") -> str:
    """Make a program that says on a file when it runs, and around which this version can be read."""
    path = place / "user" / "bin" / "python"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch {place}/it-ran\n")
    path.chmod(0o755)
    if version:
        (place / "user" / "pyvenv.cfg").write_text(f"version = {version}.1\n")
    return str(path)


def prepared(preparation: Preparation, python: str, **variables: object) -> StartTasks | Unprepared:
    spec = LaunchSpec(
        key=KEY,
        node_id=NodeId("n1"),
        incarnation="i",
        user="ann",
        tasks=(TaskSpec(rank=0),),
        script="b = a",
        python=PythonWish(path=python, kernel_version=HERE),
        **variables,  # type: ignore[arg-type]
    )
    return preparation.prepare(spec)


@pytest.mark.parametrize("variables", [{"inputs": "0" * 64}, {"outputs": ("b",)}])
def test_a_launch_with_variables_of_another_python_is_refused(
    tmp_path: Path, preparation: Preparation, variables: dict[str, object]
) -> None:
    python = interpreter(tmp_path, "3.7")
    told = prepared(preparation, python, **variables)
    assert isinstance(told, Unprepared)
    assert told.code == "other-python"
    assert told.message == f"The variables come from Python {HERE}, and {python} on this node is 3.7."
    assert not (tmp_path / "it-ran").exists()


def test_without_variables_or_with_the_same_version_it_is_started(
    tmp_path: Path, preparation: Preparation
) -> None:
    assert isinstance(prepared(preparation, interpreter(tmp_path, "3.7")), StartTasks)
    assert isinstance(prepared(preparation, interpreter(tmp_path, HERE), outputs=("b",)), StartTasks)
    assert not (tmp_path / "it-ran").exists()


def test_a_python_of_unknown_version_is_started_and_told_what_the_variables_need(
    tmp_path: Path, preparation: Preparation
) -> None:
    told = prepared(preparation, interpreter(tmp_path), outputs=("b",))
    assert isinstance(told, StartTasks)
    words = [os.fsdecode(word) for word in told.argv]
    assert words[words.index("--version") + 1] == HERE
    assert not (tmp_path / "it-ran").exists()


def test_a_cell_in_another_python_than_its_variables_need_ends_with_the_same_sentence(tmp_path: Path) -> None:
    cell = tmp_path / "cell.py"
    cell.write_text("print('it ran')\n")
    words = [sys.executable, RUNNER, "--values", str(tmp_path), "--version", "2.77", "--out", "b", str(cell)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == f"mgpu: The variables come from Python 2.77, and {sys.executable} on this node is {HERE}.\n"
    )
