from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import FINAL_STATES, MAX_COMMAND_CHARS, JobSpec, JobState, NodeState
from mgpu_jupyter.model.units import Unit, units_of


def _spec(**fields: object) -> JobSpec:
    return msgspec.convert({"command": ["true"], **fields}, JobSpec)


# --- what a request means --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "gpus_of_each_unit"),
    [
        ({}, [1]),
        ({"gpus": 0}, [0]),
        ({"gpus": 4}, [4]),
        ({"nodes": 2}, [1, 1]),
        ({"nodes": 2, "gpus": 4}, [2, 2]),
        ({"nodes": 2, "gpus": 0}, [0, 0]),
        ({"nodes": 2, "gpus_per_node": 3}, [3, 3]),
        ({"nodes": 2, "gpus_per_node": 3, "gpus": 6}, [3, 3]),
        ({"gpus_per_node": 3}, [3]),
        ({"nodelist": ["a", "b", "c"]}, [1, 1, 1]),
        ({"nodelist": ["a", "b", "c"], "nodes": 2}, [1, 1]),
        ({"nodelist": ["a", "b", "c"], "gpus": 6}, [2, 2, 2]),
        ({"nodelist": ["a"], "nodes": 1, "gpus_per_node": 0}, [0]),
    ],
)
def test_units(fields: dict[str, object], gpus_of_each_unit: list[int]) -> None:
    expected = tuple(Unit(index=index, gpus=gpus, cpus=0) for index, gpus in enumerate(gpus_of_each_unit))
    assert units_of(check(_spec(**fields))) == expected


def test_cpus_are_for_each_node() -> None:
    assert units_of(_spec(nodes=2, cpus=8)) == (Unit(index=0, gpus=1, cpus=8), Unit(index=1, gpus=1, cpus=8))


@given(nodes=st.integers(1, 50), per_node=st.integers(0, 16))
def test_total_and_per_node_mean_the_same(nodes: int, per_node: int) -> None:
    by_total = units_of(_spec(nodes=nodes, gpus=nodes * per_node))
    by_node = units_of(_spec(nodes=nodes, gpus_per_node=per_node))
    assert by_total == by_node == tuple(Unit(index=index, gpus=per_node, cpus=0) for index in range(nodes))


# --- what contradicts itself -----------------------------------------------------------------------

TOO_LONG = "x" * (MAX_COMMAND_CHARS // 2 + 1)


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"command": []}, "no-command", "Give a command after `--`, or a cell body: one of the two."),
        ({"script": "print(1)"}, "no-command", "Give a command after `--`, or a cell body: one of the two."),
        ({"command": [" "]}, "no-command", "The command is empty: name a program after `--`."),
        ({"command": [], "script": "a\0b"}, "bad-script", "The cell has a NUL character: remove it."),
        (
            {"command": [TOO_LONG, TOO_LONG]},
            "command-too-long",
            "The command is over 1048576 characters, or one word of it over 131071: put it into a script file.",
        ),
        (
            {"nodelist": ["a", "b", "c"], "exclude": ["c", "b"]},
            "node-contradiction",
            "b, c is in both --nodelist and --exclude: take it out of one.",
        ),
        (
            {"nodelist": ["a", "b"], "nodes": 3},
            "node-contradiction",
            "--nodes 3 needs at least as many names in --nodelist; it has 2.",
        ),
        (
            {"nodes": 2, "gpus_per_node": 2, "gpus": 3},
            "gpu-contradiction",
            "--gpus 3 is not 2 × --gpus-per-node 2: leave one of them out.",
        ),
        (
            {"nodes": 2, "gpus": 3},
            "gpu-contradiction",
            "--gpus 3 cannot be shared evenly by 2 nodes: give --gpus-per-node instead.",
        ),
    ],
)
def test_contradictions(fields: dict[str, object], code: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(_spec(**fields))
    assert (caught.value.code, caught.value.message) == (code, message)


@pytest.mark.parametrize("fields", [{}, {"command": [], "script": ""}, {"command": [], "script": "print(1)"}])
def test_a_sound_request_comes_back_as_it_is(fields: dict[str, object]) -> None:
    spec = _spec(**fields)
    assert check(spec) is spec


# --- what the types alone refuse -------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"command": "true"},
        {"command": ["a\0b"]},
        {"command": ["x"] * 10_001},
        {"command": [1]},
        {"name": "two\nlines"},
        {"name": "\x1b[31mred"},
        {"name": "x" * 201},
        {"gpus": -1},
        {"gpus": 1.5},
        {"gpus": True},
        {"gpus": "2"},
        {"nodes": 0},
        {"nodes": 10_001},
        {"gpus_per_node": 1_025},
        {"nodelist": ["bad name"]},
        {"nodelist": [""]},
        {"exclude": ["../x"]},
        {"cpus": -1},
        {"time_limit_s": 0},
        {"time_limit_s": 1e12},
        {"priority": 1_000_001},
        {"env": {"1A": "x"}},
        {"env": {"A B": "x"}},
        {"env": {"A": "x\0"}},
        {"env": {"A": 1}},
        {"cwd": "relative"},
        {"cwd": "/a\0b"},
        {"python": ""},
        {"kernel_python_version": "3"},
        {"kernel_python_version": "3.11.2"},
        {"requeue": 1},
        {"gpu": 1},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_types_refuse(fields: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        _spec(**fields)


def test_everything_at_once_survives_json() -> None:
    fields: dict[str, object] = {
        "command": ["python", "train.py", "ü"],
        "name": "naïve run",
        "gpus": 4,
        "nodes": 2,
        "gpus_per_node": 2,
        "nodelist": ["a", "b"],
        "exclude": ["c"],
        "cpus": 3,
        "time_limit_s": 60.0,
        "priority": -5,
        "env": {"LR": "0.1"},
        "cwd": "/home/ada",
        "python": "python3.11",
        "kernel_python": "/usr/bin/python3",
        "kernel_python_version": "3.11",
        "requeue": False,
    }
    spec = check(_spec(**fields))
    assert msgspec.json.decode(msgspec.json.encode(spec)) == fields
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec


def test_defaults_are_left_out() -> None:
    assert msgspec.json.encode(_spec()) == b'{"command":["true"]}'


# --- states ----------------------------------------------------------------------------------------


def test_final_states() -> None:
    assert [state.value for state in JobState if state.is_final] == ["completed", "failed", "cancelled", "timeout"]
    assert frozenset(state for state in JobState if state.is_final) == FINAL_STATES


def test_names_that_users_and_scripts_know() -> None:
    assert " ".join(JobState) == "queued starting running stopping completed failed cancelled timeout"
    assert " ".join(NodeState) == "online suspect offline draining maintenance unhealthy"
