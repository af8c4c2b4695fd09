"""What `make stress` promises: the command's own exit code, cores that are busy meanwhile, and nothing that
stays behind.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes import free_port, wait_until

pytestmark = pytest.mark.slow

STRESS = [sys.executable, str(Path(__file__).with_name("stress.py"))]
# Writes down who runs beside it, and waits for a file if one is named.
COMMAND = """
import os, sys, time
import psutil
beside = [p.pid for p in psutil.Process(os.getppid()).children() if p.pid != os.getpid()]
with open(sys.argv[1] + ".new", "w") as file:
    file.write(" ".join(map(str, beside)))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while sys.argv[2:] and not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
sys.exit(7)
"""


def _alive(path: Path) -> list[int]:
    return [pid for pid in map(int, path.read_text().split()) if psutil.pid_exists(pid)]


def test_the_command_runs_beside_busy_loops_which_end_with_it(tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    run = subprocess.run(
        [*STRESS, "--loops", "2", "--disk", "--", sys.executable, "-c", COMMAND, str(beside)], check=False
    )
    assert (run.returncode, len(beside.read_text().split()), _alive(beside)) == (7, 3, [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_loops_end_with_whoever_started_them(tmp_path: Path, number: signal.Signals) -> None:
    beside, go = tmp_path / "beside", tmp_path / "go"
    run = subprocess.Popen(
        [*STRESS, "--loops", "2", "--", sys.executable, "-c", COMMAND, str(beside), str(go)]
    )
    wait_until(beside.exists, "the command runs")
    run.send_signal(number)
    code = run.wait(60)
    go.touch()
    wait_until(lambda: not _alive(beside), "no loop is left")
    assert code == (128 + number if number == signal.SIGTERM else -number)


def test_a_port_is_given_to_one_test_process_alone() -> None:
    """Also when nothing listens there yet or any more, and to no other process while this one lives."""
    mine = [free_port() for _ in range(50)]
    code = f"""
import random
from tests.processes import free_port
wishes = iter([*{mine}, 10_239])
random.randrange = lambda *_: next(wishes)
print(free_port())
"""
    other = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(set(mine)) == 50
    assert other.stdout == "10239\n", other.stderr
