"""What `mgpu doctor` finds on this machine: files that a master left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from msgspec.structs import replace

from mgpu_agent.protocol.places import find_runtime_file, write_runtime_file
from mgpu_jupyter.client import Client, Timeouts
from mgpu_jupyter.client.doctor import SetupFinding, examine
from mgpu_jupyter.client.mock import MockTransport
from tests.client.conftest import publish


def of_lock(state: Path) -> list[SetupFinding]:
    """Return what is found about masters of this directory."""
    transport = MockTransport()
    found = examine(
        {"MGPU_STATE_DIR": str(state)},
        lambda: Client(transport=transport, timeouts=Timeouts(retry_s=0)),
    )
    return [finding for finding in found if finding.check == "lock"]


def test_the_file_of_a_master_that_lives_is_well_and_that_of_one_that_is_gone_is_not(state_dir: Path) -> None:
    publish(state_dir, "http://127.0.0.1:1/", 1, "t")
    assert of_lock(state_dir) == []

    lives = find_runtime_file(state_dir)
    assert lives is not None
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    left = replace(lives, pid=int(gone.stdout), port=2)
    write_runtime_file(state_dir, left)
    (path,) = (state_dir / "run").glob("master-2*.json")
    assert of_lock(state_dir) == [
        SetupFinding(
            check="lock",
            level="warning",
            text=f"{path.name} is left of a master that is gone (process {left.pid} on {left.host}).",
            fix=f"start the master again, or run  rm {path}",
        )
    ]


def test_a_file_that_cannot_be_read_is_told(state_dir: Path) -> None:
    publish(state_dir, "http://127.0.0.1:1/", 1, "t")
    (path,) = (state_dir / "run").glob("master-*.json")
    path.write_bytes(b"{")
    assert of_lock(state_dir) == [
        SetupFinding(check="lock", level="warning", text=f"{path} cannot be read.", fix=f"run  rm {path}")
    ]
