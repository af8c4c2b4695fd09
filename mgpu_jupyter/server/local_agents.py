"""Starts the agents of this machine, with its own GPUs or simulated ones. Jobs outlive them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.places import host_name

MAX_SIMULATED_NODES = 64
MAX_SIMULATED_GPUS = 64
_SIMULATE = re.compile(r"^(\d{1,3})x(\d{1,3})$")


class LocalAgent(msgspec.Struct, frozen=True):
    """One agent to start: its node id, and how many GPUs it simulates (None: the real ones)."""

    node_id: str
    fake_gpus: int | None = None


def plan(*, simulate: str) -> tuple[LocalAgent, ...]:
    """Return which agents to start: `2x4` means two with four simulated GPUs each; empty, this machine."""
    if not simulate:
        node_id = re.sub(r"[^A-Za-z0-9._-]", "-", host_name()).lstrip("._-")[:63] or "local"
        return (LocalAgent(node_id),)
    match = _SIMULATE.match(simulate)
    nodes, gpus = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (1 <= nodes <= MAX_SIMULATED_NODES and 0 <= gpus <= MAX_SIMULATED_GPUS):
        raise InvalidRequest(
            "bad-simulate", f"MgpuApp.simulate must look like 2x4 (nodes x GPUs), not {simulate!r}."
        )
    return tuple(LocalAgent(f"node-{number}", gpus) for number in range(1, nodes + 1))


def start(agents: tuple[LocalAgent, ...], state: Path, http_port: int) -> list[subprocess.Popen[bytes]]:
    """Start those agents in sessions of their own; where one runs already it stays, and the new one ends."""
    return [_start(agent, state, http_port) for agent in agents]


def end(processes: list[subprocess.Popen[bytes]], timeout_s: float) -> None:
    """End the agents with the server, most of which have left already; jobs go on under their keepers."""
    for process in processes:
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.terminate()
    for process in processes:
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(agent: LocalAgent, state: Path, http_port: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "mgpu_agent.cli",
        "--embedded",
        "--node-id",
        agent.node_id,
        "--master-port",
        str(http_port),
    ]
    command += ["--state-dir", str(state)]
    if agent.fake_gpus is not None:
        command += ["--fake-gpus", str(agent.fake_gpus)]
    hidden = ("MGPU_TOKEN", "MGPU_URL", "MGPU_CERTIFICATE_PIN")
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in hidden and not name.startswith(("JUPYTER", "JPY_"))
    }
    return subprocess.Popen(
        command,
        env=env,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
