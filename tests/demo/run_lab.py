"""`make lab`: JupyterLab with a master, local agents and the quickstart notebook; arguments go to `jupyter lab`.

On a machine without NVIDIA GPUs it is a demo cluster, which ends with it. With real GPUs, jobs that still run go on.
"""

from __future__ import annotations

import sys

from tests.demo.server import ROOT, SIMULATED, JupyterProgram, StopRequested, end_on_signals, has_nvidia_gpus


def main(arguments: list[str]) -> int:
    """Serve until stopped."""
    simulated = not has_nvidia_gpus()
    state = ROOT / ".mgpu" / "lab"
    state.mkdir(parents=True, mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", "jupyterlab", str(ROOT / "notebooks" / "quickstart.ipynb")]
    if simulated:
        command.append(f"--MgpuApp.simulate={SIMULATED}")
        print(f"No NVIDIA GPU here: starting a demo cluster of {SIMULATED} simulated GPUs.", flush=True)
    code = 0
    end_on_signals()
    try:
        with JupyterProgram([*command, *arguments], state, end_jobs=simulated) as lab:
            code = lab.wait()
    except StopRequested:
        pass
    if lab.leftovers and simulated:
        print(f"The demo cluster was ended with {len(lab.leftovers)} processes still running.", flush=True)
    elif lab.leftovers:
        print("These go on by themselves, and `make lab` finds them again:", *lab.leftovers, sep="\n  ", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
