"""Reading histories; the witness as a process; and that the checker needs nothing of mgpu."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.checker.__main__ import main
from tests.checker.history import Fault, Seen, Settings, Told, append, read
from tests.checker.rules import check
from tests.checker.witness import born_at
from tests.processes import wait_until

HERE = Path(__file__).parent
ENV = {
    "MGPU_JOB_ID": "JOB00001",
    "MGPU_ATTEMPT": "2",
    "MGPU_EPOCH": "9",
    "MGPU_NODE_ID": "n1",
    "MGPU_GPUS": "GPU-a,GPU-b",
}


def test_the_checker_imports_nothing_of_mgpu() -> None:
    allowed = {"tests.checker", "hypothesis", "pytest", "tests.processes"}
    for path in HERE.glob("*.py"):
        tree = ast.parse(path.read_text())
        names = [
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        ]
        names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        foreign = {
            name
            for name in names
            if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith(tuple(allowed))
        }
        assert (path.name, foreign) == (path.name, set())
        if path.name == "witness.py":
            assert all(name.split(".")[0] in sys.stdlib_module_names for name in names)


def test_the_judge_runs_where_mgpu_cannot_be_imported(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['mgpu_agent'] = sys.modules['mgpu_jupyter'] = None; from "
        "tests.checker.__main__ import main; "
    )
    program += "import pathlib; sys.exit(main(pathlib.Path(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "0 acknowledged, 0 processes, 0 violations\n",
        "",
    )


def _start(directory: Path, *words: str, **env: str) -> subprocess.Popen[bytes]:
    directory.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-IS", str(HERE / "witness.py"), str(directory), *words],
        env={**ENV, **env},
        stdout=subprocess.DEVNULL,
    )


def test_a_witness_writes_down_its_life(tmp_path: Path) -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    witness = _start(tmp_path / "witness", "0.2", "3", MGPU_NODE_RANK="1", MGPU_NNODES="2")
    assert witness.wait(20) == 3
    (run,) = read(tmp_path).runs
    assert (run.job, run.attempt, run.epoch, run.rank, run.ranks, run.node) == ("JOB00001", 2, 9, 1, 2, "n1")
    assert (run.pid, run.host, run.gpus, run.code) == (
        witness.pid,
        os.uname().nodename,
        ("GPU-a", "GPU-b"),
        3,
    )
    assert before < run.started_at <= run.seen_at - 0.2 < time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize(
    ("number", "code", "told"), [(signal.SIGTERM, 143, 143), (signal.SIGKILL, -signal.SIGKILL, None)]
)
def test_a_witness_that_is_ended(tmp_path: Path, number: signal.Signals, code: int, told: int | None) -> None:
    witness = _start(tmp_path / "witness", "30")
    wait_until(lambda: read(tmp_path).runs, "it is there")
    first = read(tmp_path).runs[0].seen_at
    wait_until(lambda: read(tmp_path).runs[0].seen_at > first, "it beats, and so takes signals by now")
    born = born_at(witness.pid)
    witness.send_signal(number)
    assert witness.wait(20) == code
    (run,) = read(tmp_path).runs
    assert (run.code, run.born) == (told, born)


def test_lines_of_the_client_are_read_as_they_were_written(tmp_path: Path) -> None:
    append(tmp_path, "settings", 0.0, kill_grace_s=1.0, retries=2, retry_delays_s=[1.0, 2.0])
    append(tmp_path, "asked", 1.0, key="k", ranks=2)
    append(tmp_path, "acknowledged", 2.0, key="k", job="A")
    append(tmp_path, "state", 3.0, job="A", state="queued", attempt=0, exit_code=None)
    append(tmp_path, "unknown", 4.0, job="A")
    append(tmp_path, "fault", 5.0, kind="node-lost", node="n1")
    append(tmp_path, "alive", 6.0, job="A", pid=7)
    with (tmp_path / "told.jsonl").open("a") as file:
        file.write('{"what": "unknown", "at"')  # cut short
    history = read(tmp_path)
    assert history.settings == Settings(kill_grace_s=1.0, retries=2, retry_delays_s=(1.0, 2.0))
    assert history.asked == {"k": {"key": "k", "ranks": 2}}
    assert history.acknowledged == [("k", "A", 2.0)]
    assert history.told == [Told("A", "queued", 0, None, 3.0)]
    assert history.unknown == [("A", 4.0)]
    assert history.faults == [Fault("node-lost", "n1", 5.0)]
    assert history.alive == [Seen("A", 7, 6.0)]
    assert [violation.rule for violation in check(history)] == [1]


def test_a_process_that_was_killed_while_it_wrote_its_first_line_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "witness").mkdir()
    (tmp_path / "witness" / "A.1.0.5.6.jsonl").write_text('{"what": "sta')
    assert read(tmp_path).runs == []


def test_a_line_that_means_nothing_is_an_error(tmp_path: Path) -> None:
    append(tmp_path, "hope", 1.0)
    with pytest.raises(ValueError, match="'hope' means nothing"):
        read(tmp_path)


def test_the_program_prints_what_was_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(tmp_path, "acknowledged", 2.0, key="k", job="A")
    assert main(tmp_path) == 1
    assert capsys.readouterr().out == (
        "rule 1: job A was acknowledged and reached no final state: nothing was told of it afterwards\n"
        "1 acknowledged, 0 processes, 1 violations\n"
    )
