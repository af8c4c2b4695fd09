"""Request lines as people write them, and what each asks for: one table for all front ends."""

from __future__ import annotations

from typing import Any

import msgspec

from mgpu_jupyter.notebook.panel.form import Form
from mgpu_jupyter.notebook.panel.seen import Picked

GIB = 2**30
ENV = {"K": "V", "L": "a b"}
PICKS = (Picked("n1", 0), Picked("n1", 1), Picked("n2", 2))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    flags: str
    typed: str = "x"
    """The command as it is typed where no shell reads it."""
    quoted: bool = False
    """Whether a shell must be given it in quotes, since it is text for a shell there."""
    asks: dict[str, Any] = {}
    """What the request has beside the command."""
    command: tuple[str, ...] = ()
    """The words of the command, where they are not those that were typed."""
    sentence: str = ""
    """What is wrong with it."""
    keywords: dict[str, Any] | None = None
    """How Python says it, where that is not each flag's own text."""
    form: Form | None = None
    """How the panel says it, where that is not the field *More flags*."""
    without: tuple[str, ...] = ()
    """Front ends that have no words for it."""


def _row(flags: str, **asks: Any) -> Row:
    return Row(flags=flags, asks=asks)


def _run(typed: str, *command: str) -> Row:
    return Row(
        flags="--gpus 1",
        typed=typed,
        command=command,
        quoted=command[0] == "bash" and "-lc" in command,
        asks={"gpus": 1},
    )


def _wrong(flags: str, sentence: str, without: tuple[str, ...] = ()) -> Row:
    return Row(flags=flags, sentence=sentence, without=without)


def _size(flags: str, form: Form, **asks: Any) -> Row:
    return Row(flags=flags, asks=asks, form=form)


_CHARACTERS = "use letters, digits, dot, dash and underscore, at most 64"
_PYTHON = ("client",)  # it has no such flag, or says it otherwise
ROWS: tuple[Row, ...] = (
    # how much
    _size("--gpus 2", Form(gpus=2, command="x"), gpus=2),
    _size("-G 2", Form(gpus=2, command="x"), gpus=2),
    _size("--gpus=0", Form(gpus=0, command="x"), gpus=0),
    _size("--nodes 2 --gpus-per-node 4", Form(nodes=2, gpus=4, command="x"), nodes=2, gpus_per_node=4),
    _size("-N 3 --gpus-per-node 1", Form(nodes=3, gpus=1, command="x"), nodes=3, gpus_per_node=1),
    _size(
        "--node-gpu-ids 'n1:0,1;n2:2'",
        Form(picks=PICKS, command="x"),
        node_gpu_ids={"n1": (0, 1), "n2": (2,)},
    ),
    _row("--gpus 1 --gpu-type A100", gpus=1, gpu_type="A100"),
    _row("--gpus 1 --gpu-mem 20G", gpus=1, gpu_mem_bytes=20 * GIB),
    _row("--gpus 1 --gpu-mem 20480", gpus=1, gpu_mem_bytes=20 * GIB),
    _row("--gpus 1 --mem 20480", gpus=1, gpu_mem_bytes=20 * GIB),
    _row("--gpus 1 --cpus 8 --mem-per-node 1.5T", gpus=1, cpus=8, mem_per_node_bytes=1536 * GIB),
    _row("--gpus 1 --distributed", gpus=1, distributed=True),
    _row("--gpus 1 --ntasks-per-node 3", gpus=1, ntasks_per_node=3),
    # where
    _row("--gpus 2 --nodelist a,b --exclude c", gpus=2, nodelist=("a", "b"), exclude=("c",)),
    _row("--gpus 1 -w a -x b,c", gpus=1, nodelist=("a",), exclude=("b", "c")),
    _row("--gpus 1 --prefer a", gpus=1, prefer=("a",)),
    _row("--gpus 1 -p gpu", gpus=1, partition="gpu"),
    _row("--gpus 1 --constraint 'a100&(rack=r1|!old)'", gpus=1, constraint="a100&(rack=r1|!old)"),
    _row("--gpus 1 --arch x86_64 --policy spread", gpus=1, arch="x86_64", policy="spread"),
    _row("--gpus 1 --wait-for-nodes", gpus=1, wait_for_nodes=True),
    # when
    _row("--gpus 1 --time-limit 1.5", gpus=1, time_limit_s=1.5),
    Row(
        flags="--gpus 1 -t 02:00:01",
        asks={"gpus": 1, "time_limit_s": 7201.0},
        keywords={"gpus": 1, "time_limit": 7201},
    ),
    Row(
        flags="--gpus 1 -t 90",
        asks={"gpus": 1, "time_limit_s": 5400.0},
        keywords={"gpus": 1, "time_limit": 5400},
    ),
    _row("--gpus 1 --priority -5", gpus=1, priority=-5),
    _row("--gpus 1 --qos high -A bio", gpus=1, qos="high", account="bio"),
    _row("--gpus 1 --hold", gpus=1, hold=True),
    _row("--gpus 1 -d afterok:ABCD1234", gpus=1, dependency="afterok:ABCD1234"),
    _row("--gpus 1 --array 1-100%8", gpus=1, array="1-100%8"),
    _row("--gpus 1 --sweep lr=0.1,0.01", gpus=1, sweep={"lr": ("0.1", "0.01")}, array="0-1"),
    # how
    _row("--gpus 1 --name 'two words'", gpus=1, name="two words"),
    Row(
        flags="--gpus 1 --env K=V --env 'L=a b'",
        asks={"gpus": 1, "env": ENV},
        keywords={"gpus": 1, "env": ENV},
    ),
    _row("--gpus 1 --chdir /there/./x", gpus=1, cwd="/there/x"),
    _row("--gpus 1 --prolog 'a b' --epilog c", gpus=1, prolog="a b", epilog="c"),
    _row("--gpus 1 --exclusive", gpus=1, exclusive=True),
    _row("--gpus 2 -w node00[1-2]", gpus=2, nodelist=("node001", "node002")),
    Row(
        flags="--gpus 2 --gres gpu:a100:2 -n 2 -c 3 --job-name n",
        asks={
            "gpus": 2,
            "gpus_per_node": 2,
            "gpu_type": "a100",
            "ntasks_per_node": 2,
            "cpus": 6,
            "name": "n",
        },
        keywords={
            "gpus": 2,
            "gpus_per_node": 2,
            "gpu_type": "a100",
            "ntasks_per_node": 2,
            "cpus": 6,
            "name": "n",
        },
    ),
    _row("--gpus 1 --results 'out/*.pt'", gpus=1, results=("out/*.pt",)),
    _row("--gpus 1 --image pytorch/pytorch:2.5.1", gpus=1, image="pytorch/pytorch:2.5.1"),
    _row("--gpus 1 --retries 2 --no-requeue", gpus=1, retries=2, requeue=False),
    _row("--gpus 1 --on-disconnect fence", gpus=1, on_disconnect="fence"),
    _row("--gpus 1 --debug --mpi", gpus=1, debug=True, mpi=True),
    _row("--gpus 1 --env-setup-cmd 'module load cuda'", gpus=1, env_setup_cmd="module load cuda"),
    _row("--gpus 1 --signal USR1@60 --interactive-kill", gpus=1, signal="USR1@60", interactive_kill=True),
    # what
    _run("python train.py --lr 0.1", "python", "train.py", "--lr", "0.1"),
    _run("python a.py && python b.py", "bash", "-lc", "python a.py && python b.py"),
    _run("cat a | wc > b", "bash", "-lc", "cat a | wc > b"),
    _run("ls *.py; echo $RANK", "bash", "-lc", "ls *.py; echo $RANK"),
    _run("echo '&&' \"two words\"", "echo", "&&", "two words"),
    _run("bash -c 'exit 3'", "bash", "-c", "exit 3"),
    # what is wrong
    _wrong("--gpus two", "--gpus two: write a whole number, like --gpus 2."),
    _wrong("--gpus 1 --retries -1", "--retries -1: it cannot be below 0; write it like --retries 2."),
    _wrong("--gpus 1 --nodelist a --exclude a", "a is in both --nodelist and --exclude: take it out of one."),
    _wrong("--gpus 1 --arch '?'", f"--arch is not valid: {_CHARACTERS}; write it like --arch x86_64."),
    _wrong(
        "--gpus 1 --gpu-mem much",
        "--gpu-mem much: write an amount of memory, like 20G, or a plain number of MB.",
    ),
    _wrong("--gpus 1 --mem 1 --gpu-mem 2", "--gpu-mem and --mem say the same: leave one out."),
    _wrong(
        "--gpus 1 --begin soon",
        "--begin soon is not a time: write it like now+1hour, 18:30, tomorrow or 2030-01-31T08:00.",
    ),
    _wrong(
        "--gpus 1 -d afterok:7", "--dependency afterok:7: name jobs by their ids, as in afterok:ABCD1234."
    ),
    _wrong("--gpus 1 -a x", "--array x: write numbers and ranges, as in 1-100, 0,3,7 or 0-20:5%4."),
    _wrong("--gpus 1 --sweep lr", "--sweep lr: write a name and its values, like lr=0.1,0.01."),
    _wrong(
        "--gpus 1 --mpi --distributed",
        "--mpi and --distributed are two ways to start processes: leave one of the two out.",
    ),
    _wrong("--gpus 1 --time-limit 0", "--time-limit 0: write a number of seconds above 0."),
    _wrong(
        "--gpus 1 -t soon",
        "-t soon is not a time: write hours, minutes and seconds, like -t 02:00:00.",
        _PYTHON,
    ),
    _wrong(
        "--gpus 1 --env K",
        "--env K: write it as NAME=VALUE, or use --export K to copy it from here.",
        _PYTHON,
    ),
    Row(
        flags="--gpus 1 --env MGPU_TOKEN=x",
        keywords={"env": {"MGPU_TOKEN": "x"}},
        sentence="MGPU_TOKEN never enters a job: give the job a token of its own under another name.",
    ),
)
