"""Job files: what their lines mean, what is said about wrong ones, and that no file at all upsets the
reader.
"""

from __future__ import annotations

import random
import string

import pytest

from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.jobfile import Finding, JobFile, read_bytes, read_job_file
from mgpu_jupyter.client.slurm import is_known, names, translate
from mgpu_jupyter.model.job import JobSpec

HERE = Here(cwd="/home/me", now=1_000_000.0, host="desk")
GOOD = """#!/bin/bash
# a comment
#MGPU --gpus 2 --name train   # both
#MGPU --time-limit 60
#SBATCH --partition=gpu -A bio

#SBATCH --export=NONE,SEED=7
set -e
python train.py "$1"
"""


def read(text: str, **more: object) -> JobFile:
    return read_job_file(text, "job.sh", environ={"HOME": "/home/me"}, here=HERE, **more)  # type: ignore[arg-type]


def spec(*lines: str) -> JobSpec:
    found = read("\n".join(("#!/bin/bash", *lines, "true", "")))
    assert found.submission is not None, found.findings
    return found.submission.spec


def test_a_good_file() -> None:
    found = read(GOOD)
    assert found.findings == ()
    assert found.submission is not None
    assert found.submission.background
    own = found.submission.spec
    assert (own.script, own.command) == (GOOD, ())
    assert (own.gpus, own.name, own.time_limit_s, own.partition, own.account, own.env) == (
        2,
        "train",
        60.0,
        "gpu",
        "bio",
        {"SEED": "7"},
    )


def test_the_name_of_the_file_is_the_jobs_unless_it_has_one() -> None:
    assert spec("#MGPU --gpus 1").name == "job.sh"
    assert spec("#SBATCH -J own").name == "own"


def test_the_command_line_goes_first() -> None:
    found = read(GOOD, flags=["--gpus", "4"])
    assert found.submission is not None
    assert found.submission.spec.gpus == 4


@pytest.mark.parametrize(
    ("shebang", "command"),
    [
        ("#!/bin/bash", ("/bin/bash", "-c", "{text}", "job.sh", "a b")),
        ("#!/usr/bin/env python3", ("/usr/bin/env", "python3", "-c", "{text}", "a b")),
    ],
)
def test_words_for_the_script(shebang: str, command: tuple[str, ...]) -> None:
    text = f"{shebang}\nx\n"
    found = read(text, arguments=["a b"])
    assert found.submission is not None
    own = found.submission.spec
    assert (own.script, own.command) == (None, tuple(word.format(text=text) for word in command))
    assert [one.message for one in read("#!/usr/bin/awk -f\nx\n", arguments=["a"]).errors] == [
        "-f cannot be given words for the script: use --env NAME=VALUE."
    ]


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("--job-name=a", {"name": "a"}),
        ("-N 2 --gres=gpu:a100:4", {"nodes": 2, "gpus_per_node": 4, "gpu_type": "a100"}),
        ("-N2-2 --gres=gpu", {"nodes": 2, "gpus_per_node": 1}),
        ("--gpus=h100:2", {"gpus": 2, "gpu_type": "h100"}),
        ("-G 3", {"gpus": 3}),
        ("--gpus-per-node 2 --nodes=3", {"nodes": 3, "gpus_per_node": 2}),
        ("-c 8 --mem=64G", {"cpus": 8, "mem_per_node_bytes": 64 * 1024**3}),
        ("-t 1-00:00:00", {"time_limit_s": 86400.0}),
        ("--time=90", {"time_limit_s": 5400.0}),
        ("-w n[01-03],x --nodes=1", {"nodelist": ("n01", "n02", "n03", "x"), "nodes": 1}),
        ("-x n[1,3]", {"exclude": ("n1", "n3")}),
        ("--qos=high --constraint=a100", {"qos": "high", "constraint": "a100"}),
        ("-a 1-10%2", {"array": "1-10%2"}),
        ("-b now+1hour", {"begin_at": 1_003_600.0}),
        ("-D /data", {"cwd": "/data"}),
        ("--hold --no-requeue", {"hold": True, "requeue": False}),
        ("--exclusive", {"exclusive": True}),
        ("--nice=5", {"priority": -5}),
        ("--nice", {"priority": -100}),
        ("--dependency=afterok:ABCD1234", {"dependency": "afterok:ABCD1234"}),
        ("--export=HOME", {"env": {"HOME": "/home/me"}}),
        (
            "-o x-%j.out --error=x.err --open-mode=append",
            {"stdout_file": "x-%j.out", "stderr_file": "x.err", "open_mode": "append"},
        ),
    ],
)
def test_what_sbatch_lines_mean(line: str, fields: dict[str, object]) -> None:
    found = spec(f"#SBATCH {line}")
    assert {name: getattr(found, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--mail-type=END",
            "#SBATCH --mail-type is not honoured: mgpu sends no mail; let the script send one.",
        ),
        (
            "--exclusive=user",
            (
                "#SBATCH --exclusive=user is honoured as --exclusive: nobody else's and none of your own "
                "jobs is placed beside it."
            ),
        ),
        ("-N 2-4", "#SBATCH --nodes=2-4 is honoured as 2: mgpu starts a job on a fixed number of nodes."),
        (
            "-n 8",
            (
                "#SBATCH --ntasks=8 is not honoured: give --nodes and --ntasks-per-node, which say where the "
                "processes are."
            ),
        ),
        (
            "--gres=tmpdir:1",
            "#SBATCH --gres=tmpdir:1 is not honoured: only GPUs are handed out; leave it out.",
        ),
        (
            "--export=ALL",
            (
                "#SBATCH --export=ALL is not honoured: a job has the node's environment; name what it needs, "
                "like --export=A,B."
            ),
        ),
    ],
)
def test_a_warning_names_what_is_not_honoured(line: str, message: str) -> None:
    found = read(f"#!/bin/bash\n#SBATCH {line}\ntrue\n")
    assert found.findings == (Finding(line=2, level="warning", message=message),)
    assert found.submission is not None


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "The file is empty: write a script that begins with #!/bin/bash."),
        (
            "echo x\n",
            1,
            (
                "The first line must name the interpreter: begin the file with #!/bin/bash or #!/usr/bin/env "
                "python3."
            ),
        ),
        (
            "#!bash\nx\n",
            1,
            "The interpreter must be a whole path: write #!/bin/bash or #!/usr/bin/env python3.",
        ),
        (
            "#!/bin/bash\r\nx\r\n",
            1,
            "Lines end with CR LF, which no Unix interpreter takes: convert it with  sed -i 's/\\r$//' FILE",
        ),
        (
            "#!/bin/bash\n#MGPU --gpus 1\n",
            3,
            "There is no command below the directives: write what is to run.",
        ),
        ("#!/bin/bash\n#MGPU --gpus x\ntrue\n", 2, "--gpus x: write a whole number, like --gpus 2."),
        (
            "#!/bin/bash\n\n#MGPU --gpuss 1\ntrue\n",
            3,
            "There is no flag --gpuss: use --gpus, or see mgpu_sbatch --help.",
        ),
        ("#!/bin/bash\n#MGPU\ntrue\n", 2, "#MGPU without a flag: write it like #MGPU --gpus 1."),
        (
            "#!/bin/bash\n#MGPU train.py\ntrue\n",
            2,
            "'train.py' is no flag: write it like #MGPU --gpus 1; commands go below the directives.",
        ),
        (
            "#!/bin/bash\n#MGPU --name 'x\ntrue\n",
            2,
            "A quotation mark is not closed: close it on the same line.",
        ),
        (
            "#!/bin/bash\n#MGPU --json\ntrue\n",
            2,
            "--json has no meaning in a job file: leave it out, or give it to mgpu_sbatch itself.",
        ),
        ("#!/bin/bash\n#MGPU --gpus\ntrue\n", 2, "--gpus/-G needs a value (see mgpu_sbatch --help)."),
        (
            "#!/bin/bash\n#SBATCH --partitio=x\ntrue\n",
            2,
            "There is no flag --partitio of sbatch that mgpu knows: use --partition.",
        ),
        (
            "#!/bin/bash\n#SBATCH -Z\ntrue\n",
            2,
            "There is no flag -Z of sbatch that mgpu knows: use the long name.",
        ),
        ("#!/bin/bash\n#SBATCH --gres\ntrue\n", 2, "--gres needs a value: write it like #SBATCH --gres=…."),
        (
            "#!/bin/bash\n#SBATCH --gpus=two\ntrue\n",
            2,
            "--gpus=two: write a number of GPUs, like 2 or a100:2.",
        ),
        ("#!/bin/bash\n#SBATCH x\ntrue\n", 2, "'x' is no flag: write it like #SBATCH --job-name=train."),
        (
            "#!/bin/bash\n#SBATCH -w n[9-1-2]\ntrue\n",
            2,
            "n[9-1-2] is no list of nodes: write it like n[1-3,7].",
        ),
        (
            "#!/bin/bash\n#MGPU -w a\n#MGPU -x a\ntrue\n",
            3,
            "a is in both --nodelist and --exclude: take it out of one.",
        ),
    ],
)
def test_each_mistake_is_one_sentence_at_its_line(text: str, line: int, message: str) -> None:
    found = read(text)
    assert found.submission is None
    assert found.errors == [Finding(line=line, level="error", message=message)]


def test_lines_that_do_not_count_are_named() -> None:
    found = read("#!/bin/bash\n# MGPU --gpus 2\n#mgpu --gpus 2\ntrue\n#MGPU --gpus 2\n")
    near = "This looks like a directive and is a comment: write #MGPU or #SBATCH, and a blank after it."
    assert [(one.line, one.level, one.message) for one in found.findings] == [
        (2, "warning", near),
        (3, "warning", near),
        (5, "warning", "#MGPU below the first command does not count: move the line up."),
    ]


def test_bytes_that_are_no_text() -> None:
    assert read_bytes(b"#!/bin/sh\n\xff\n") == Finding(
        line=2, level="error", message="Byte 11 is not UTF-8: save the file as UTF-8 text."
    )
    assert read_bytes(b"a\n\n\0") == Finding(
        line=3, level="error", message="There is a NUL character: remove it, a script is text."
    )


def test_node_lists_and_short_flags() -> None:
    assert names("gpu[08-10]-ib,x,n[1]") == "gpu08-ib,gpu09-ib,gpu10-ib,x,n1"
    assert translate(["-Jx", "-n1", "--gpus-per-task=2", "--mem-per-gpu=1G"]).words == [
        "--name",
        "x",
        "--gpus-per-node",
        "2",
    ]


# --- 500 files that somebody's cat walked over -------------------------------------------------------

MUTANTS = 500
PIECES = (
    "#MGPU ",
    "#SBATCH ",
    "--gpus",
    "--gres=gpu:",
    "=",
    ",",
    "%",
    "'",
    '"',
    "[1-",
    "\r",
    "\0",
    "ü",
    "-",
    "--",
    " ",
    "\n",
    "\t",
    "1e9",
    "-1",
    ":",
)
FILES = (
    GOOD,
    (
        "#!/usr/bin/env python3\n#MGPU --nodes 2 --gpus-per-node 4 --array 1-100%8 --begin now+1hour\n#MGPU "
        "-w "
        "a,b -x c --sync .\nprint(1)\n"
    ),
    (
        "#!/bin/sh\n#SBATCH -N 2 -n 4 -c 2 --mem=10G -t 1:00:00 -p gpu --gres=gpu:a100:2\n#SBATCH "
        "--nodelist=n[1-4] --export=A=1\nsrun x\n"
    ),
    (
        '#!/bin/bash\n#MGPU --node-gpu-ids "n1:0,1;n2:2" --priority -5 --dependency afterok:ABCD1234\n#MGPU '
        "--sweep a=1,2 --env K=V\ntrue\n"
    ),
)


def mutant(dice: random.Random) -> bytes:
    """Return a file with a few letters, words or lines that are not as they were."""
    text = dice.choice(FILES)
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(text) + 1)
        match dice.randrange(6):
            case 0:
                text = text[:at] + dice.choice(string.printable) + text[at:]
            case 1:
                text = text[:at] + text[at + dice.randint(1, 12) :]
            case 2:
                text = text[:at] + dice.choice(PIECES) + text[at:]
            case 3:
                lines = text.split("\n")
                dice.shuffle(lines)
                text = "\n".join(lines)
            case 4:
                lines = text.split("\n")
                lines.insert(dice.randrange(len(lines)), dice.choice(lines))
                text = "\n".join(lines)
            case _:
                text = (
                    text.swapcase()
                    if dice.random() < 0.2
                    else text.replace(dice.choice(text or " "), dice.choice("x0- \n"), 1)
                )
    data = text.encode()
    if dice.random() < 0.05:
        at = dice.randrange(len(data) + 1)
        data = data[:at] + bytes([dice.randrange(128, 256)]) + data[at:]
    return data


@pytest.mark.slow
def test_500_mutated_job_files_load_or_get_a_sentence_with_line_and_hint() -> None:
    dice = random.Random(6)
    loaded = refused = 0
    for number in range(MUTANTS):
        data = mutant(dice)
        text = read_bytes(data)
        found = JobFile(submission=None, findings=(text,)) if isinstance(text, Finding) else read(text)
        where = f"mutant {number}: {data!r}"
        lines = data.count(b"\n") + 1
        for one in found.findings:
            assert 1 <= one.line <= lines, where
            assert "\n" not in one.message, where
            assert any(mark in one.message for mark in (":", ";", "(see mgpu_sbatch")), (where, one)
        if found.submission is None:
            refused += 1
            assert len(found.errors) >= 1, where
        else:
            loaded += 1
            assert found.errors == [], where
    assert loaded > 50
    assert refused > 50


def test_flags_of_sbatch_are_known_in_every_form() -> None:
    known = ["-N", "--nodes", "--partition", "--mail-type", "--exclusive", "--deadline"]
    assert [flag for flag in [*known, "--gpu", "-Z", ""] if is_known(flag)] == known
