"""The program that runs Python cells: to the cell all is as if it were a script."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mgpu_agent.process.cells import RUNNER

CHILDREN = """
import multiprocessing, pickle, sys

def square(x):
    return x * x

if __name__ == "__main__":
    assert pickle.loads(pickle.dumps(square)) is square
    for way in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(way).Pool(2) as pool:
            print(way, pool.map(square, [1, 2]))
"""
ABOUT = """
import inspect, sys
def f(): pass
print(sys.argv, __name__, __file__, __spec__, sys.path[0], inspect.getsource(f).strip(), sys.modules["__main__"].f is f)
print(sorted(name for name in globals() if not name.startswith("__")))
"""  # noqa: E501


def run(cell: Path, source: str, *, by: tuple[str, ...] = (RUNNER,)) -> subprocess.CompletedProcess[str]:
    cell.write_text(source)
    return subprocess.run(
        [sys.executable, "-u", *by, str(cell)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cell.parent,
    )


@pytest.mark.parametrize(
    "source",
    [
        ABOUT,
        "x = (",
        "import sys; sys.exit(7)",
        "import sys; sys.exit('words')",
        "def f():\n    1 / 0\nf()",
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError(1) from error",
        "try:\n    1 / 0\nfinally:\n    raise KeyError(1)",
        "raise ExceptionGroup('several', [ValueError(1)])",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import atexit; atexit.register(print, 'late'); 1 / 0",
        "import threading; threading.Thread(target=lambda: 1 / 0, name='t').start()",
        "import sys\nsys.excepthook = lambda *told: print('mine', told[0], told[2].tb_lineno)\n1 / 0",
        "import warnings; warnings.warn('well')",
        "x: int = 3\nprint(__annotations__)\nfrom __future__ import division",
        "# -*- coding: latin-1 -*-\nprint('a')",
    ],
)
def test_a_cell_does_what_a_script_does(tmp_path: Path, source: str) -> None:
    """Output, errors to the letter, and exit codes."""
    here, there = (run(tmp_path / "cell.py", source, by=by) for by in ((RUNNER,), ()))

    assert (here.stdout, here.stderr, here.returncode) == (there.stdout, there.stderr, there.returncode)


def test_children_find_what_the_cell_defines(tmp_path: Path) -> None:
    done = run(tmp_path / "cell.py", CHILDREN)

    assert (done.stdout, done.stderr) == ("fork [1, 4]\nspawn [1, 4]\nforkserver [1, 4]\n", "")


def test_an_interrupted_cell_dies_of_the_interrupt(tmp_path: Path) -> None:
    done = run(
        tmp_path / "cell.py",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(30)",
    )

    assert done.returncode == -signal.SIGINT
    assert "runner.py" not in done.stderr


def test_a_cell_of_a_sweep_has_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("lr", "0.1"), ("seed", "3"), ("kind", "adam"), ("fast", "True")):
        monkeypatch.setenv(f"SWEEP_{name}", text)
    done = run(tmp_path / "cell.py", "print(repr((lr, seed, kind, fast)))")
    assert (done.stdout, done.stderr) == ("(0.1, 3, 'adam', True)\n", "")
