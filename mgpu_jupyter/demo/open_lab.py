"""JupyterLab with a master, local agents and a notebook that shows them, until it is stopped.

On a machine without NVIDIA GPUs it is a demo cluster, which ends with it. With real GPUs, running jobs go on.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from mgpu_agent.protocol.errors import Conflict
from mgpu_agent.protocol.places import is_on_network, make_private_dir
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.demo.notebooks import notebook
from mgpu_jupyter.demo.program import (
    AGENTS_LIMIT_S,
    SIMULATED,
    JupyterProgram,
    StopRequested,
    describe,
    end_on_signals,
    processes_of,
)

GRACE_S = 5.0


def open_lab(name: str, state: Path | None, arguments: Sequence[str]) -> int:
    """Serve until stopped; return the exit code."""
    state = make_private_dir((default_state() if state is None else state).absolute())
    simulated = not has_nvidia_gpus()
    command = [sys.executable, "-m", "jupyterlab", str(notebook(name, state / "notebooks"))]
    if simulated:
        _refuse_company(state)
        command.append(f"--MgpuApp.simulate={SIMULATED}")
        tell(f"No NVIDIA GPU here: starting a demo cluster of {SIMULATED} simulated GPUs.", flush=True)
    code = 0
    end_on_signals()
    # Jobs of a simulated cluster are ended: after Ctrl-C nobody should wait until they end by themselves.
    lab = JupyterProgram(
        [*command, *arguments], state, end_jobs=simulated, grace_s=GRACE_S if simulated else AGENTS_LIMIT_S
    )
    try:
        with lab:
            code = lab.wait()
    except StopRequested:
        pass
    if lab.leftovers and simulated:
        tell(f"The demo cluster was ended with {len(lab.leftovers)} processes still running.", flush=True)
    elif lab.leftovers:
        tell(
            "These go on by themselves, and the next `mgpu demo` finds them again:",
            *(f"  {line}" for line in lab.leftovers),
            flush=True,
        )
    return code


def default_state() -> Path:
    """Return where the demo keeps its queue: never where a real master does, and on a local disk."""
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "mgpu-demo"
    return Path(f"/var/tmp/mgpu-demo-{os.getuid()}") if is_on_network(home) else home  # noqa: S108 - private by mode


def has_nvidia_gpus() -> bool:
    """Tell whether this machine has an NVIDIA driver."""
    return Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi") is not None


def _refuse_company(state: Path) -> None:
    """Refuse a directory in use, because everything in it is ended with the demo."""
    if others := processes_of(state):
        text = (
            f"{state} is in use ({describe(others[:1])}): stop what runs there, or name another "
            f"directory with --state-dir."
        )
        raise Conflict("in-use", text)
