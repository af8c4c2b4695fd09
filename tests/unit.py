"""Run the unit tests in two halves side by side, one for each of two cores, and print each half when it is over.

Usage: python tests/unit.py PYTHON COVERED. Each half measures coverage into a file of its own; `make unit` puts them together.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

APART = ("tests/agent", "tests/server")  # real processes and a plugin that sets up Jupyter: about half of the time
LEFT_OUT = ("tests/e2e", "tests/browser", "tests/properties", "tests/storm", *APART)


def main(python: str, covered: str) -> int:
    """Return 0 when both halves passed."""
    measured = [python, "-m", "coverage", "run", "-p", f"--source={covered}", "-m", "pytest", "-q", "-m", "not references"]
    rest = [*measured, *(f"--ignore={path}" for path in LEFT_OUT), "tests"]
    with tempfile.TemporaryFile() as said:
        other = subprocess.Popen([python, "-m", "pytest", "-q", "tests/server"], stdout=said, stderr=subprocess.STDOUT)
        try:
            first = subprocess.Popen(rest)
            try:
                codes = [
                    other.wait(),
                    subprocess.run([*measured, "tests/agent"], stdout=said, stderr=subprocess.STDOUT, check=False).returncode,
                ]
                codes.append(first.wait())
            finally:
                end(first)
        finally:
            end(other)
        said.seek(0)
        print(said.read().decode(errors="replace"), flush=True)
    return next((code for code in codes if code), 0)


def end(process: subprocess.Popen[bytes]) -> None:
    """Leave no process behind when this one is interrupted."""
    if process.poll() is None:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    assert Path("tests").is_dir(), "run it from the root of the repository"
    sys.exit(main(*sys.argv[1:3]))
