"""`mgpu demo`: which notebook it opens, where its state is, what it refuses. All of it: tests/e2e/test_lab.py
and test_notebooks.py.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_agent.protocol.errors import Conflict, InvalidRequest
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.demo import notebooks, open_lab
from mgpu_jupyter.demo.program import end_all, processes_of, wait_until_gone
from tests.processes import wait_until

ROOT = Path(__file__).parents[2]
NAMES = ["administrators_tour", "distributed_training", "quickstart", "scheduling", "sweep"]


def no_client() -> None:
    raise AssertionError("a demo has a master of its own")


def run(*words: str) -> int:
    return entry.mgpu(["demo", *words], no_client)  # type: ignore[arg-type]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Notebooks as a wheel has them."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "quickstart.ipynb").write_text("as it is shipped")
    monkeypatch.setattr(notebooks, "_PACKAGED", folder)
    return folder


def test_a_clone_has_its_notebooks_where_they_are_written(tmp_path: Path) -> None:
    assert notebooks.names() == NAMES
    assert notebooks.notebook("sweep", tmp_path / "copies") == ROOT / "notebooks" / "sweep.ipynb"
    assert not (tmp_path / "copies").exists()


def test_a_notebook_of_an_installed_package_is_copied_once(installed: Path, tmp_path: Path) -> None:
    copy = notebooks.notebook("quickstart", tmp_path / "copies")
    assert (notebooks.names(), copy, copy.read_text()) == (
        ["quickstart"],
        tmp_path / "copies" / "quickstart.ipynb",
        "as it is shipped",
    )
    copy.write_text("changed by its reader")
    assert notebooks.notebook("quickstart", tmp_path / "copies").read_text() == "changed by its reader"
    assert (installed / "quickstart.ipynb").read_text() == "as it is shipped"


def test_the_wheel_has_the_notebooks_where_they_are_looked_for() -> None:
    assert notebooks._PACKAGED == ROOT / "mgpu_jupyter/demo/notebooks"
    assert '\n"notebooks" = "mgpu_jupyter/demo/notebooks"\n' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["quickstat", "--headless"], 1, f"There is no notebook quickstat: it is one of {', '.join(NAMES)}."),
        (
            ["--headless", "--", "--no-browser"],
            2,
            "--headless opens no JupyterLab and keeps nothing: leave out --state-dir and what follows --.",
        ),
        (["--headles"], 2, "There is no flag --headles: use --headless, or see mgpu demo --help."),
    ],
)
def test_what_is_refused(
    words: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (run(*words), capsys.readouterr().err) == (code, f"{sentence}\n")


def test_a_light_install_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jupyterlab" else find(name)
    )
    assert (run(), capsys.readouterr().err) == (
        1,
        'mgpu demo needs JupyterLab: run  pip install "mgpu-jupyter[lab]"\n',
    )


def test_help_names_the_notebooks_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    text = capsys.readouterr().out
    assert "mgpu demo [NOTEBOOK] [--headless] [--state-dir DIR] [-- LAB-FLAGS…]" in text
    assert "mgpu demo scheduling -- --no-browser --port 9999" in text


def test_the_state_of_a_demo_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    monkeypatch.setattr(open_lab, "is_on_network", lambda path: False)
    here = open_lab.default_state()
    monkeypatch.setattr(open_lab, "is_on_network", lambda path: True)
    assert (here, open_lab.default_state()) == (
        Path("/somewhere/mgpu-demo"),
        Path(f"/var/tmp/mgpu-demo-{os.getuid()}"),
    )


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that belongs to the state directory `state`."""
    (tmp_path / "state").mkdir(mode=0o700)
    env = os.environ | {"MGPU_STATE_DIR": str(tmp_path / "state")}
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_only_what_belongs_to_a_directory_is_ended(started: subprocess.Popen[bytes], tmp_path: Path) -> None:
    found = {
        path: [one.pid for one in processes_of(tmp_path / path)]
        for path in ("state", "stat", "state/inner", "state2")
    }
    assert found == {"state": [started.pid], "stat": [], "state/inner": [], "state2": []}
    assert [one.pid for one in processes_of(tmp_path)] == [started.pid]
    assert [line.split()[0] for line in end_all(tmp_path / "state")][:1] == [str(started.pid)]
    assert wait_until_gone(tmp_path / "state") == []


@pytest.mark.usefixtures("started")
def test_a_demo_does_not_begin_among_processes_that_it_would_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_lab, "has_nvidia_gpus", lambda: False)
    with pytest.raises(
        Conflict,
        match=r"/state is in use \(\d+ .*\): stop what runs there, or name another directory with "
        r"--state-dir\.",
    ):
        open_lab.open_lab("quickstart", tmp_path / "state", [])
    wait_until(lambda: len(processes_of(tmp_path / "state")) == 1, "it goes on")


def test_a_directory_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(InvalidRequest):
        open_lab.open_lab("quickstart", tmp_path / "open", [])
