"""Files of jobs on this node in both directions: folders and variables that come with them, what can only be
read as their user, results that they leave. Only joins the parts that do the work.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

from mgpu_agent.core.events import LaunchFailed
from mgpu_agent.process import sight
from mgpu_agent.process.pieces import TOO_MUCH, FolderFetcher, Problem, VariablesFetcher, Waiting
from mgpu_agent.process.preparation import LaunchPlace, Preparation, Unprepared
from mgpu_agent.process.results import Results
from mgpu_agent.protocol.file_messages import Piece
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.messages import ToMaster
from mgpu_agent.protocol.model import CellPython, CellWish, LaunchSpec, TaskStatus
from mgpu_agent.run_as.user_files import Ask, UserFiles

Who = tuple[int, NodeId, str, str, Sequence[TaskStatus]]
"""The arguments of `sight.answer`."""


class JobFiles:
    """The agent loop's access to files. `waker` ends a wait of that loop."""

    def __init__(
        self,
        directory: Path,
        send: Callable[[ToMaster], None],
        waker: socket.socket,
        places: Preparation,
        users: UserFiles | None = None,
    ) -> None:
        self._waker = waker
        self._send = send
        self._places = places
        self._users = users or UserFiles()
        self._settling: set[AttemptKey] = set()
        self._settled: SimpleQueue[tuple[Waiting, LaunchPlace | Unprepared]] = SimpleQueue()
        self._told: SimpleQueue[tuple[Who, CellPython]] = SimpleQueue()
        self.folders = FolderFetcher(directory, send, self._wake, self._users)
        self.variables = VariablesFetcher(send, self._wake, self._users)
        self.results = Results(send, self._wake, self._users)

    def has(self, spec: LaunchSpec) -> bool:
        """Tell whether a launch has all its files."""
        return self.folders.has(spec) and self.variables.has(spec) and self._places.is_settled(spec)

    def want(self, command: Waiting) -> None:
        """Begin to fetch or find out what a launch waits for; `turn` returns it when all is there."""
        spec = command.spec
        if not self.folders.has(spec):
            self.folders.want(command, self._places.folder_for)
        elif not self.variables.has(spec):
            self.variables.want(command, self._places.values_for)
        elif spec.key not in self._settling:
            self._settling.add(spec.key)
            if not self._users.submit(spec.user, lambda ask: self._settle(ask, command)):
                self._settled.put((command, Unprepared("too-much", TOO_MUCH, "job")))

    def tell_who(self, who: Who, cell: CellWish | None) -> None:
        """Send the master this node's identity, with the Python that a cell would get here once it is
        known.
        """
        if cell is None:
            self._send(sight.answer(*who))
        elif not self._users.submit(cell.user, lambda ask: self._find_python(ask, who, cell)):
            self._send(sight.answer(*who, cell=CellPython()))

    def take(self, piece: Piece) -> None:
        """Take a piece of a folder or of variables."""
        self.folders.take(piece)
        self.variables.take(piece)

    def restart(self) -> None:
        """Ask and tell everything again, because there is a new connection."""
        self.ask_again(all_of_them=True)
        self.results.tell_again()

    def ask_again(self, *, all_of_them: bool) -> None:
        """Ask for pieces that did not come."""
        self.folders.ask_again(all_of_them=all_of_them)
        self.variables.ask_again(all_of_them=all_of_them)

    def turn(self, now: float, *, may_tell: bool) -> tuple[list[Waiting], list[LaunchFailed]]:
        """Report findings; return the launches that need wait no longer, and those that failed."""
        self.results.turn(may_tell=may_tell)
        with contextlib.suppress(Empty):
            while True:
                who, python = self._told.get_nowait()
                self._send(sight.answer(*who, cell=python))
        ready: list[Waiting] = []
        failed: list[LaunchFailed] = []
        for code, done in (
            ("no-folder", self.folders.take_done()),
            ("no-inputs", self.variables.take_done()),
        ):
            for command, problem in done:
                if problem is not None:
                    failed.append(self._failed(now, command, _unprepared(code, problem)))
                elif self.has(command.spec):
                    ready.append(command)
                else:
                    self.want(command)
        with contextlib.suppress(Empty):
            while True:
                command, place = self._settled.get_nowait()
                if command.spec.key not in self._settling:
                    continue
                self._settling.discard(command.spec.key)
                if isinstance(place, Unprepared):
                    failed.append(self._failed(now, command, place))
                else:
                    self._places.keep(command.spec.key, place)
                    ready.append(command)
        return ready, failed

    def forget(self, keys: Iterable[AttemptKey]) -> None:
        """Forget these attempts."""
        self.folders.drop(keys)
        self.variables.drop(keys)
        self.results.forget(keys)
        self._places.forget(keys)
        self._settling.difference_update(keys)

    def close(self) -> None:
        """End the threads and helpers."""
        self._users.close()
        self.folders.close()

    def discard(self, key: AttemptKey) -> None:
        """Forget a launch that failed, and delete what was made for it."""
        self.forget((key,))
        self._places.discard(key)

    def _failed(self, now: float, command: Waiting, why: Unprepared) -> LaunchFailed:
        self.discard(command.spec.key)
        return why.as_event(now, command.spec.key)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    # --- on the thread of a user ---------------------------------------------------------------------

    def _settle(self, ask: Ask, command: Waiting) -> None:
        self._settled.put((command, self._places.settle(command.spec, ask)))
        self._wake()

    def _find_python(self, ask: Ask, who: Who, cell: CellWish) -> None:
        self._told.put((who, self._places.python_for(cell, ask)))
        self._wake()


def _unprepared(code: str, problem: Problem) -> Unprepared:
    return Unprepared(code, problem.message, problem.fault)
