"""What brings a master to places that plain jobs never lead it to: gangs, results, folders, variables, input,
warnings, pings, purges.

Each is asked for once, on a thread of its own: the master is to die on the way, so what comes back does not
matter. Loose jobs write down no life, and nobody knows whether they were taken; what was taken must still
come to an end.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import threading
import time
from collections.abc import Callable
from http.client import HTTPException

from mgpu_agent.protocol.errors import MgpuError
from tests.chaos.stage import LOOSE, Stage
from tests.e2e.cluster import BIN

INPUT_LIMIT_S = 60.0
PURGED = "gone"
"""Whose jobs may be forgotten."""
PURGED_AT_ONCE = 10


class Provoker:
    """Knows a way to each of these places. `close` waits for all that is still under way."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._numbers = itertools.count(1)
        self._threads: list[threading.Thread] = []
        self._folder = stage.directory / "folder"
        self._folder.mkdir()
        self._ways: dict[str, Callable[[int], None]] = {
            "master.prepare": self._gang,
            "master.start": self._gang,
            "master.meet": self._distributed,
            "master.collect": self._results,
            "results.index": self._results,
            "master.piece": self._sync,
            "pieces.write": self._sync,
            "pieces.take": self._variables,
            "master.input": self._type,
            "master.warn": self._warn,
            "master.ping": lambda _: self._stage.client.admin.ping_node("n0") and None,
            "server.purge": self._purge,
        }

    @property
    def places(self) -> frozenset[str]:
        """Where it can lead a master."""
        return frozenset(self._ways)

    def lead_to(self, failpoint: str) -> None:
        """Ask for what leads there, if there is a way."""
        if (way := self._ways.get(failpoint)) is not None:
            thread = threading.Thread(target=self._go, args=(way, next(self._numbers)))
            thread.start()
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def close(self) -> None:
        """Wait for all that was asked for."""
        for thread in self._threads:
            thread.join()

    def _go(self, way: Callable[[int], None], number: int) -> None:
        with contextlib.suppress(MgpuError, OSError, HTTPException, subprocess.SubprocessError):
            way(number)

    def _submit(self, command: list[str] | None = None, **wishes: object) -> None:
        self._stage.client.submit(command, name=LOOSE, gpus=0, **wishes)

    def _gang(self, number: int) -> None:
        self._stage.submit(f"gang-{number}", 0.3, nodes=2, gpus_per_node=1)

    def _distributed(self, number: int) -> None:
        self._stage.submit(f"meet-{number}", 0.3, nodes=2, gpus_per_node=1, distributed=True)

    def _results(self, _: int) -> None:
        self._submit(["sh", "-c", "echo done > out.txt"], chdir="/nowhere", results="*.txt")

    def _sync(self, number: int) -> None:
        (self._folder / "code.py").write_text(f"print({number})\n")  # a piece that nobody has yet
        self._submit(["python3", "code.py"], sync=str(self._folder))

    def _variables(self, number: int) -> None:
        self._submit(script="b = a + 1", inputs={"a": number}, outputs=["b"])

    def _type(self, _: int) -> None:
        command = [str(BIN / "mgpu_srun"), "--gpus", "0", "--name", LOOSE, "timeout", "20", "head", "-n", "1"]
        subprocess.run(
            command,
            input=b"hello\n",
            env=self._stage.env,
            capture_output=True,
            timeout=INPUT_LIMIT_S,
            check=False,
        )

    def _warn(self, _: int) -> None:
        self._submit(["sh", "-c", "trap '' USR1; sleep 1.5"], time_limit=60, signal="USR1@59")

    def _purge(self, _: int) -> None:
        client = self._stage.client
        oldest = min(
            job.info.ended_at or 0.0 for job in client.jobs(state="completed", user=PURGED, limit=1000)
        )
        client.admin.purge(time.time() - oldest - PURGED_AT_ONCE, user=PURGED)
