"""A script written for the earlier tools runs unchanged: with the installed commands on the path, and with
the files of `make dist`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_jupyter.contrib.single_files.build import build
from tests.e2e.cluster import BIN
from tests.processes import end_all, free_port

SCRIPT = Path(__file__).with_name("earlier_tools.sh")
NAMES = ("mgpu_master", "mgpu_node", "mgpu_client", "mgpu_queue", "mgpu_cancel", "mgpu_srun", "mgpu_flush")
SYSTEM = f"/usr/local/bin:/usr/bin:/bin:{Path(sys.executable).resolve().parent}"
"""The last one has the Python that the files were built with, for machines whose python3 is another."""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "state"
    yield path
    end_all(path)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    build(place)
    return place


def run_script(tmp_path: Path, state: Path, programs: Path) -> str:
    home = tmp_path / "home"
    home.mkdir()
    env = {
        "PATH": f"{programs}:{SYSTEM}",
        "HOME": str(home),
        "PORT": str(free_port()),
        "MGPU_STATE_DIR": str(state),
        "LANG": "C.UTF-8",
    }
    env["MGPU_MASTER_WAIT"] = (
        "120"  # the master unpacks four times as much as the nodes, which on a busy machine takes its time
    )
    done = subprocess.run(
        ["bash", str(SCRIPT)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
    )
    logs = "".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(tmp_path.glob("*.log")))
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{logs}"
    return done.stdout


def test_with_the_commands_on_the_path(tmp_path: Path, state: Path) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    for name in NAMES:
        (only / name).symlink_to(BIN / name)
    assert run_script(tmp_path, state, only).splitlines()[-1] == "ALL WELL"


def test_with_the_files_of_make_dist(tmp_path: Path, state: Path, dist: Path) -> None:
    """The machine's own python3 runs them: nothing of this environment is on the path."""
    assert run_script(tmp_path, state, dist).splitlines()[-1] == "ALL WELL"
    unpacked = list((tmp_path / "home/.cache/mgpu-dist").iterdir())
    assert len(unpacked) == 2  # the small programs share one place, the master has its own


def test_a_file_says_what_it_needs(tmp_path: Path, dist: Path) -> None:
    """It was built for another Python than this one, and that is not here."""
    other = tmp_path / "mgpu_queue"
    with zipfile.ZipFile(dist / "mgpu_queue") as old, zipfile.ZipFile(other, "w") as new:
        main = old.read("__main__.py").decode()
        new.writestr("__main__.py", re.sub('BUILT_FOR = "[^"]*"', 'BUILT_FOR = "3.0"', main))
    env = {"PATH": SYSTEM, "HOME": str(tmp_path)}
    done = subprocess.run(["python3", str(other)], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        f"{other} was built for Python 3.0: install python3.0, or run `make dist` with this one.\n",
    )
