"""A node whose Python changed since it was asked refuses a launch that brings variables, before anything of it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_agent.keeper.messages import StartTasks
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


def interpreter(place: Path, answer: str) -> str:
    path = place / "python-of-the-user"
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
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


@pytest.mark.parametrize(("answer", "found"), [("echo 3.7", "3.7"), ("exit 1", "none that answers")])
@pytest.mark.parametrize("variables", [{"inputs": "0" * 64}, {"outputs": ("b",)}])
def test_a_launch_with_variables_of_another_python_is_refused(
    tmp_path: Path, preparation: Preparation, answer: str, found: str, variables: dict[str, object]
) -> None:
    python = interpreter(tmp_path, answer)
    told = prepared(preparation, python, **variables)
    assert isinstance(told, Unprepared)
    assert told.code == "other-python"
    assert told.message == f"The variables come from Python {HERE}, and {python} on this node is {found}."


def test_without_variables_or_with_the_same_version_it_is_started(tmp_path: Path, preparation: Preparation) -> None:
    assert isinstance(prepared(preparation, interpreter(tmp_path, "echo 3.7")), StartTasks)
    assert isinstance(prepared(preparation, interpreter(tmp_path, f"echo {HERE}"), outputs=("b",)), StartTasks)
