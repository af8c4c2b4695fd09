"""What may stand next on a line, and that every command's help fits a screen or pages."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.cli.completion import NAMES, answer, candidates, for_bash, words_of_line
from mgpu_jupyter.cli.show import show_help
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, Play, a_node, lost

Captured = pytest.CaptureFixture[str]
BIN = Path(sys.executable).parent
SCREEN = 50
SCRIPTS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.fixture
def mock() -> MockTransport:
    mock = MockTransport(
        lambda spec: Play(hold=True), nodes=[a_node("alpha"), a_node("alto"), a_node("beta")]
    )
    Client(transport=mock).submit(["x"])
    return mock


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mgpu ", [*entry.COMMANDS, "--help", "--version"]),
        ("mgpu val", ["validate"]),
        ("mgpu_srun --gpu-m", ["--gpu-mem"]),
        ("mgpu srun --on-disconnect ", ["keep", "fence"]),
        ("mgpu_srun --nodelist al", ["alpha", "alto"]),
        ("mgpu_srun -w alpha,", ["alpha,alto", "alpha,beta"]),
        ("mgpu_srun --exclude=b", ["--exclude=beta"]),
        ("mgpu_srun --node-gpu-ids 'alpha:0;be", ["alpha:0;beta:"]),
        ("mgpu_srun --dependency aftera", ["afterany:"]),
        ("mgpu_srun --dependency afterok:", ["afterok:MOCK0000"]),
        ("mgpu_srun --gpus 1 -- ls", []),
        ("mgpu_cancel ", ["MOCK0000"]),
        ("mgpu_cancel MOCK0000 m", ["MOCK0000"]),
        ("mgpu logs M", ["MOCK0000"]),
        ("mgpu logs MOCK0000 ", []),
        ("mgpu logs --f", ["--follow"]),
        ("mgpu node dr", ["drain"]),
        ("mgpu node drain al", ["alpha", "alto"]),
        ("mgpu node drain alpha ", []),
        ("mgpu completion z", ["zsh"]),
        ("mgpu_queue -u ", ["me"]),
        ("mgpu_client ", ["submit", "queue", "cancel", "monitor"]),
        ("mgpu_client --port 1 mon", ["monitor"]),
        ("mgpu_client monitor M", ["MOCK0000"]),
        ("mgpu_client submit --node", ["--node-gpu-ids"]),
        ("mgpu simulate --policy fi", ["fifo"]),
        ("mgpu nosuch ", []),
        ("nosuch ", []),
        ("mgpu nodes x", []),
    ],
)
def test_candidates(line: str, expected: list[str], mock: MockTransport) -> None:
    assert candidates(words_of_line(line), lambda: Client(transport=mock)) == expected


def test_without_a_master_there_are_no_names_and_no_complaint(capsys: Captured) -> None:
    mock = MockTransport()
    mock.failures = [lost()]
    assert candidates(["mgpu_cancel", ""], lambda: Client(transport=mock)) == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("line", "current", "expected"),
    [
        ("mgpu_srun --nodelist=al", "al", ["alpha", "alto"]),
        ("mgpu_srun --nodelist=", "=", ["alpha", "alto", "beta"]),
        ("mgpu_srun --nodelist al", "al", ["alpha", "alto"]),
        ("mgpu_srun -d afterok:MO", "MO", ["MOCK0000"]),
    ],
)
def test_bash_breaks_words_where_we_do_not(
    line: str, current: str, expected: list[str], mock: MockTransport
) -> None:
    assert for_bash(line, current, lambda: Client(transport=mock)) == expected


def test_a_shell_gets_a_line_for_each_candidate_or_nothing(mock: MockTransport, capsys: Captured) -> None:
    for words in (["bash", "mgpu_srun --nodelist al", "al"], ["words", "mgpu_srun", "--nodelist", "zz"], []):
        assert answer(words, lambda: Client(transport=mock)) == 0
    assert capsys.readouterr() == ("alpha\nalto\n", "")


def test_words_of_a_line() -> None:
    assert words_of_line("a 'b c' \"d e\" f\\ g ") == ["a", "b c", "d e", "f g", ""]
    assert words_of_line("a 'b c") == ["a", "b c"]


def test_the_scripts_name_every_program(capsys: Captured) -> None:
    assert set(SCRIPTS) - {"debug_job_tracking"} <= set(NAMES)
    for shell in ("bash", "zsh", "fish"):
        assert entry.mgpu(["completion", shell]) == 0
        assert "mgpu_srun" in capsys.readouterr().out
    assert entry.mgpu(["completion", "tcsh"]) == 2
    assert entry.mgpu(["__complete", "words"]) == 0
    done = subprocess.run(
        ["bash", "-n"], input=subprocess.check_output([str(BIN / "mgpu"), "completion", "bash"]), check=False
    )
    assert done.returncode == 0


# --- help ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", entry.COMMANDS)
def test_help_has_a_line_for_each_flag_and_an_example(
    command: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert entry.mgpu([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: mgpu")
    parser = entry.command_of(command).parser(f"mgpu {command}")
    assert [flag for flag in parser.flag_names() if flag not in text] == []
    is_plain = {name for action in parser.actions for name in (action.option_strings or [action.dest])} <= {
        "--help",
        "-h",
        "--json",
    }
    assert "example" in text or is_plain
    # What is longer is shown page by page; see below.
    assert text.count("\n") <= SCREEN or command in ("srun", "sbatch")


@pytest.mark.parametrize("program", SCRIPTS)
def test_every_program_has_help(program: str) -> None:
    done = subprocess.run(
        [str(BIN / program), "--help"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout[:6], done.stderr) == (0, "usage:", "")


def test_help_that_is_longer_than_the_screen_pages(tmp_path: Path) -> None:
    """On a terminal of 24 lines the user's pager gets it; on one that is high enough it is simply printed."""
    taken = tmp_path / "taken"
    env = os.environ | {"PAGER": f"tee {taken}", "TERM": "xterm", "LINES": "24", "COLUMNS": "80"}
    _in_terminal([str(BIN / "mgpu_srun"), "--help"], env)
    assert taken.read_text().startswith("usage: mgpu_srun")
    taken.unlink()
    shown = _in_terminal([str(BIN / "mgpu"), "nodes", "--help"], env)
    assert not taken.exists()
    assert "usage: mgpu nodes" in shown


def _in_terminal(words: list[str], env: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    try:
        program = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        parts = []
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:
                break
            if not data:
                break
            parts.append(data)
        program.wait(60)
        return b"".join(parts).decode()
    finally:
        os.close(ours)


def test_without_a_pager_help_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr("mgpu_jupyter.cli.show.on_terminal", lambda: True)
    monkeypatch.setenv("PAGER", "no-such-pager")
    show_help("line\n" * 200)
    assert capsys.readouterr().out == "line\n" * 200


# --- what a terminal sees ------------------------------------------------------------------------------


def test_tables_are_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, mock: MockTransport
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("mgpu_jupyter.cli.nodes.on_terminal", lambda: True)
    monkeypatch.setattr("mgpu_jupyter.cli.queue.on_terminal", lambda: True)
    for words in (["queue", "--all"], ["nodes"]):
        assert entry.mgpu(words, lambda: Client(transport=mock)) == 0
    text = capsys.readouterr().out
    assert re.search(r"^Job +User +GPUs", text, re.MULTILINE), "a table has headings"
    monkeypatch.setattr("mgpu_jupyter.cli.queue.on_terminal", lambda: False)
    assert entry.mgpu(["queue", "--all"], lambda: Client(transport=mock)) == 0
    piped = capsys.readouterr().out
    assert not re.search(r"^Job +User +GPUs", piped, re.MULTILINE), "scripts get the lines that they know"
    for piece in (
        "--- Running Jobs ---",
        "MOCK0000",
        "--- Queue ---",
        "No queued jobs",
        "--- Cluster Status ---",
        "alpha",
        "Simulated GPU",
    ):
        assert piece in text


def test_starting_srun_imports_no_rich() -> None:
    code = "import sys; import mgpu_jupyter.cli.main, mgpu_jupyter.cli.srun; print('rich' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
