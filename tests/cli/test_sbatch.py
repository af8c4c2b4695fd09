"""`mgpu_sbatch`, `mgpu validate` and `--sweep` from the shell, against the server in memory."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, Play

Captured = pytest.CaptureFixture[str]


def run(command: Callable[..., int], words: list[str], mock: MockTransport) -> int:
    return command(words, lambda: Client(transport=mock))


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/bash\n#MGPU --gpus 2\n#SBATCH --mail-type=END\necho $1\n")
    return str(path)


WARNING = (
    "job.sh:3: warning: #SBATCH --mail-type is not honoured: mgpu sends no mail; let the script send one.\n"
)


def test_a_file_is_submitted_with_a_warning(job: str, capsys: Captured) -> None:
    mock = MockTransport()
    assert run(entry.mgpu_sbatch, [job], mock) == 0
    assert capsys.readouterr() == ("Submitted batch job MOCK0000\n", WARNING)
    assert (mock.specs[0].gpus, mock.specs[0].name, mock.specs[0].script) == (
        2,
        "job.sh",
        Path(job).read_text(),
    )


def test_flags_of_both_kinds_and_words_for_the_script(job: str, capsys: Captured) -> None:
    mock = MockTransport()
    words = ["--job-name=x", "-p", "gpu", "--time", "10", "-o", "o", "-e", "e", "--open-mode=append"]
    words += ["--comment=c", "--gpus=3", job, "--lr", "1"]
    assert run(entry.mgpu_sbatch, words, mock) == 0
    own = mock.specs[0]
    assert (own.name, own.partition, own.time_limit_s, own.gpus) == ("x", "gpu", 600.0, 3)
    assert own.command == ("/bin/bash", "-c", Path(job).read_text(), "job.sh", "--lr", "1")
    assert (own.stdout_file, own.stderr_file, own.open_mode) == ("o", "e", "append")
    assert "warning: --comment is not honoured" in capsys.readouterr().err


def test_the_ways_to_answer(job: str, capsys: Captured) -> None:
    mock = MockTransport()
    assert run(entry.mgpu_sbatch, ["--parsable", job], mock) == 0
    assert run(entry.mgpu_sbatch, ["--json", job], mock) == 0
    assert run(entry.mgpu_sbatch, ["--json", "-a", "1-2", job], mock) == 0
    assert run(entry.mgpu_sbatch, ["--test-only", job], mock) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "MOCK0000"
    assert json.loads(lines[1]) == {"job_id": "MOCK0001", "state": "queued"}
    assert json.loads(lines[2]) == {
        "job_id": "MOCK0002",
        "state": "queued",
        "array_id": "ARRA0002",
        "job_ids": ["MOCK0002", "MOCK0003"],
    }
    assert lines[3] == "It would start now on node-1 (GPU 0)."
    assert len(mock.jobs) == 4


def test_wrap_and_stdin(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    mock = MockTransport()
    assert run(entry.mgpu_sbatch, ["--wrap", "echo hello"], mock) == 0
    stdin = io.TextIOWrapper(io.BytesIO(b"#!/bin/sh\ntrue\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run(entry.mgpu_sbatch, [], mock) == 0
    assert [(spec.name, spec.script) for spec in mock.specs] == [
        ("wrap", "#!/bin/bash\necho hello\n"),
        ("stdin", "#!/bin/sh\ntrue\n"),
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["no-such.sh"],
            "no-such.sh cannot be read (No such file or directory): name a job file that is there.",
        ),
        (["--frobnicate", "x"], "There is no flag --frobnicate here: see mgpu_sbatch --help."),
        (["--wrap", " "], '--wrap is empty: write the command line, as in --wrap "python train.py".'),
    ],
)
def test_what_cannot_be_submitted(words: list[str], sentence: str, capsys: Captured) -> None:
    assert run(entry.mgpu_sbatch, words, MockTransport()) == 2
    assert capsys.readouterr().err == sentence + "\n"


def test_a_wrong_file_is_not_submitted(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "bad.sh"
    path.write_text("#!/bin/bash\n#MGPU --gpus x\ntrue\n")
    mock = MockTransport()
    assert run(entry.mgpu_sbatch, [str(path)], mock) == 2
    assert (capsys.readouterr().err, mock.jobs) == (
        "bad.sh:2: --gpus x: write a whole number, like --gpus 2.\n",
        {},
    )
    path.write_bytes(b"\xff")
    assert run(entry.mgpu_sbatch, [str(path)], mock) == 2
    assert capsys.readouterr().err == "bad.sh:1: Byte 1 is not UTF-8: save the file as UTF-8 text.\n"


def test_validate_says_all_and_whether_it_could_run(job: str, capsys: Captured) -> None:
    assert run(entry.mgpu, ["validate", job], MockTransport()) == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [
        (
            f"{job}:3: warning: #SBATCH --mail-type is not honoured: mgpu sends no mail; let the script send "
            f"one."
        ),
        f"{job}: can be submitted; It would start now on node-1 (GPU 0).",
    ]
    assert run(entry.mgpu, ["validate", job, "--json", "--offline"], MockTransport()) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["cluster"], [one["line"] for one in told["findings"]]) == (True, "", [3])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "#!/opt/none/perl6\nx\n",
            ":1: warning: /opt/none/perl6 is not on this machine: it must be on the nodes where this runs.",
        ),
        ("#!/usr/bin/env\nx\n", ":1: env names no program: write it like #!/usr/bin/env python3."),
        ("#!/bin/bash\nif true\n", ":3: bash cannot read it: "),
        ("\0", ":1: There is a NUL character"),
    ],
)
def test_validate_looks_at_the_interpreter_and_the_script(
    text: str, sentence: str, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "job"
    path.write_text(text)
    run(entry.mgpu, ["validate", str(path), "--offline"], MockTransport())
    assert f"{path}{sentence}" in capsys.readouterr().out
    assert run(entry.mgpu, ["validate"], MockTransport()) == 2


def test_a_sweep_is_an_array_of_combinations(capsys: Captured) -> None:
    mock = MockTransport(lambda spec: Play())
    words = [
        "--sweep",
        "lr=0.1,0.01",
        "--sweep",
        "seed=1,2",
        "--array",
        "%2",
        "--",
        "train",
        "{lr}",
        "{seed}",
    ]
    assert run(entry.mgpu_srun, words, mock) == 0
    assert "array of 4 jobs" in capsys.readouterr().out
    assert (mock.specs[0].array, mock.specs[0].sweep) == (
        "0-3%2",
        {"lr": ("0.1", "0.01"), "seed": ("1", "2")},
    )


@pytest.mark.parametrize("sweep", ["lr", "=1", "lr=", "lr=1,,2", "l r=1"])
def test_a_wrong_sweep_is_one_sentence(sweep: str, capsys: Captured) -> None:
    assert run(entry.mgpu_srun, ["--sweep", sweep, "--", "x"], MockTransport()) == 2
    assert capsys.readouterr().err == f"--sweep {sweep}: write a name and its values, like lr=0.1,0.01.\n"
    assert run(entry.mgpu_srun, ["--sweep", "a=1", "--sweep", "a=2", "--", "x"], MockTransport()) == 2


def test_a_sweep_in_python() -> None:
    mock = MockTransport()
    Client(transport=mock).submit(["x"], sweep={"lr": [0.1, 0.01], "name": "one"})
    Client(transport=mock).submit(["x"], sweep="lr=1,2")
    assert [spec.sweep for spec in mock.specs] == [
        {"lr": ("0.1", "0.01"), "name": ("one",)},
        {"lr": ("1", "2")},
    ]
