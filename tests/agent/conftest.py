from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.agent.master import SmallMaster, wait_until


class Node:
    """One agent process after the other on one state directory."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.directory = state / "nodes" / "n1"
        self.log = state / "agent.err"
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self._running[-1]

    def start(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        fake_gpus: int | None = 2,
        restart: bool = False,
    ) -> subprocess.Popen[bytes]:
        gpus = () if fake_gpus is None else ("--fake-gpus", str(fake_gpus))
        words = [
            sys.executable,
            "-m",
            "mgpu_agent.cli",
            "--node-id",
            "n1",
            "--state-dir",
            str(self.state),
            "--verbose",
        ]
        if not restart:
            words.append("--no-restart")
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*words, *gpus, *arguments],
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})},
            )
        self._running.append(process)
        return process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(60)

    def keepers(self) -> list[psutil.Process]:
        """Return the living keepers of this node."""
        return _living("mgpu_agent.keeper", str(self.directory))

    def started_again(self) -> list[psutil.Process]:
        """Return the living agents of this node that nobody started by hand."""
        return _living("mgpu_agent.cli", str(self.state), "--again")

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.terminate()
            process.wait(60)
        for agent in self.started_again():
            agent.terminate()
        wait_until(lambda: not self.started_again())
        for keeper in self.keepers():
            keeper.send_signal(signal.SIGTERM)
        wait_until(lambda: not self.keepers())


def _living(*wanted: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if set(wanted) <= set(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def master(state: Path) -> Iterator[SmallMaster]:
    master = SmallMaster(state)
    yield master
    master.close()


@pytest.fixture
def node(state: Path) -> Iterator[Node]:
    node = Node(state)
    yield node
    node.close()


@pytest.fixture
def joined(master: SmallMaster, node: Node) -> SmallMaster:
    """A master to which the node has said Hello."""
    node.start()
    master.wait(lambda: master.hellos)
    return master
