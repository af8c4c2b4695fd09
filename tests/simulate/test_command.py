"""`mgpu simulate` as people and scripts see it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client import Client
from mgpu_jupyter.model.policies import DEFAULT, MEANINGS, POLICIES
from mgpu_jupyter.model.settings import Planning

Captured = pytest.CaptureFixture[str]
SIZE = ["--nodes", "2", "--gpus-per-node", "1"]


def no_client() -> Client:
    raise AssertionError("no master is needed")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("submit_s,duration_s,gpus\n0,10,1\n0,10,2\n1,5,1\n2,1,3\n3,1,0\n")
    return path


def run(words: list[str], make_client: Callable[[], Client] = no_client) -> int:
    return entry.mgpu(["simulate", *words], make_client)


def test_json(trace: Path, capsys: Captured) -> None:
    code = run([str(trace), *SIZE, "--policy", "fifo", "--json"])

    document = json.loads(capsys.readouterr().out)
    measured = {name: document.pop(name) for name in ("wall_s", "jobs_per_s", "passes")}
    assert code == 0
    assert all(value > 0 for value in measured.values())
    assert {
        name: round(value, 6) if isinstance(value, float) else value for name, value in document.items()
    } == {
        "n_jobs": 3,
        "avg_wait_s": 9.666667,
        "p95_wait_s": 19.0,
        "max_wait_s": 19.0,
        "avg_jct_s": 18.0,
        "avg_bsld": 1.8,
        "utilisation": 0.7,
        "makespan_s": 25.0,
        "promised": 0,
        "late": 0,
        "too_large": 1,
        "without_gpus": 1,
        "nodes": 2,
        "gpus_per_node": 1,
        "policy": "fifo",
        "estimates": "perfect",
        "strategy": "fill_first",
        "repeat": 1,
    }


def test_text(trace: Path, capsys: Captured) -> None:
    code = run([str(trace), *SIZE, "--policy", "easy", "--repeat", "2", "--estimates", "none"])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[:2] == [
        "2 nodes × 1 GPUs, policy easy, estimates learned",
        "  jobs                              6",
    ]
    assert lines[-2:] == ["Left out: 2 jobs larger than the cluster.", "Left out: 2 jobs without a GPU."]


def test_help_names_every_policy(capsys: Captured) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert [name for name in POLICIES if f"\n  {name} " not in text] == []
    assert "example:\n  mgpu simulate " in text


def test_every_policy_has_a_meaning_and_the_default_is_the_production_one() -> None:
    assert list(MEANINGS) == list(POLICIES)
    assert POLICIES[DEFAULT] == Planning()


@pytest.mark.parametrize("name", ["out.png", "out.svg"])
def test_a_picture(trace: Path, name: str, capsys: Captured) -> None:
    picture = trace.parent / name

    assert run([str(trace), *SIZE, "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith((b"\x89PNG\r\n", b"<?xml"))
    assert picture.stat().st_size > 5_000


def test_a_picture_without_matplotlib(trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    assert run([str(trace), *SIZE, "--plot", str(trace.parent / "out.png")]) == 1
    assert capsys.readouterr().err == 'Pictures need matplotlib: pip install "mgpu-jupyter[plot]".\n'


USAGE = "mgpu simulate TRACE --nodes N --gpus-per-node G [flags]"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], f"Name a trace, a CSV file: {USAGE}."),
        (["t.csv", "--nodes", "2"], f"Give --gpus-per-node: {USAGE}."),
        (["t.csv", "--gpus-per-node", "2"], f"Give --nodes: {USAGE}."),
        (["t.csv", "--nodes", "0"], "--nodes 0: write a whole number from 1 to 10,000."),
        (["t.csv", "--nodes", "two"], "--nodes two: write a whole number from 1 to 10,000."),
        (["t.csv", "--repeat", "1001"], "--repeat 1001: write a whole number from 1 to 1,000."),
        (["t.csv", "--estimates", "good"], "--estimates good: it is one of perfect, user, learned."),
        (
            ["t.csv", *SIZE, "--policy", "eazy"],
            f"There is no policy eazy (did you mean easy?): it is one of {', '.join(POLICIES)}.",
        ),
        (["t.csv", *SIZE, "--plot", "out.jpg"], "--plot out.jpg: end the name with .png or .svg."),
        (
            ["t.csv", *SIZE, "--plot", "nowhere/out.png"],
            "--plot nowhere/out.png: there is no directory nowhere.",
        ),
        (
            ["t.csv", *SIZE, "--polcy", "easy"],
            "There is no flag --polcy: use --policy, or see mgpu simulate --help.",
        ),
        (["t.csv", *SIZE, "more.csv"], "There is no argument more.csv here: see mgpu simulate --help."),
    ],
)
def test_wrong_words(words: list[str], sentence: str, capsys: Captured) -> None:
    assert run(words) == 2
    assert capsys.readouterr().err == f"{sentence}\n"


def test_a_missing_file(tmp_path: Path, capsys: Captured) -> None:
    assert run([str(tmp_path / "t.csv"), *SIZE]) == 1
    assert (
        capsys.readouterr().err
        == f"There is no file {tmp_path / 't.csv'}: name a CSV file, plain or gzipped.\n"
    )
