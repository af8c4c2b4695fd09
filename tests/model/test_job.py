from __future__ import annotations

import msgspec
import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import FINAL_STATES, MAX_COMMAND_CHARS, JobSpec, JobState, NodeState


def _spec(**fields: object) -> JobSpec:
    return msgspec.convert({"command": ["true"], **fields}, JobSpec)


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
            (
                "The command is over 1048576 characters, or one word of it over 131071: put it into a script "
                "file."
            ),
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
        (
            {"node_gpu_ids": {"a": [0], "b": [1]}, "exclude": ["b"]},
            "node-contradiction",
            "b is in both --node-gpu-ids and --exclude: take it out of one.",
        ),
        (
            {"gpu_ids": [0], "gpu_type": "A100"},
            "gpu-contradiction",
            "--gpu-ids names the GPUs already: leave --gpu-type out.",
        ),
        (
            {"results": ["a", "../b"]},
            "bad-results",
            "--results ../b: it must be within the job's directory, like out/*.pt.",
        ),
        ({"gpu_ids": [1, 1]}, "gpu-contradiction", "--gpu-ids names a GPU twice: name each once."),
        (
            {"constraint": "a100&"},
            "bad-constraint",
            "--constraint a100&: write labels with & | ! and brackets, as in a100&(rack=r1|!old).",
        ),
        (
            {"dependency": "afterok"},
            "bad-dependency",
            "--dependency afterok: name jobs by their ids, as in afterok:ABCD1234.",
        ),
        (
            {"array": "1-3%0"},
            "bad-array",
            "--array 1-3%0: after % write how many may run at once, as in 1-100%8.",
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
        {"on_disconnect": "drop"},
        {"gpu": 1},
        {"parts": [{"gpu": 1}]},
        {"parts": [{"gpus": 1_025}]},
        {"prefer": ["bad name"]},
        {"partition": "a b"},
        {"partition": "-a"},
        {"gpu_ids": [-1]},
        {"gpu_ids": [1_024]},
        {"gpu_ids": "0,1"},
        {"node_gpu_ids": {"n1": []}},
        {"node_gpu_ids": {"bad name": [0]}},
        {"gpu_type": "a\nb"},
        {"gpu_mem_bytes": -1},
        {"constraint": "a\tb"},
        {"constraint": "x" * 1_001},
        {"arch": "x86 64"},
        {"mem_per_node_bytes": 2**60 + 1},
        {"policy": "?"},
        {"qos": "?"},
        {"account": "?"},
        {"begin_at": -1},
        {"begin_at": 1e13},
        {"hold": 1},
        {"dependency": "\n"},
        {"array": "1\n"},
        {"name": "run\n"},
        {"nodelist": ["a\n"]},
        {"env": {"A\n": "x"}},
        {"policy": "spread\n"},
        {"kernel_python_version": "3.11\n"},
        {"home": "\x1b"},
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
        "on_disconnect": "fence",
        "wait_for_nodes": True,
        "prefer": ["a"],
        "partition": "gpu",
        "gpu_type": "A100",
        "gpu_mem_bytes": 20 * 2**30,
        "constraint": "a100&!old",
        "arch": "x86_64",
        "mem_per_node_bytes": 64 * 2**30,
        "policy": "spread",
        "qos": "high",
        "account": "physics",
        "begin_at": 1_900_000_000.5,
        "hold": True,
        "dependency": "afterok:ABCD1234",
        "array": "1-3%2",
        "home": "laptop",
    }
    spec = check(_spec(**fields))
    assert msgspec.json.decode(msgspec.json.encode(spec)) == fields
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec


def test_defaults_are_left_out() -> None:
    assert msgspec.json.encode(_spec()) == b'{"command":["true"]}'


# --- states ----------------------------------------------------------------------------------------


def test_final_states() -> None:
    assert [state.value for state in JobState if state.is_final] == [
        "completed",
        "failed",
        "cancelled",
        "timeout",
    ]
    assert frozenset(state for state in JobState if state.is_final) == FINAL_STATES


def test_the_end_of_a_sentence() -> None:
    assert {state.value: state.past for state in FINAL_STATES} == {
        "completed": "completed",
        "failed": "failed",
        "cancelled": "was cancelled",
        "timeout": "ran into its time limit",
    }


def test_names_that_users_and_scripts_know() -> None:
    assert " ".join(JobState) == "queued starting running stopping completed failed cancelled timeout"
    assert " ".join(NodeState) == "online suspect offline draining maintenance unhealthy"
