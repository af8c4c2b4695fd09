"""The commands of README.md, as they stand there, by an installed wheel in an environment of its own.

`pip install` gets the wheel that is built from this commit in place of a name that an index would look up,
and with `--no-deps`: what mgpu needs is seen in the environment of the tests, whose packages are on the path
behind the wheel's own. Addresses are on loopback, ports are free ones, and lines that one command prints for
another are handed on; all else is run as it is written.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_jupyter.demo.program import end_all
from tests.docs.blocks import ROOT, blocks, commands
from tests.packing.wheel import build
from tests.processes import free_port, wait_until

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a wheel is built from a commit")

TYPED = [
    line for block in blocks(ROOT / "README.md") if block.language == "console" for line in commands(block)
]
LIMIT_S = 240
SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in sys.argv[1:]:
    shell.run_cell(cell).raise_error()
"""
"""A notebook's kernel without its front end: runs the cells that are handed in."""


def typed(start: str) -> list[str]:
    """Return the words of the one command of README.md that begins like this."""
    found = [line for line in TYPED if line.startswith(start)]
    assert len(found) == 1, f"README.md has {len(found)} commands that begin with {start!r}"
    return shlex.split(found[0], comments=True)


class Installed:
    """An environment with a wheel in it, a home of its own, and what runs there."""

    def __init__(self, place: Path, wheel: Path) -> None:
        self._wheel = wheel
        self.home = place / "home"
        self.home.mkdir()
        self._venv = place / "venv"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(self._venv)], check=True, timeout=120
        )
        site = next((self._venv / "lib").glob("python*/site-packages"))
        (site / "packages-of-the-tests.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        cleared = ("MGPU_", "PYTHON", "JUPYTER", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(cleared)}
        self.env = kept | {
            "HOME": str(self.home),
            "MGPU_STATE_DIR": str(self.home / "state"),
            "PATH": f"{self._venv / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def install(self, words: list[str]) -> None:
        """Run a `pip install` of README.md with the wheel in place of the project's name."""
        program, action, wanted = words
        assert (program, action, re.sub(r"\[.*\]", "", wanted)) == ("pip", "install", "mgpu-jupyter")
        into = [sys.executable, "-m", "pip", "--python", str(self._venv / "bin/python")]
        subprocess.run(
            [*into, "install", "--quiet", "--no-deps", str(self._wheel)], check=True, timeout=LIMIT_S
        )

    def run(self, words: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        env = self.env | more
        run = subprocess.run
        return run(
            words, env=env, cwd=self.home, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def start(self, words: list[str], **more: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on; it is ended with the environment."""
        with (self.home / f"{words[0]}.log").open("wb") as log:
            process = subprocess.Popen(words, env=self.env | more, cwd=self.home, stdout=log, stderr=log)
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what was started, the last one first."""
        for process in reversed(self._started):
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        for state in (self.home / "state", self.home / "elsewhere"):
            end_all(state)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    place = tmp_path_factory.mktemp("readme")
    made = Installed(place, next(path for path in build(place / "dist") if path.suffix == ".whl"))
    made.install(typed('pip install "mgpu-jupyter[lab]"'))
    yield made
    made.close()


def test_the_programs_are_those_of_the_wheel(installed: Installed) -> None:
    asked = "import mgpu_agent, mgpu_jupyter; print(mgpu_agent.__file__, mgpu_jupyter.__file__)"
    told = installed.run(["python", "-c", asked])
    assert (told.returncode, str(ROOT) in told.stdout, told.stderr) == (0, False, "")


def test_the_demo_works_without_a_clone(installed: Installed) -> None:
    done = installed.run([*typed("mgpu demo"), "--headless"])
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def here(installed: Installed) -> dict[str, str]:
    """A master, and the variables by which clients find it."""
    port = free_port()
    master = typed("mgpu_master")
    assert master[1:] == ["--host", "0.0.0.0", "--port", "8080"]
    master[2], master[4] = "127.0.0.1", str(port)
    installed.start(master)
    found = {"MGPU_MASTER_HOST": "127.0.0.1", "MGPU_MASTER_PORT": str(port)}
    wait_until(lambda: installed.run(["mgpu", "nodes"], **found).returncode == 0, "the master answers")
    return found


@pytest.fixture(scope="module")
def joined(installed: Installed, here: dict[str, str]) -> dict[str, str]:
    """The same, with a machine that was added by a line."""
    line = installed.run([*typed("mgpu join-token"), "--listen", "127.0.0.1"], **here)
    assert line.returncode == 0, line.stderr
    program, flag, shown = typed("mgpu_node --join")
    printed = line.stdout.split()
    assert (printed[:2], shown[:6], printed[2][:6]) == ([program, flag], "mgpu1.", "mgpu1.")
    installed.install(typed("pip install mgpu-jupyter"))
    elsewhere = str(installed.home / "elsewhere")
    installed.start([*printed, "--node-id", "new", "--fake-gpus", "4"], MGPU_STATE_DIR=elsewhere)
    wait_until(lambda: "new: online" in installed.run(["mgpu", "nodes"], **here).stdout, "the node is there")
    return here


def test_a_machine_that_was_added_runs_jobs_and_cells(installed: Installed, joined: dict[str, str]) -> None:
    ran = installed.run(["mgpu_srun", "--gpus", "2", "--", "bash", "-c", "echo on $MGPU_NODE_ID"], **joined)
    assert (ran.returncode, ran.stdout) == (0, "on new\n")

    (cell,) = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]
    around = ("%load_ext mgpu_jupyter", "data = [1, 2, 3]", cell, "print(total)")
    told = installed.run(["python", "-c", SHELL, *around], **joined)
    assert (told.returncode, "on new with GPUs 0,1\n" in told.stdout) == (0, True), (
        f"{told.stdout}\n{told.stderr}"
    )
    assert told.stdout.splitlines()[-1] == "6"


def test_a_user_is_let_in(installed: Installed, here: dict[str, str]) -> None:
    added = installed.run(typed("mgpu user add"), **here)
    assert (added.returncode, "mgpu login mgpulogin1." in added.stdout) == (0, True), added.stderr


def test_the_tutorial_can_be_typed_along(installed: Installed, joined: dict[str, str]) -> None:
    page = ROOT / "mgpu_jupyter/docs/tutorial.md"
    more = ["--node-id", "more", "--fake-gpus", "4", "--master-port", joined["MGPU_MASTER_PORT"]]
    installed.start(["mgpu_node", *more])
    wait_until(
        lambda: installed.run(["mgpu", "nodes"], **joined).stdout.count(": online") == 2,
        "both nodes are there",
    )
    cells = [block.text for block in blocks(page) if block.language == "python"]
    told = installed.run(
        ["python", "-c", SHELL, *cells, "print(total, job.wait(60).state, large.state)"], **joined
    )
    assert told.returncode == 0, f"{told.stdout}\n{told.stderr}"
    assert told.stdout.splitlines()[-1] == "45 cancelled cancelled"
    assert "4 GPUs free on each of 2 nodes" in told.stdout

    lines = [line for block in blocks(page) if block.language == "console" for line in commands(block)]
    at_a_shell = [shlex.split(line) for line in lines if not line.startswith(("pip install", "mgpu demo"))]
    assert [installed.run(words, **joined).returncode for words in at_a_shell] == [0, 0, 0]


def test_every_command_of_the_readme_is_run_here_or_is_the_gate() -> None:
    starts = (
        "pip install",
        "mgpu demo",
        "mgpu join-token",
        "mgpu_node --join",
        "mgpu_master",
        "mgpu user add",
    )
    assert [line for line in TYPED if not line.startswith(starts)] == ["make test"]
    assert len(TYPED) == 8
