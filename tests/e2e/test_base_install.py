"""The magics in a kernel whose environment has the base install and ipykernel, and no jupyter-server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.e2e.cluster import Cluster
from tests.e2e.notebook import Notebook

ROOT = Path(__file__).parents[2]
NOT_THERE = ("jupyter_server", "jupyterlab", "ipywidgets", "cryptography")


def needed(*names: str) -> dict[str, Distribution]:
    """Return what these packages need to run, by name; what is not installed here is for other systems or
    versions.
    """
    found: dict[str, Distribution] = {}
    wanted = list(names)
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        requirements = [Requirement(text) for text in found[name].requires or ()]
        wanted += [
            one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})
        ]
    return found


@pytest.fixture(scope="module")
def base_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own: `pip install .`, and what that and ipykernel need, which is here already."""
    venv = tmp_path_factory.mktemp("base") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=120)
    own_site = next((venv / "lib").glob("python*/site-packages"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--target",
        str(own_site),
        str(ROOT),
    ]
    subprocess.run(command, check=True, timeout=120)
    mine = [Requirement(text) for text in distribution("mgpu-jupyter").requires or ()]
    base = [one.name for one in mine if one.marker is None or one.marker.evaluate({"extra": ""})]
    for package in needed("ipykernel", *base).values():
        for top in {
            Path(str(file)).parts[0] for file in package.files or () if not str(file).startswith((".", "/"))
        }:
            source = Path(str(package.locate_file(top)))
            if source.exists() and not (own_site / top).exists():
                (own_site / top).symlink_to(source)
    return venv / "bin" / "python"


@pytest.fixture(scope="module")
def kernel(shared_cluster: Cluster, base_python: Path) -> Iterator[Notebook]:
    """A kernel of that environment, registered as people do it."""
    prefix = base_python.parents[2] / "registered"
    env = {name: value for name, value in shared_cluster.env.items() if not name.startswith("PYTHON")}
    command = [str(base_python), "-m", "ipykernel", "install", "--prefix", str(prefix), "--name", "base"]
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=120)
    env["JPY_SESSION_NAME"] = str(shared_cluster.directory / "base.ipynb")
    with Notebook(
        env, shared_cluster.directory, kernel="base", kernel_dirs=(prefix / "share/jupyter/kernels",)
    ) as notebook:
        yield notebook


def test_the_magics_work_with_the_base_install_alone(
    notebook: Notebook, base_python: Path, two_nodes: Cluster
) -> None:
    checks = f"""
import importlib.util, sys, mgpu_jupyter
print([name for name in {NOT_THERE!r} if importlib.util.find_spec(name) is not None])
print(sys.executable == {str(base_python)!r}, mgpu_jupyter.__file__.startswith({str(base_python.parents[1])!r}))
"""  # noqa: E501
    assert notebook.run(checks).text() == "[]\nTrue True\n"
    assert notebook.run("%load_ext mgpu_jupyter").error is None
    ran = notebook.run("%%mgpu_srun --gpus 2\nimport os\nprint(len(os.environ['MGPU_GPUS'].split(',')))")
    assert (ran.error, ran.text()) == (None, "2\n")
    notebook.run("a = {'x': bytes(1000)}")
    ran = notebook.run("%%mgpu_srun --in a --out b\nb = [len(a['x'])]")
    assert (ran.error, notebook.run("print(b)").text()) == (None, "[1000]\n")
    assert notebook.run("%mgpu_srun --gpus 1 -- echo line").text() == "line\n"
    assert notebook.run("%mgpu_srun --background --as job -- sleep 600").error is None
    job_id = notebook.run("print(job.id)").text().strip()
    assert job_id in notebook.run("%mgpu_queue").shown()
    assert job_id in notebook.run("%mgpu_attach").shown()
    assert (
        "8 simulated" in notebook.run("%mgpu_nodes").shown() or "GPU" in notebook.run("%mgpu_nodes").shown()
    )
    assert notebook.run(f"%mgpu_explain {job_id}").error is None
    assert job_id in notebook.run(f"%mgpu_trace {job_id}").text()
    assert job_id in notebook.complete("%mgpu_cancel ")["matches"]
    again = notebook.run("%mgpu_srun --background --as job -- sleep 600").error
    assert again is not None
    assert again.startswith("StillRuns: ")
    assert notebook.run(f"%mgpu_cancel {job_id}").error is None
    assert notebook.run("print((await job).state)").text() == "cancelled\n"
    table = notebook.run("%%mgpu_srun --sweep x=1,2\nprint(x * x)")
    assert table.error is None
    assert "2 of 2 completed" in table.shown()
    gathered = notebook.run(
        "jobs = [mgpu_jupyter.Client().submit(['true']) for _ in 'ab']\nprint(len(mgpu_jupyter.gather(jobs)))"
    )
    assert (gathered.error, gathered.text()) == (None, "2\n")
    logged = notebook.run("print(jobs[0].output(), end='')\n%mgpu_logs {jobs[0].id}")
    assert (logged.error, logged.text()) == (None, "")
    assert os.path.exists(base_python)
