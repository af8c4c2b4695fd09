"""Files of jobs on this node, there and back: folders and variables that came with them, results that they leave. Only joins these."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from mgpu_agent.core.events import LaunchFailed
from mgpu_agent.process import inputs
from mgpu_agent.process.folders import GONE, Folders
from mgpu_agent.process.inputs import Inputs
from mgpu_agent.process.preparation import Preparation
from mgpu_agent.process.results import Results
from mgpu_agent.process.wishes import Waiting
from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import Piece, ToMaster
from mgpu_agent.protocol.model import LaunchSpec


class Files:
    """What an agent's loop asks about files. `waker` ends a wait of that loop."""

    def __init__(self, directory: Path, send: Callable[[ToMaster], None], waker: socket.socket, places: Preparation) -> None:
        self._waker = waker
        self._places = places
        self._failed: list[tuple[Waiting, str]] = []
        self.folders = Folders(directory, send, self._wake)
        self.inputs = Inputs(send, self._wake)
        self.results = Results(send, self._wake)

    def has(self, spec: LaunchSpec) -> bool:
        """Tell whether a launch need not wait for files."""
        return self.folders.has(spec) and self.inputs.has(spec)

    def want(self, command: Waiting) -> None:
        """Begin to fetch what a launch waits for; `turn` brings it back when all is there."""
        if not self.folders.has(command.spec):
            self.folders.want(command, *self._places.place_of(command.spec))
            return
        try:
            place, account = self._places.values_for(command.spec)
        except (OSError, MgpuError) as error:
            self._failed.append((command, f"The job's variables have no place here: {error}."))
        else:
            self.inputs.want(command, place, account)

    def take(self, piece: Piece) -> None:
        """Take in a piece of whatever is waited for."""
        self.folders.take(piece)
        self.inputs.take(piece)

    def restart(self) -> None:
        """Ask and tell anew: there is a new connection."""
        self.ask_again(all_of_them=True)
        self.results.tell_again()

    def ask_again(self, *, all_of_them: bool) -> None:
        """Ask for pieces that did not come."""
        self.folders.ask_again(all_of_them=all_of_them)
        self.inputs.ask_again(all_of_them=all_of_them)

    def turn(self, now: float, *, may_tell: bool) -> tuple[list[Waiting], list[LaunchFailed]]:
        """Tell what was found, and return the launches whose folder is there, and those for which there is none."""
        self.results.turn(may_tell=may_tell)
        ready: list[Waiting] = []
        failed: list[LaunchFailed] = []
        early, self._failed = self._failed, []
        for command, problem in (*early, *self.folders.take_done(), *self.inputs.take_done()):
            if problem:
                fault = "request" if problem in (GONE, inputs.GONE) else "node"
                code = "no-inputs" if self.folders.has(command.spec) else "no-folder"
                failed.append(LaunchFailed(at=now, key=command.spec.key, code=code, message=problem, fault=fault))
            elif self.has(command.spec):
                ready.append(command)
            else:
                self.want(command)
        return ready, failed

    def forget(self, keys: Iterable[AttemptKey]) -> None:
        """Know these attempts no more."""
        self.folders.drop(keys)
        self.inputs.drop(keys)
        self.results.forget(keys)

    def close(self) -> None:
        """End the threads."""
        self.folders.close()
        self.inputs.close()
        self.results.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")
