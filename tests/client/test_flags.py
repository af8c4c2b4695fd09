"""The flags as tables: words in, request or one sentence out."""

from __future__ import annotations

import sys

import msgspec
import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.flags import Help, Submission, parse
from mgpu_jupyter.model.job import JobSpec

BASE = JobSpec(command=("x",), cwd="/here")


def submission(*words: str, cell: str | None = None, notebook: bool = False) -> Submission:
    found = parse(list(words), cell=cell, environ={"A": "1", "B": "2"}, cwd="/here", in_notebook=notebook)
    assert isinstance(found, Submission)
    return found


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("--gpus 2 --", {"gpus": 2}),
        ("-G 2 --", {"gpus": 2}),
        ("-G2 --", {"gpus": 2}),
        ("--gpus=0 --", {"gpus": 0}),
        ("--nodes 2 --gpus-per-node 4 --", {"nodes": 2, "gpus_per_node": 4}),
        ("-N 3 --", {"nodes": 3}),
        ("--nodelist a,b --exclude c --", {"nodelist": ("a", "b"), "exclude": ("c",)}),
        ("-w a -x b,c --", {"nodelist": ("a",), "exclude": ("b", "c")}),
        ("--cpus 8 --", {"cpus": 8}),
        ("--name n --", {"name": "n"}),
        ("-J n --", {"name": "n"}),
        ("--time-limit 1.5 --", {"time_limit_s": 1.5}),
        ("-t 90 --", {"time_limit_s": 5400.0}),
        ("-t 01:30 --", {"time_limit_s": 90.0}),
        ("-t 02:00:01 --", {"time_limit_s": 7201.0}),
        ("-t 1-2 --", {"time_limit_s": 93600.0}),
        ("-t 1-2:03 --", {"time_limit_s": 93780.0}),
        ("-t 1-2:03:04 --", {"time_limit_s": 93784.0}),
        ("--priority 5 --", {"priority": 5}),
        ("--priority -5 --", {"priority": -5}),
        ("--env K=V --env L= --env M=a=b --", {"env": {"K": "V", "L": "", "M": "a=b"}}),
        ("--export A,B --", {"env": {"A": "1", "B": "2"}}),
        ("--export A --env A=9 --", {"env": {"A": "9"}}),
        ("--chdir sub/../dir --", {"cwd": "/here/dir"}),
        ("--chdir /there --", {"cwd": "/there"}),
        ("--python /usr/bin/python3 --", {"python": "/usr/bin/python3"}),
        ("--no-requeue --", {"requeue": False}),
        ("--interactive --", {}),
        ("--gpus 1", {"gpus": 1}),
    ],
)
def test_flags(words: str, changes: dict[str, object]) -> None:
    assert submission(*words.split(), "x") == Submission(spec=msgspec.structs.replace(BASE, **changes))


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--", "bash", "-c", "exit 3"], ("bash", "-c", "exit 3")),
        (["--", "echo a b"], ("bash", "-lc", "echo a b")),
        (["--", "echo"], ("echo",)),
        (["python", "t.py", "--gpus", "9", "--", "x"], ("python", "t.py", "--gpus", "9", "--", "x")),
        (["--gpus", "1", "--", "--odd"], ("--odd",)),
        (["--background", "--", "a", "--help"], ("a", "--help")),
    ],
)
def test_commands(words: list[str], command: tuple[str, ...]) -> None:
    assert submission(*words).spec.command == command


def test_background_json_and_variable() -> None:
    found = submission("--background", "--json", "--as", "job", "--", "x", notebook=True)
    assert found == Submission(spec=BASE, background=True, json=True, variable="job")


def test_a_cell_is_a_script_for_this_interpreter() -> None:
    found = submission("--gpus", "2", cell="print(1)\n")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found.spec == JobSpec(script="print(1)\n", gpus=2, cwd="/here", kernel_python=sys.executable, kernel_python_version=version)


@pytest.mark.parametrize(
    ("words", "cell", "sentence"),
    [
        ([], None, "Name the command after `--`, as in `mgpu_srun --gpus 1 -- python train.py`."),
        (["--gpu", "1", "--", "x"], None, "There is no flag --gpu: use --gpus, or see mgpu_srun --help."),
        (["--gpus_per_node=1", "--", "x"], None, "There is no flag --gpus_per_node: use --gpus-per-node, or see mgpu_srun --help."),
        (["--zebra", "--", "x"], None, "There is no flag --zebra here: see mgpu_srun --help."),
        (["-Q", "--", "x"], None, "There is no flag -Q here: see mgpu_srun --help."),
        (["--as", "job", "--", "x"], None, "There is no flag --as here: see mgpu_srun --help."),
        (["--json=1", "--", "x"], None, "--json takes no value: leave out what follows it."),
        (["--gpus"], None, "--gpus/-G needs a value (see mgpu_srun --help)."),
        (["--gpus", "two", "--", "x"], None, "--gpus two: write a whole number."),
        (["--nodes", "0", "--", "x"], None, "--nodes is not valid: expected int >= 1."),
        (["--time-limit", "1:00", "--", "x"], None, "--time-limit 1:00: this flag takes seconds; otherwise write hours, minutes and seconds, like -t 02:00:00."),  # noqa: E501
        (["--time-limit", "nan", "--", "x"], None, "--time-limit nan: write a number of seconds above 0."),
        (["-t", "soon", "--", "x"], None, "-t soon is not a time: write hours, minutes and seconds, like -t 02:00:00."),
        (["-t", "0", "--", "x"], None, "-t 0: a limit of nothing lets nothing run; write hours, minutes and seconds, like -t 02:00:00."),
        (["-t", "1", "--time-limit", "60", "--", "x"], None, "--time-limit and -t say the same: leave one out."),
        (["--priority", "high", "--", "x"], None, "--priority high: write a whole number; higher goes first."),
        (["--env", "K", "--", "x"], None, "--env K: write it as NAME=VALUE, or use --export K to copy it from here."),
        (["--env", "1K=2", "--", "x"], None, "--env is not valid: some characters are not allowed here."),
        (["--export", "NOPE", "--", "x"], None, "--export NOPE: it is not set here; set it, or give its value by --env NOPE=…"),
        (["--env", "MGPU_TOKEN=x", "--", "x"], None, "MGPU_TOKEN never enters a job: give the job a token of its own under another name."),
        (["--name", "a\nb", "--", "x"], None, "--name is not valid: some characters are not allowed here."),
        (["--nodelist", "a", "--exclude", "a", "--", "x"], None, "a is in both --nodelist and --exclude: take it out of one."),
        (["--gpus", "3", "--nodes", "2", "--", "x"], None, "--gpus 3 cannot be shared evenly by 2 nodes: give --gpus-per-node instead."),
        (["--interactive", "--background", "--", "x"], None, "--interactive and --background exclude each other: leave one out."),
        (["--json", "--", "x"], None, "--json goes with --background; without it stdout is the job's own."),
        (["--", "ls"], "print(1)", "The cell's body is what runs: take 'ls' out of the first line."),
        ([], " \n", "The cell has no body: write what is to run below the first line."),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(words: list[str], cell: str | None, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(words, cell=cell, environ={}, cwd="/here")

    assert caught.value.message == sentence


def test_help_lists_every_flag() -> None:
    found = parse(["--gpus", "1", "--help"], environ={}, cwd="/", prog="%mgpu_srun", in_notebook=True)
    assert isinstance(found, Help)
    flags = "--gpus --nodes --gpus-per-node --nodelist --exclude --cpus --name --time-limit -t --priority --env --export --chdir --python"
    wanted = [*flags.split(), "--no-requeue", "--interactive", "--background", "--json", "--as", "%mgpu_srun [flags] -- COMMAND"]
    assert [flag for flag in wanted if flag not in found.text] == []
