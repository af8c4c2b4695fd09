"""A stage whose nodes can be taken away: whole machines that are killed and booted anew, and nodes behind a
network that can be cut.

Judges nothing and decides nothing about when.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from msgspec.structs import replace

from mgpu_agent.protocol.failpoints import VARIABLE
from mgpu_agent.protocol.join import read_join, write_join
from tests.chaos.proxy import Gate, Proxy
from tests.chaos.stage import Stage, now
from tests.e2e.cluster import BIN, ROOT, START_LIMIT_S
from tests.processes import wait_until

SOURCE = ROOT / "tests" / "chaos" / "boot.c"
LOST = "node-lost"
REAPER = "mgpu_agent.reaper"


def can_boot() -> bool:
    """Tell whether a new boot can be shown to a program."""
    return shutil.which("gcc") is not None


class Boots:
    """Boot ids that a test makes up."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True)
        self._library = directory / "boot.so"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE), "-ldl"], check=True
        )

    def new(self) -> dict[str, str]:
        """Return what a program needs to see a boot that never was before."""
        boot_id = str(uuid.uuid4())
        path = self._directory / boot_id
        path.write_text(boot_id + "\n")
        return {"LD_PRELOAD": str(self._library), "MGPU_TEST_BOOT": str(path)}


class NodeStage(Stage):
    """Leaving the `with` block ends all that it started, and the network with it."""

    def __init__(
        self,
        directory: Path,
        rng: random.Random,
        *,
        settings: dict[str, Any] | None = None,
        boots: bool = False,
    ) -> None:
        super().__init__(directory, settings=settings)
        self._boots = Boots(directory / "boots") if boots else None
        self._booted: dict[str, dict[str, str]] = {}
        self._stack = ExitStack()
        self.proxy = Proxy(self.link_port, rng)
        self.gates: dict[str, Gate] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(self.proxy)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._stack.close()

    # --- nodes of this machine -----------------------------------------------------------------------

    def fork_node(
        self, node_id: str, gpus: int, failpoints: str = "", *, restart: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start an agent, in the boot that its machine is in, and return at once."""
        command = [str(BIN / "mgpu_node"), "--node-id", node_id, "--fake-gpus", str(gpus)]
        command += [] if restart else ["--no-restart"]
        command += [] if node_id in self.gates else ["--master-port", str(self.port)]
        return self.start(
            node_id,
            command,
            env=self._booted.get(node_id, {}) | ({VARIABLE: failpoints} if failpoints else {}),
        )

    def boot(self, node_id: str) -> None:
        """Let all that is started on a node from now on see another boot id."""
        assert self._boots is not None
        self._booted[node_id] = self._boots.new()

    def kill_node(self, node_id: str) -> None:
        """Take away agent, keeper, its reaper and jobs at once, as by pulling the plug."""
        began = now()
        doomed = [psutil.Process(self.pid(node_id))] if self._programs[node_id].poll() is None else []
        _halt(doomed)  # first: an agent that goes on would start another keeper
        if (keeper := self.keeper_of(node_id)) is not None:
            reaper = keeper.parent()
            kept = [reaper, keeper] if reaper is not None and REAPER in reaper.cmdline() else [keeper]
            _halt(kept)
            # An agent that was started again is a child of the reaper.
            again = [one for one in kept[0].children() if one != keeper] if len(kept) > 1 else []
            _halt(again)
            doomed += [*kept, *again]
        # All jobs are below their keeper, which adopts what they leave; it is stopped, so there will be no
        # more of them.
        jobs = keeper.children(recursive=True) if keeper is not None and keeper.is_running() else []
        for number in (
            signal.SIGSTOP,
            signal.SIGKILL,
        ):  # stopped first, so that none of them sees another one end
            for process in (*jobs, *doomed):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
        # Written now: what began while keeper and jobs were looked for is lost as well.
        self.write("fault", kind=LOST, node=node_id, since=began)
        self.kill(node_id)
        psutil.wait_procs(
            [process for process in (*jobs, *doomed) if process.pid != self.pid(node_id)], timeout=10
        )

    def lose_agent(self, node_id: str, away_s: float) -> None:
        """Take away an agent for so long that what its keeper runs, or is about to start, is lost."""
        began = now()
        self.kill(node_id)
        time.sleep(away_s)
        self.write("fault", kind=LOST, node=node_id, since=began)

    def wait_online(self, nodes: Iterable[str], limit_s: float = START_LIMIT_S) -> None:
        """Wait until all of these are online."""
        wanted = set(nodes)

        def online() -> bool:
            states = self.node_states()
            return all(states.get(name) == "online" for name in wanted)

        wait_until(online, f"{', '.join(sorted(wanted))} are online", limit_s)

    # --- nodes behind a network ----------------------------------------------------------------------

    def join_nodes(self, count: int, gpus: int) -> list[str]:
        """Start agents that reach the master through a gate each, and wait until all are online."""
        names = [f"n{number}" for number in range(count)]
        for name in names:
            gate = self.gates[name] = self.proxy.gate()
            join = read_join(self.client.admin.join_token(node_id=name, listen=["127.0.0.1"]).line)
            line = write_join(replace(join, addresses=(f"tcp://127.0.0.1:{gate.port}",)))
            self.start(
                name,
                [
                    str(BIN / "mgpu_node"),
                    "--join",
                    line,
                    "--node-id",
                    name,
                    "--fake-gpus",
                    str(gpus),
                    "--no-restart",
                ],
            )
        self.wait_online(names, START_LIMIT_S + count)
        return names

    def cut(self, node_id: str, ways: tuple[str, ...]) -> None:
        """Let nothing through these ways between master and node."""
        self.proxy.cut(self.gates[node_id], ways)

    def heal(self, node_id: str, *, broken: bool = False) -> None:
        """Let master and node speak again."""
        self.proxy.heal(self.gates[node_id], broken=broken)

    # --- looking -------------------------------------------------------------------------------------

    def running(self) -> dict[str, tuple[int, tuple[tuple[str, int], ...]]]:
        """Return attempt, and node and pid of each rank, of every job that runs."""
        found: dict[str, tuple[int, tuple[tuple[str, int], ...]]] = {}
        for job in self.client.jobs(state="running", limit=1000):
            info = job.info
            ranks = tuple(
                (str(placement.node), placement.pid) for placement in info.placements if placement.pid
            )
            if len(ranks) == len(info.placements):
                found[job.id] = (info.attempt, ranks)
        return found

    def cancel_all(self, limit_s: float) -> None:
        """End every job and wait for that."""
        for job in self.client.jobs(state="active", limit=1000):
            job.cancel()
        self.drain(limit_s)


def is_alive(pid: int) -> bool:
    """Tell whether a process lives."""
    with contextlib.suppress(OSError, psutil.Error):
        return os.path.exists(f"/proc/{pid}") and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _halt(processes: list[psutil.Process]) -> None:
    """Stop processes, and wait until they stand still: what is forked on the way is there by then."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    wait_until(lambda: all(map(_stands_still, processes)), "they stand still", every_s=0.005)


def _stands_still(process: psutil.Process) -> bool:
    """Tell whether a process that was told to stop has, or is gone."""
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True
