"""Run the unit tests in parts side by side and print each when it is over: for two cores, since much of them waits for processes.

Usage: python tests/unit.py PYTHON COVERED. All but one measure coverage into files of their own; `make unit` puts them together.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

APART = ("tests/agent", "tests/server", "tests/client", "tests/cli", "tests/notebook", "tests/architecture")
LEFT_OUT = ("tests/e2e", "tests/browser", "tests/properties", "tests/storm", *APART)


def main(python: str, covered: str) -> int:
    """Return 0 when all parts passed."""
    plain = [python, "-m", "pytest", "-q", "-m", "not references"]
    measured = [python, "-m", "coverage", "run", "-p", f"--source={covered}", *plain[1:]]
    with contextlib.ExitStack() as stack:
        parts = []
        # The server's have a plugin that sets up Jupyter.
        for words in ([*plain, "tests/server"], [*measured, "tests/agent"], [*measured, *APART[2:]]):
            said = stack.enter_context(tempfile.TemporaryFile())
            parts.append((subprocess.Popen(words, stdout=said, stderr=subprocess.STDOUT), said))
            stack.callback(end, parts[-1][0])
        rest = subprocess.Popen([*measured, *(f"--ignore={path}" for path in LEFT_OUT), "tests"])
        stack.callback(end, rest)
        codes = [rest.wait()]
        for part, said in parts:
            codes.append(part.wait())
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
