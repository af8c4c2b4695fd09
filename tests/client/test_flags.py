"""The flags as tables: words in, request or one sentence out."""

from __future__ import annotations

import sys

import msgspec
import pytest
from msgspec.structs import replace

from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.parser import Help
from mgpu_jupyter.client.request import Submission, parse, srun_parser
from mgpu_jupyter.model.job import JobSpec

HERE = Here(cwd="/here", now=1_000_000_000.5, host="laptop")
BASE = JobSpec(command=("x",), cwd="/here")
GIB = 2**30


def submission(*words: str, cell: str | None = None, notebook: bool = False, here: Here = HERE) -> Submission:
    found = parse(list(words), cell=cell, environ={"A": "1", "B": "2"}, here=here, in_notebook=notebook)
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
        (
            "--dependency afterok:ABCD1234:WXYZ5678,afterany:QRST9012 --",
            {"dependency": "afterok:ABCD1234:WXYZ5678,afterany:QRST9012"},
        ),
        ("-d after:ABCD1234 --", {"dependency": "after:ABCD1234"}),
        ("--interactive --", {}),
        ("--gpus 1", {"gpus": 1}),
        ("--job-name n --time 90 --", {"name": "n", "time_limit_s": 5400.0}),
        ("--time=02:00:01 --", {"time_limit_s": 7201.0}),
        ("-n 4 --", {"ntasks_per_node": 4}),
        ("-n 4 -N 2 -c 3 --", {"ntasks_per_node": 2, "nodes": 2, "cpus": 6}),
        ("-n4 -w n[1-2] --", {"ntasks_per_node": 2, "nodelist": ("n1", "n2")}),
        ("-c 8 --", {"cpus": 8}),
        ("--ntasks-per-node 2 -c 8 --", {"ntasks_per_node": 2, "cpus": 16}),
        ("--gres=gpu:a100:2 --", {"gpus_per_node": 2, "gpu_type": "a100"}),
        ("--gres gpu:2 -N 2 --", {"gpus_per_node": 2, "nodes": 2}),
        ("--gres gpu --", {"gpus_per_node": 1}),
        (
            "-w node00[1-2],b -x c[08-10] --",
            {"nodelist": ("node001", "node002", "b"), "exclude": ("c08", "c09", "c10")},
        ),
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
    assert submission(*words, "--", "x") == Submission(
        spec=msgspec.structs.replace(BASE, array="1-100%8"), background=True
    )


def test_an_array_in_json() -> None:
    assert submission("--array", "1", "--json", "x") == Submission(
        spec=msgspec.structs.replace(BASE, array="1"), background=True, json=True
    )


def test_a_cell_is_a_script_for_this_interpreter() -> None:
    found = submission("--gpus", "2", cell="print(1)\n")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found.spec == JobSpec(
        script="print(1)\n",
        name="print(...)",
        gpus=2,
        cwd="/here",
        kernel_python=sys.executable,
        kernel_python_version=version,
    )


def test_the_name_that_is_given_goes_before_that_of_the_cell() -> None:
    here = replace(HERE, notebook="/home/me/try.ipynb", count=6)
    titled = "# train the small model\ntrain()"
    named = [
        submission(*words, cell=cell, here=here).spec.name
        for words, cell in (((), "train()"), ((), titled), (("--name", "mine"), titled), (("-J", "a"), "b()"))
    ]
    assert named == ["try.ipynb [6]", "train the small model", "mine", "a"]


def test_help_lists_every_flag() -> None:
    found = parse(["--gpus", "1", "--help"], environ={}, here=HERE, prog="%mgpu_srun", in_notebook=True)
    assert isinstance(found, Help)
    parser = srun_parser("%mgpu_srun", in_notebook=True)
    wanted = [
        "--help",
        *parser.flag_names(),
        "%mgpu_srun [flags] -- COMMAND",
        "1-100%8 (8 at once)",
        "put the job into this variable",
    ]
    assert [word for word in wanted if word not in found.text] == []
