"""The other notebooks of the repository run from top to bottom, as they are in the repository: without outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
OTHERS = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb") if path.stem != "quickstart")  # `make demo` runs that one


@pytest.mark.parametrize("name", OTHERS)
def test_notebook_runs(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo.run_quickstart", name], cwd=NOTEBOOKS.parent, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize("name", ["quickstart", *OTHERS])
def test_notebook_is_clean(name: str) -> None:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]

    assert [cell["source"] for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
