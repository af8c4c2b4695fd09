"""The magics in a real kernel, driven by nbclient: streams, a waiting line that goes away, a cell that
fails.
"""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

SET_UP = """
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, Play, Say
from mgpu_jupyter.notebook import magics

def play(spec):
    output = (Say(b"out\\n"), Say(b"err\\n", "stderr"))
    return Play(output=output, exit_code=int(spec.command[0]), reason="1 GPU is <b>busy</b>", lasts_s=3.2)

mock = MockTransport(play)
magics.MgpuMagics.__init__.__defaults__ = (lambda: Client(transport=mock),)
"""


def test_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "IPYTHONDIR", str(tmp_path))
    cells = [SET_UP, "%load_ext mgpu_jupyter", "%mgpu_srun -- 0", "%mgpu_queue --all", "%mgpu_srun -- 3"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    with pytest.raises(CellExecutionError, match="exit code 3"):
        NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=str(tmp_path))

    ran, queue, failed = (cell.outputs for cell in notebook.cells[2:])
    assert [(output.output_type, output.get("text") or output.data["text/plain"]) for output in ran] == [
        ("display_data", ""),
        ("stream", "out\n"),
        ("stream", "err\n"),
        ("display_data", "Done in 3.2 s on node-1, 1 simulated GPU, exit 0 · MOCK0000"),
    ]
    assert ran[0].data["text/html"] == ""
    assert "MOCK0000" in queue[0].data["text/html"]
    error = failed[-1]
    assert (error.ename, error.evalue) == (
        "JobFailed",
        "Failed after 3.2 s: on node-1, exit code 3 · MOCK0001",
    )
    assert error.traceback == ["JobFailed: exit code 3 on node-1"]
