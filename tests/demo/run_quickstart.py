"""`make demo`: runs the quickstart notebook on a demo cluster without a browser and says what each cell did.

Exits 0 only when every cell ran and no process was left behind. Another notebook may be named in its place.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from mgpu_jupyter import Client
from mgpu_jupyter.client.timeouts import Timeouts
from tests.demo.server import ROOT, SIMULATED, JupyterProgram, StopRequested, end_on_signals
from tests.processes import WaitedTooLong, free_port, wait_until

NOTEBOOKS = ROOT / "notebooks"
START_LIMIT_S = 180.0
CELL_LIMIT_S = 180
LIMIT_S = 500
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def main(name: str = "quickstart") -> int:
    """Run the demo and return its exit code."""
    notebook = NOTEBOOKS / f"{name}.ipynb"
    if not notebook.exists():
        print(f"There is no {notebook.name} in {NOTEBOOKS.name}.", file=sys.stderr)
        return 2
    directory = Path(tempfile.mkdtemp(prefix="mgpu-demo-"))
    state, log = directory / "state", directory / "server.log"
    port = free_port()
    master = [str(Path(sys.executable).with_name("mgpu_master")), "--host", "127.0.0.1", "--port", str(port)]
    end_on_signals()
    signal.alarm(LIMIT_S)
    problem = ""
    server = JupyterProgram([*master, "--", f"--MgpuApp.simulate={SIMULATED}"], state, log)
    try:
        with server:
            started = time.monotonic()
            wait_until(lambda: server.poll() is not None or agents_online(server.env) == 2, "two agents", START_LIMIT_S)
            if server.poll() is None:
                print(
                    f"A Jupyter server with two agents of 4 simulated GPUs each is up ({time.monotonic() - started:.1f} s).\n", flush=True
                )
                run_notebook(notebook, server.env)
            else:
                problem = "The server ended by itself."
    except (CellExecutionError, WaitedTooLong) as error:
        problem = str(error)
    except StopRequested as error:
        problem = f"Stopped by {error}." if error.number != signal.SIGALRM else f"The demo took longer than {LIMIT_S} s."
    signal.alarm(0)
    if server.leftovers:
        problem += "\nThese processes were left behind and had to be ended:\n" + "\n".join(server.leftovers)
    if problem:
        print(f"\n{problem}\n\n--- {log.name}, last lines ---\n{tail(log)}", file=sys.stderr, flush=True)
    else:
        print(f"\n{notebook.name} ran from top to bottom; the server has stopped and no process is left.", flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    return 1 if problem else 0


def agents_online(env: Mapping[str, str]) -> int:
    """Return how many agents have joined."""
    with Client(env=env, timeouts=Timeouts(retry_s=0.0)) as client:
        return [str(node.state) for node in client.nodes()].count("online")


def run_notebook(path: Path, env: Mapping[str, str]) -> None:
    """Run every cell in order and print what it did."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=CELL_LIMIT_S, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOKS)}})
    # What the kernel itself warns about on stderr is no output of a cell.
    with client.setup_kernel(env=dict(env), stderr=subprocess.DEVNULL):
        for index, cell in enumerate(notebook.cells):
            if cell.cell_type != "code":
                continue
            started = time.monotonic()
            try:
                client.execute_cell(cell, index)
            finally:
                print(f"[{time.monotonic() - started:5.1f} s] {cell.source.splitlines()[0]}")
                print("".join(f"    | {line}\n" for line in output_lines(cell)), end="", flush=True)


def output_lines(cell: nbformat.NotebookNode) -> list[str]:
    """Return what a reader would see below the cell, as plain text."""
    texts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            texts.append(output.text)
        elif output.output_type == "error":
            texts.append("\n".join(output.traceback))
        else:
            texts.append(output.data.get("text/plain", "") + "\n")
    lines = ANSI.sub("", "".join(texts)).split("\n")
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines if line.strip()]


def tail(path: Path, lines: int = 30) -> str:
    """Return the last lines of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
