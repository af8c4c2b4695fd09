"""Mistakes in the flags of a request as tables: words in, one sentence out."""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.request import parse

HERE = Here(cwd="/here", now=1_000_000_000.5, host="laptop")


@pytest.mark.parametrize(
    ("words", "cell", "sentence"),
    [
        ([], None, "Name the command after `--`, as in `mgpu_srun --gpus 1 -- python train.py`."),
        (["--gpu", "1", "--", "x"], None, "There is no flag --gpu: use --gpus, or see mgpu_srun --help."),
        (
            ["--gpus_per_node=1", "--", "x"],
            None,
            "There is no flag --gpus_per_node: use --gpus-per-node, or see mgpu_srun --help.",
        ),
        (
            ["--gpu_ids", "1", "--", "x"],
            None,
            "There is no flag --gpu_ids: use --gpu-ids, or see mgpu_srun --help.",
        ),
        (["--zebra", "--", "x"], None, "There is no flag --zebra here: see mgpu_srun --help."),
        (["-Q", "--", "x"], None, "There is no flag -Q here: see mgpu_srun --help."),
        (["--as", "job", "--", "x"], None, "--as works only in a notebook (%%mgpu_srun): leave it out here."),
        (["--json=1", "--", "x"], None, "--json takes no value: leave out what follows it."),
        (["--gpus"], None, "--gpus/-G needs a value (see mgpu_srun --help)."),
        (["--gpus", "two", "--", "x"], None, "--gpus two: write a whole number, like --gpus 2."),
        (["--nodes", "0", "--", "x"], None, "--nodes is not valid: it must be at least 1."),
        (
            ["--time-limit", "1:00", "--", "x"],
            None,
            (
                "--time-limit 1:00: this flag takes seconds; otherwise write hours, minutes and seconds, "
                "like "
                "-t 02:00:00."
            ),
        ),
        (["--time-limit", "nan", "--", "x"], None, "--time-limit nan: write a number of seconds above 0."),
        (
            ["-t", "soon", "--", "x"],
            None,
            "-t soon is not a time: write hours, minutes and seconds, like -t 02:00:00.",
        ),
        (
            ["-t", "0", "--", "x"],
            None,
            "-t 0: a limit of nothing lets nothing run; write hours, minutes and seconds, like -t 02:00:00.",
        ),
        (
            ["-t", "1", "--time-limit", "60", "--", "x"],
            None,
            "--time-limit and -t say the same: leave one out.",
        ),
        (
            ["--priority", "high", "--", "x"],
            None,
            "--priority high: write a whole number; higher goes first.",
        ),
        (
            ["--env", "K", "--", "x"],
            None,
            "--env K: write it as NAME=VALUE, or use --export K to copy it from here.",
        ),
        (["--env", "1K=2", "--", "x"], None, "--env is not valid: use letters, digits and underscore."),
        (
            ["--export", "NOPE", "--", "x"],
            None,
            "--export NOPE: it is not set here; set it, or give its value by --env NOPE=…",
        ),
        (
            ["--env", "MGPU_TOKEN=x", "--", "x"],
            None,
            "MGPU_TOKEN never enters a job: give the job a token of its own under another name.",
        ),
        (
            ["--name", "a\nb", "--", "x"],
            None,
            "--name is not valid: line breaks and control characters are not allowed.",
        ),
        (
            ["--nodelist", "a", "--exclude", "a", "--", "x"],
            None,
            "a is in both --nodelist and --exclude: take it out of one.",
        ),
        (
            ["--gpus", "3", "--nodes", "2", "--", "x"],
            None,
            "--gpus 3 cannot be shared evenly by 2 nodes: give --gpus-per-node instead.",
        ),
        (
            ["--interactive", "--background", "--", "x"],
            None,
            "--interactive and --background exclude each other: leave one out.",
        ),
        (["--json", "--", "x"], None, "--json goes with --background; without it stdout is the job's own."),
        (["--", "ls"], "print(1)", "The cell's body is what runs: take 'ls' out of the first line."),
        ([], " \n", "The cell has no body: write what is to run below the first line."),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], cell: str | None, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(words, cell=cell, environ={}, here=HERE)

    assert caught.value.message == sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--prefer", "a b"],
            (
                "--prefer is not valid: use letters, digits, dot, dash and underscore, at most 63; "
                "write it like --prefer "
                "node1,node2."
            ),
        ),
        (
            ["-p", "a b"],
            (
                "--partition is not valid: use letters, digits, dot, dash and underscore, at most 64; "
                "write it like --partition gpu."
            ),
        ),
        (
            ["--gpu-type", "a\nb"],
            (
                "--gpu-type is not valid: line breaks and control characters are not allowed; write it "
                "like --gpu-type A100."
            ),
        ),
        (
            ["--arch", "?"],
            (
                "--arch is not valid: use letters, digits, dot, dash and underscore, at most 64; write "
                "it like --arch x86_64."
            ),
        ),
        (
            ["--policy", "?"],
            (
                "--policy is not valid: use letters, digits, dot, dash and underscore, at most 64; "
                "write it like --policy spread."
            ),
        ),
        (
            ["--qos", "?"],
            (
                "--qos is not valid: use letters, digits, dot, dash and underscore, at most 64; write "
                "it like --qos normal."
            ),
        ),
        (
            ["-A", "?"],
            (
                "--account is not valid: use letters, digits, dot, dash and underscore, at most 64; "
                "write it like --account physics."
            ),
        ),
        (["--gpu-ids", "0;1"], "--gpu-ids 0;1: write indices of GPUs, like 0,1 or 0-3."),
        (["--gpu-ids", "-1"], "--gpu-ids -1: write indices of GPUs, like 0,1 or 0-3."),
        (["--gpu-ids", "3-0"], "--gpu-ids 3-0: write indices of GPUs, like 0,1 or 0-3."),
        (["--gpu-ids", "0-999999999"], "--gpu-ids 0-999999999: write indices of GPUs, like 0,1 or 0-3."),
        (["--gpu-ids", "0,0"], "--gpu-ids names a GPU twice: name each once."),
        (
            ["--gpu-ids", "0,1", "--gpus", "3"],
            "--gpu-ids names 2 GPUs on each node: leave --gpus and --gpus-per-node out.",
        ),
        (
            ["--node-gpu-ids", "n1"],
            '--node-gpu-ids n1: write nodes with indices of their GPUs, like "node1:0,1;node2:2".',
        ),
        (
            ["--node-gpu-ids", "n1:"],
            '--node-gpu-ids n1:: write nodes with indices of their GPUs, like "node1:0,1;node2:2".',
        ),
        (
            ["--node-gpu-ids", ":1"],
            '--node-gpu-ids :1: write nodes with indices of their GPUs, like "node1:0,1;node2:2".',
        ),
        (
            ["--node-gpu-ids", ";"],
            '--node-gpu-ids is empty: write nodes with indices of their GPUs, like "node1:0,1;node2:2".',
        ),
        (
            ["--node-gpu-ids", "n:0;n:1"],
            "--node-gpu-ids n:0;n:1: n is there twice; write its GPUs in one place, like n:0,1.",
        ),
        (
            ["--node-gpu-ids", "n 1:0"],
            (
                "--node-gpu-ids is not valid: use letters, digits, dot, dash and underscore, at "
                "most 63; write it like "
                '--node-gpu-ids "node1:0,1;node2:2".'
            ),
        ),
        (
            ["--node-gpu-ids", "a:0", "--exclude", "a"],
            "a is in both --node-gpu-ids and --exclude: take it out of one.",
        ),
        (
            ["--gpu-mem", "much"],
            "--gpu-mem much: write an amount of memory, like 20G, or a plain number of MB.",
        ),
        (["--gpu-mem", "-5"], "--gpu-mem -5: write an amount of memory, like 20G, or a plain number of MB."),
        (
            ["--gpu-mem", "9000T"],
            "--gpu-mem is not valid: it is too large; write it like --gpu-mem 20G.",
        ),
        (
            ["--mem", "64G"],
            (
                "--mem 64G: it is free GPU memory in MB, like --mem 20480; with a unit write --gpu-mem 20G, "
                "or "
                "--mem-per-node 64G for the host's memory."
            ),
        ),
        (["--mem", "1", "--gpu-mem", "2"], "--gpu-mem and --mem say the same: leave one out."),
        (
            ["--mem-per-node", "64X"],
            "--mem-per-node 64X: write an amount of memory, like 20G, or a plain number of MB.",
        ),
        (["-C", "a&"], "--constraint a&: write labels with & | ! and brackets, as in a100&(rack=r1|!old)."),
        (
            ["--begin", "soon"],
            "--begin soon is not a time: write it like now+1hour, 18:30, tomorrow or 2030-01-31T08:00.",
        ),
        (
            ["--begin", "now+999999999weeks"],
            "--begin is not valid: it is too large; write it like --begin now+1hour.",
        ),
        (
            ["-d", "later:ABCD1234"],
            (
                "--dependency later:ABCD1234: begin it with after, afterany, afterok, afternotok, as in "
                "afterok:ABCD1234."
            ),
        ),
        (["-d", "afterok:7"], "--dependency afterok:7: name jobs by their ids, as in afterok:ABCD1234."),
        (["-a", "x"], "--array x: write numbers and ranges, as in 1-100, 0,3,7 or 0-20:5%4."),
        (
            ["-a", "1-3", "--interactive"],
            "--array is many jobs, which no one place can show: leave --interactive out.",
        ),
    ],
)
def test_mistakes_about_place_and_time_are_one_sentence_with_an_example(
    words: list[str], sentence: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse([*words, "--", "x"], environ={"A": "1", "B": "2"}, here=HERE)

    assert caught.value.message == sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "-n 3 -N 2",
            "-n 3 on 2 nodes: each node has the same number of processes; write a multiple of 2.",
        ),
        ("-n 4 --ntasks-per-node 2", "--ntasks-per-node and -n say the same: leave one out."),
        ("-c 4 --cpus 2", "--cpus and -c say the same: leave one out."),
        ("--gres gpu:2 --gpus-per-node 4", "--gpus-per-node and --gres say the same: leave one out."),
        ("--gres disk:2", "--gres disk:2: only GPUs are handed out; write it like --gres gpu:a100:2."),
        ("-w n[3-1]", "n[3-1] is no list of nodes: write it like n[1-3,7]."),
        ("-w n[1-9999,1-9999]", "n[1-9999,1-9999] is no list of nodes: write it like n[1-3,7]."),
        ("-t 5 --time-limit 5", "--time-limit and -t say the same: leave one out."),
    ],
)
def test_slurms_spellings_that_contradict(words: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse([*words.split(), "--", "x"], environ={}, here=HERE)
    assert caught.value.message == sentence
