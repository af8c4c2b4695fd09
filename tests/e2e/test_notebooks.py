"""The other notebooks of the repository run from top to bottom, as they are in the repository: without
outputs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import BIN

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
OTHERS = sorted(
    path.stem for path in NOTEBOOKS.glob("*.ipynb") if path.stem != "quickstart"
)  # `make demo` runs that one


@pytest.mark.parametrize("name", OTHERS)
def test_notebook_runs(name: str) -> None:
    done = subprocess.run(
        [str(BIN / "mgpu"), "demo", name, "--headless"],
        cwd=NOTEBOOKS.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_demo_of_an_installed_wheel(tmp_path: Path) -> None:
    """pip installs the package as it is built; its dependencies are those of this environment. Nothing of the
    clone is found.
    """
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = next((venv / "lib").glob("python*/site-packages"))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(venv / "bin" / "python"),
        "install",
        "--quiet",
        "--no-deps",
        str(NOTEBOOKS.parent),
    ]
    subprocess.run(pip, check=True)
    (site / "others.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "MGPU_"))
    }
    demo = [str(venv / "bin" / "mgpu"), "demo", "--headless"]
    done = subprocess.run(demo, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    shipped = sorted(path.stem for path in (site / "mgpu_jupyter/demo/notebooks").iterdir())
    assert shipped == sorted(["quickstart", *OTHERS])


@pytest.mark.parametrize("name", ["quickstart", *OTHERS])
def test_notebook_is_clean(name: str) -> None:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]

    assert [cell["source"] for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
