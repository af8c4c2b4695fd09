"""The flags as tables: words in, request or one sentence out."""

from __future__ import annotations

import sys

import msgspec
import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.parser import Help
from mgpu_jupyter.client.request import Submission, parse, srun_parser
from mgpu_jupyter.model.job import JobSpec

HERE = Here(cwd="/here", now=1_000_000_000.5, host="laptop")
BASE = JobSpec(command=("x",), cwd="/here")
GIB = 2**30


def submission(*words: str, cell: str | None = None, notebook: bool = False) -> Submission:
    found = parse(list(words), cell=cell, environ={"A": "1", "B": "2"}, here=HERE, in_notebook=notebook)
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
        ("--on-disconnect fence --", {"on_disconnect": "fence"}),
        ("--distributed --ntasks-per-node 3 --", {"distributed": True, "ntasks_per_node": 3}),
        ("--wait-for-nodes --", {"wait_for_nodes": True}),
        ("--prefer a,b --", {"prefer": ("a", "b")}),
        ("--partition gpu --", {"partition": "gpu"}),
        ("-p gpu --", {"partition": "gpu"}),
        ("-pgpu --", {"partition": "gpu"}),
        ("--gpu-ids 0,1 --", {"gpu_ids": (0, 1), "home": "laptop"}),
        ("--gpu-ids 5,0-3 --", {"gpu_ids": (5, 0, 1, 2, 3), "home": "laptop"}),
        ("--gpu-ids 0,1 --gpus 2 --", {"gpu_ids": (0, 1), "gpus": 2, "home": "laptop"}),
        ("--gpu-ids 0,1 --nodelist a,b --", {"gpu_ids": (0, 1), "nodelist": ("a", "b")}),
        ("--gpu-ids 0 --nodes 2 --", {"gpu_ids": (0,), "nodes": 2}),
        ("--gpu-ids 0 --exclude a --", {"gpu_ids": (0,), "exclude": ("a",)}),
        ("--gpu-ids 0 --prefer a --", {"gpu_ids": (0,), "prefer": ("a",)}),
        ("--gpu-ids 0 -p gpu --", {"gpu_ids": (0,), "partition": "gpu"}),
        ("--gpu-ids 0 -C a100 --", {"gpu_ids": (0,), "constraint": "a100"}),
        ("--gpu-ids 0 --arch aarch64 --", {"gpu_ids": (0,), "arch": "aarch64"}),
        ("--node-gpu-ids n1:0,1;n2:2 --", {"node_gpu_ids": {"n1": (0, 1), "n2": (2,)}}),
        ("--node-gpu-ids=n1:4-6;n2:0-1,3; --", {"node_gpu_ids": {"n1": (4, 5, 6), "n2": (0, 1, 3)}}),
        ("--gpu-type A100 --", {"gpu_type": "A100"}),
        ("--gpu-mem 20G --", {"gpu_mem_bytes": 20 * GIB}),
        ("--gpu-mem 20GB --", {"gpu_mem_bytes": 20 * GIB}),
        ("--gpu-mem 20gib --", {"gpu_mem_bytes": 20 * GIB}),
        ("--gpu-mem 1.5T --", {"gpu_mem_bytes": 1536 * GIB}),
        ("--gpu-mem 512k --", {"gpu_mem_bytes": 512 * 1024}),
        ("--gpu-mem 20480 --", {"gpu_mem_bytes": 20 * GIB}),
        ("--mem 20480 --", {"gpu_mem_bytes": 20 * GIB}),
        ("--mem 20480 --gpu-mem 20G --", {"gpu_mem_bytes": 20 * GIB}),
        ("--mem 0 --", {}),
        ("--mem-per-node 64G --", {"mem_per_node_bytes": 64 * GIB}),
        ("--mem-per-node 2048 --", {"mem_per_node_bytes": 2 * GIB}),
        ("--constraint a100&(rack=r1|!old) --", {"constraint": "a100&(rack=r1|!old)"}),
        ("-C a100 --", {"constraint": "a100"}),
        ("--arch x86_64 --", {"arch": "x86_64"}),
        ("--policy round_robin --", {"policy": "round_robin"}),
        ("--qos high --", {"qos": "high"}),
        ("--account physics --", {"account": "physics"}),
        ("-A physics --", {"account": "physics"}),
        ("--begin now+30 --", {"begin_at": 1_000_000_030.5}),
        ("--hold --", {"hold": True}),
        ("-H --", {"hold": True}),
        ("--dependency afterok:ABCD1234:WXYZ5678,afterany:QRST9012 --", {"dependency": "afterok:ABCD1234:WXYZ5678,afterany:QRST9012"}),
        ("-d after:ABCD1234 --", {"dependency": "after:ABCD1234"}),
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


@pytest.mark.parametrize("words", [["--array", "1-100%8"], ["-a", "1-100%8", "--background"], ["-a1-100%8"]])
def test_an_array_goes_to_the_background(words: list[str]) -> None:
    assert submission(*words, "--", "x") == Submission(spec=msgspec.structs.replace(BASE, array="1-100%8"), background=True)


def test_an_array_in_json() -> None:
    assert submission("--array", "1", "--json", "x") == Submission(
        spec=msgspec.structs.replace(BASE, array="1"), background=True, json=True
    )


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
        (["--gpu_ids", "1", "--", "x"], None, "There is no flag --gpu_ids: use --gpu-ids, or see mgpu_srun --help."),
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
        parse(words, cell=cell, environ={}, here=HERE)

    assert caught.value.message == sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--prefer", "a b"], "--prefer is not valid: some characters are not allowed here; write it like --prefer node1,node2."),
        (["-p", "a b"], "--partition is not valid: some characters are not allowed here; write it like --partition gpu."),
        (["--gpu-type", "a\nb"], "--gpu-type is not valid: some characters are not allowed here; write it like --gpu-type A100."),
        (["--arch", "?"], "--arch is not valid: some characters are not allowed here; write it like --arch x86_64."),
        (["--policy", "?"], "--policy is not valid: some characters are not allowed here; write it like --policy spread."),
        (["--qos", "?"], "--qos is not valid: some characters are not allowed here; write it like --qos normal."),
        (["-A", "?"], "--account is not valid: some characters are not allowed here; write it like --account physics."),
        (["--gpu-ids", "0;1"], "--gpu-ids 0;1: write indices of GPUs, like 0,1 or 0-3."),
        (["--gpu-ids", "-1"], "--gpu-ids -1: write indices of GPUs, like 0,1 or 0-3."),
        (["--gpu-ids", "3-0"], "--gpu-ids 3-0: write indices of GPUs, like 0,1 or 0-3."),
        (["--gpu-ids", "0-999999999"], "--gpu-ids 0-999999999: write indices of GPUs, like 0,1 or 0-3."),
        (["--gpu-ids", "0,0"], "--gpu-ids names a GPU twice: name each once."),
        (["--gpu-ids", "0,1", "--gpus", "3"], "--gpu-ids names 2 GPUs on each node: leave --gpus and --gpus-per-node out."),
        (["--node-gpu-ids", "n1"], '--node-gpu-ids n1: write nodes with indices of their GPUs, like "node1:0,1;node2:2".'),
        (["--node-gpu-ids", "n1:"], '--node-gpu-ids n1:: write nodes with indices of their GPUs, like "node1:0,1;node2:2".'),
        (["--node-gpu-ids", ":1"], '--node-gpu-ids :1: write nodes with indices of their GPUs, like "node1:0,1;node2:2".'),
        (["--node-gpu-ids", ";"], '--node-gpu-ids is empty: write nodes with indices of their GPUs, like "node1:0,1;node2:2".'),
        (["--node-gpu-ids", "n:0;n:1"], "--node-gpu-ids n:0;n:1: n is there twice; write its GPUs in one place, like n:0,1."),
        (["--node-gpu-ids", "n 1:0"], '--node-gpu-ids is not valid: some characters are not allowed here; write it like --node-gpu-ids "node1:0,1;node2:2".'),  # noqa: E501
        (["--node-gpu-ids", "a:0", "--exclude", "a"], "a is in both --node-gpu-ids and --exclude: take it out of one."),
        (["--gpu-mem", "much"], "--gpu-mem much: write an amount of memory, like 20G, or a plain number of MB."),
        (["--gpu-mem", "-5"], "--gpu-mem -5: write an amount of memory, like 20G, or a plain number of MB."),
        (["--gpu-mem", "9000T"], "--gpu-mem is not valid: expected int <= 1125899906842624; write it like --gpu-mem 20G."),
        (["--mem", "64G"], "--mem 64G: it is free GPU memory in MB, like --mem 20480; with a unit write --gpu-mem 20G, or --mem-per-node 64G for the host's memory."),  # noqa: E501
        (["--mem", "1", "--gpu-mem", "2"], "--gpu-mem and --mem say the same: leave one out."),
        (["--mem-per-node", "64X"], "--mem-per-node 64X: write an amount of memory, like 20G, or a plain number of MB."),
        (["-C", "a&"], "--constraint a&: write labels with & | ! and brackets, as in a100&(rack=r1|!old)."),
        (["--begin", "soon"], "--begin soon is not a time: write it like now+1hour, 18:30, tomorrow or 2030-01-31T08:00."),
        (["--begin", "now+999999999weeks"], "--begin is not valid: expected float <= 1000000000000.0; write it like --begin now+1hour."),
        (["-d", "later:ABCD1234"], "--dependency later:ABCD1234: begin it with after, afterany, afterok, afternotok, as in afterok:ABCD1234."),  # noqa: E501
        (["-d", "afterok:7"], "--dependency afterok:7: name jobs by their ids, as in afterok:ABCD1234."),
        (["-a", "x"], "--array x: write numbers and ranges, as in 1-100, 0,3,7 or 0-20:5%4."),
        (["-a", "1-3", "--interactive"], "--array is many jobs, which no one place can show: leave --interactive out."),
    ],
)  # fmt: skip
def test_mistakes_about_place_and_time_are_one_sentence_with_an_example(words: list[str], sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        submission(*words, "--", "x")

    assert caught.value.message == sentence


def test_help_lists_every_flag() -> None:
    found = parse(["--gpus", "1", "--help"], environ={}, here=HERE, prog="%mgpu_srun", in_notebook=True)
    assert isinstance(found, Help)
    parser = srun_parser("%mgpu_srun", in_notebook=True)
    wanted = ["--help", *parser.flag_names(), "%mgpu_srun [flags] -- COMMAND", "1-100%8 (8 at once)", "put the job into this variable"]
    assert [word for word in wanted if word not in found.text] == []
