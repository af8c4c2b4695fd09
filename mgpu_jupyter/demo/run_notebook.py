"""Runs a notebook on a demo cluster without a browser, and prints what each cell did.

The exit code is 0 only when every cell ran and no process was left behind.
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.transport import Timeouts
from mgpu_jupyter.demo.notebooks import notebook
from mgpu_jupyter.demo.program import SIMULATED, JupyterProgram, StopRequested, end_on_signals

START_LIMIT_S = 180.0
CELL_LIMIT_S = 180
LIMIT_S = 500
MASTER = "import sys; from mgpu_jupyter.cli.main import mgpu_master; sys.exit(mgpu_master())"
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def run_notebook(name: str) -> int:
    """Run the demo and return its exit code."""
    directory = Path(tempfile.mkdtemp(prefix="mgpu-demo-"))
    try:
        return _run(notebook(name, directory / "notebooks"), directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(path: Path, directory: Path) -> int:
    log = directory / "server.log"
    master = [sys.executable, "-c", MASTER, "--host", "127.0.0.1", "--port", str(_free_port())]
    server = JupyterProgram([*master, "--", f"--MgpuApp.simulate={SIMULATED}"], directory / "state", log)
    problem = ""
    end_on_signals()
    signal.alarm(LIMIT_S)
    try:
        with server:
            started = time.monotonic()
            problem = _start_problem(server)
            if not problem:
                took = time.monotonic() - started
                tell(
                    f"A Jupyter server with two agents of 4 simulated GPUs each is up ({took:.1f} s).",
                    "",
                    flush=True,
                )
                _run_cells(path, server.env)
    except CellExecutionError as error:
        problem = str(error)
    except StopRequested as error:
        problem = (
            f"Stopped by {error}."
            if error.number != signal.SIGALRM
            else f"The demo took longer than {LIMIT_S} s."
        )
    signal.alarm(0)
    if server.leftovers:
        problem = "\n".join(
            [problem, "These processes were left behind and had to be ended:", *server.leftovers]
        )
    if problem:
        tell(
            "",
            *ANSI.sub("", problem).split("\n"),
            "",
            f"--- {log.name}, last lines ---",
            *_tail(log),
            file=sys.stderr,
            flush=True,
        )
        return 1
    tell(
        "", f"{path.name} ran from top to bottom; the server has stopped and no process is left.", flush=True
    )
    return 0


def _start_problem(server: JupyterProgram) -> str:
    """Wait until both agents have joined; return why they have not, or an empty string."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            return "The server ended by itself."
        try:
            if _agents_online(server.env) == 2:
                return ""
        except MgpuError:
            pass  # not up yet
        time.sleep(0.1)
    return f"The two agents did not join within {START_LIMIT_S:.0f} s."


def _agents_online(env: Mapping[str, str]) -> int:
    with Client(env=env, timeouts=Timeouts(retry_s=0.0)) as client:
        return [str(node.state) for node in client.nodes()].count("online")


def _run_cells(path: Path, env: Mapping[str, str]) -> None:
    """Run every cell in order and print its output."""
    found = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(
        found, timeout=CELL_LIMIT_S, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    # Warnings of the kernel itself on stderr are not output of a cell.
    with client.setup_kernel(env=dict(env), stderr=subprocess.DEVNULL):
        for index, cell in enumerate(found.cells):
            if cell.cell_type != "code":
                continue
            started = time.monotonic()
            try:
                client.execute_cell(cell, index)
            finally:
                took = time.monotonic() - started
                tell(
                    f"[{took:5.1f} s] {cell.source.splitlines()[0]}",
                    *(f"    | {line}" for line in _output_lines(cell)),
                    flush=True,
                )


def _output_lines(cell: nbformat.NotebookNode) -> list[str]:
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


def _free_port() -> int:
    """Return a port that is free now; the server takes the next one if it is taken meanwhile."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _tail(path: Path, lines: int = 30) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-lines:] if path.exists() else []
