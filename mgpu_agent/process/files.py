"""Files of jobs on this node, there and back: folders that came with them, results that they leave. Only joins the two."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from mgpu_agent.core.events import LaunchFailed
from mgpu_agent.process.folders import GONE, Folders, Waiting
from mgpu_agent.process.results import Results
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import ToMaster


class Files:
    """What an agent's loop asks about files. `waker` ends a wait of that loop."""

    def __init__(self, directory: Path, send: Callable[[ToMaster], None], waker: socket.socket) -> None:
        self._waker = waker
        self.folders = Folders(directory, send, self._wake)
        self.results = Results(send, self._wake)

    def restart(self) -> None:
        """Ask and tell anew: there is a new connection."""
        self.folders.ask_again(all_of_them=True)
        self.results.tell_again()

    def turn(self, now: float, *, may_tell: bool) -> tuple[list[Waiting], list[LaunchFailed]]:
        """Tell what was found, and return the launches whose folder is there, and those for which there is none."""
        self.results.turn(may_tell=may_tell)
        ready: list[Waiting] = []
        failed: list[LaunchFailed] = []
        for command, problem in self.folders.take_done():
            if problem:
                fault = "request" if problem == GONE else "node"
                failed.append(LaunchFailed(at=now, key=command.spec.key, code="no-folder", message=problem, fault=fault))
            else:
                ready.append(command)
        return ready, failed

    def forget(self, keys: Iterable[AttemptKey]) -> None:
        """Know these attempts no more."""
        self.folders.drop(keys)
        self.results.forget(keys)

    def close(self) -> None:
        """End the threads."""
        self.folders.close()
        self.results.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")
