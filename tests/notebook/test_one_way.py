"""One submit of a cell, followed on its way: how often it is checked, what is asked for it, and that making
things sends nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.client import Client, Job
from mgpu_jupyter.client import spec as specs
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.mock import MockTransport, Play
from mgpu_jupyter.client.sweep_table import SweepTable
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.notebook.gauges import gauges_of
from mgpu_jupyter.notebook.magics import MgpuMagics
from mgpu_jupyter.notebook.panel.panel import Panel
from mgpu_jupyter.notebook.variables import CellVariables
from tests.notebook.conftest import Shell
from tests.notebook.panel_world import FakeMirror, FakeView

SUBMIT = ("POST", "jobs")


@pytest.fixture
def in_notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "a.ipynb"))


@pytest.mark.usefixtures("in_notebook")
@pytest.mark.parametrize(
    "cell",
    [
        "_ = get_ipython().run_line_magic('mgpu_srun', '--background --gpus 2 -- x')",
        "_ = get_ipython().run_cell_magic('mgpu_srun', '--background', 'print(1)')",
        "_ = get_ipython().run_cell_magic('mgpu_srun', '--background --array 1-3', 'print(1)')",
    ],
)
def test_a_cell_is_one_post_and_nothing_else(shell: Shell, cell: str) -> None:
    assert shell.run("%mgpu_srun --background -- first").success  # asks once for what earlier kernels left
    shell.mock.requests.clear()

    assert shell.run(cell).success

    assert [(request.method, request.path) for request in shell.mock.requests] == [SUBMIT]


@pytest.mark.usefixtures("in_notebook")
def test_one_that_is_watched_is_one_post_and_one_stream(shell: Shell) -> None:
    shell.plays(lambda spec: Play(lasts_s=1.0))
    assert shell.run("%mgpu_srun --background -- first").success
    shell.mock.requests.clear()

    assert shell.run("%%mgpu_srun --gpus 1\nprint(1)").success

    asked = Counter((request.method, request.path) for request in shell.mock.requests)
    assert asked == {SUBMIT: 1, ("GET", "jobs/MOCK0001/output"): 1}


def test_a_request_is_checked_once_where_it_is_made(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The master checks it once more: it believes nobody."""
    seen: list[JobSpec] = []

    def counted(spec: JobSpec) -> JobSpec:
        seen.append(spec)
        return check(spec)

    monkeypatch.setattr(specs, "check", counted)
    assert shell.run("%%mgpu_srun --background --gpus 1 --cpus 2\nprint(1)").success
    Client(transport=shell.mock).submit(["x"], gpus=1)

    assert [spec.gpus for spec in seen] == [1, 1]


MADE: dict[str, Callable[[Client, Shell], object]] = {
    "client": lambda client, _: client,
    "magics": lambda client, shell: MgpuMagics(shell.shell, lambda: client),
    "job": lambda client, _: Job(client.caller, JobId("MOCK0000")),
    "array": lambda client, _: JobArray(client.caller, "MOCK0000", (JobId("MOCK0000"),)),
    "table": lambda client, _: SweepTable([Job(client.caller, JobId("MOCK0000"))]),
    "variables": lambda client, _: CellVariables(
        client.caller, {"a": 1}, JobSpec(script="a", outputs=("a",), gpus=1)
    ),
    "gauges": lambda client, _: gauges_of(client),
    "panel": lambda client, _: Panel(client, FakeMirror(FakeView()), {}),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_only_made_sends_nothing(shell: Shell, name: str) -> None:
    mock = MockTransport()

    made = MADE[name](Client(transport=mock), shell)

    assert made is not None
    assert mock.requests == []
