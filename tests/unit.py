"""Run the unit tests in parts side by side and print each when it is over: for two cores, since much of them
waits for processes.

Usage: python tests/unit.py PYTHON COVERED. What is marked `slow` is left to `make slow`, which the gate runs
too. Coverage is measured where the parts that must be covered are tested, since it doubles the time; `make
unit` reports it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OF_THE_CORE = sorted(path.as_posix() for path in Path("tests/agent").glob("test_core*.py"))
CORE = (*OF_THE_CORE, *(f"tests/agent/test_{name}.py" for name in ("checks", "sight", "trial")))
CLUSTER_FILE = "tests/server/test_cluster_file.py"
MEASURED = ("tests/protocol", "tests/model", "tests/scheduler", "tests/simulate", CLUSTER_FILE, *CORE)
ELSEWHERE = ("tests/e2e", "tests/browser", "tests/properties", "tests/storm", "tests/server", "tests/agent")


def main(python: str, covered: str) -> int:
    """Return 0 when all parts passed."""
    # The part that is measured computes all the time and would be the last; the others mostly wait, so they
    # stand back.
    behind = ("nice", "-n", "5", python)
    pytest = ("-m", "pytest", "-q", "-m", "not references and not slow")
    two = ("--numprocesses", "2", "--dist", "loadfile")
    commands = {
        "rest": (*behind, *pytest, *two, *leave_out(*MEASURED, *ELSEWHERE), "tests"),
        "agent": (*behind, *pytest, *two, *leave_out(*CORE), "tests/agent"),
        "server": (
            *behind,
            *pytest,
            *leave_out(CLUSTER_FILE),
            "tests/server",
        ),  # apart: they have a plugin that sets up Jupyter
        "measured": (python, "-m", "coverage", "run", f"--source={covered}", *pytest, *MEASURED),
    }
    codes = []
    with contextlib.ExitStack() as stack:
        parts = {}
        started = time.monotonic()
        for name, command in commands.items():
            said = stack.enter_context(tempfile.TemporaryFile())
            parts[name] = (subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT), said)
            stack.callback(end, parts[name][0])
        for name, (part, said) in parts.items():
            codes.append(part.wait())
            said.seek(0)
            print(
                f"{name}, after {time.monotonic() - started:.0f} s:\n{said.read().decode(errors='replace')}",
                flush=True,
            )
    return next((code for code in codes if code), 0)


def leave_out(*paths: str) -> list[str]:
    """Return the words that keep pytest from looking there."""
    return [f"--ignore={path}" for path in paths]


def end(process: subprocess.Popen[bytes]) -> None:
    """Leave no process behind when this one is interrupted."""
    if process.poll() is None:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    assert Path("tests").is_dir(), "run it from the root of the repository"
    sys.exit(main(*sys.argv[1:3]))
