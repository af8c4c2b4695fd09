"""What the keeper's decisions need of the machine: the host, the live processes, and what processes read. Says nothing of how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mgpu_agent.keeper.live_tasks import LiveTask
from mgpu_agent.keeper.messages import StartTasks
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import Input, InputAck, Resize, Warn
from mgpu_agent.run_as.account import Account
from mgpu_agent.run_as.cgroups import NO_SHARE, Share
from mgpu_agent.run_as.requests import Spawn
from mgpu_agent.run_as.spawn import SpawnFailure, Stdin


class Host(Protocol):
    """The machine under a keeper."""

    def enter(self, cwd: str) -> str:
        """Go to this directory; return why not, or nothing."""

    def leave(self) -> None:
        """Hold no directory of a job."""

    def spawn(self, argv: tuple[bytes, ...], env: dict[bytes, bytes], stem: str, stdin: Stdin | None = None) -> int | SpawnFailure:
        """Start a process of our own user where we are, with its output in the spool files of this name; return its pid."""

    def new_group(self) -> int:
        """Return a number for processes of which none is started after one could not be."""

    def spawn_as(
        self,
        account: Account,
        request: Spawn,
        stem: str,
        then: Callable[[int | SpawnFailure], None],
        *,
        stdin: Stdin | None = None,
        may_gain: bool = False,
        attempt: str = "",
        share: Share = NO_SHARE,
    ) -> None:
        """Have a process started as an account, with its output in the spool files of this name; `then` is told of it."""

    def release(self, attempt: str) -> None:
        """Let go of what bound an attempt of which nothing is left."""

    def complain(self, sentence: str) -> None:
        """Say something that only an administrator can mend."""

    def has_room(self) -> bool:
        """Tell whether the disk takes the output of one more job."""

    def sizes(self, stem: str) -> tuple[int, int]:
        """Return how long the two spool files of this name are."""

    @property
    def pid(self) -> int:
        """The keeper's own."""


class Processes(Protocol):
    """The live processes; `LiveTasks` is the real one."""

    tasks: dict[tuple[AttemptKey, int], LiveTask]

    def add(self, task: LiveTask) -> None:
        """Take care of a process that was just started."""

    def stop(self, key: AttemptKey, grace_s: float, reason: str, now: float, *, lost: bool = False) -> None:
        """Ask every tree of this attempt to end, and have it killed after the grace."""

    def has_attempt(self, key: AttemptKey) -> bool:
        """Tell whether a task of this attempt is alive."""

    def reap(self, now: float, wall: float) -> list[LiveTask]:
        """Collect what ended and return the tasks of which nothing is left."""

    def sweep(self, now: float) -> list[LiveTask]:
        """Press on with the trees that are to end and return those that are gone."""

    def next_sweep_at(self) -> float | None:
        """Return when `sweep` has something to do."""

    def remove(self, task: LiveTask) -> None:
        """Drop a task of which nothing is left."""

    def warn(self, message: Warn) -> None:
        """Send a signal to an attempt, once."""


class TaskStdin(Protocol):
    """What processes read that are not alone; `Consoles` is the real one."""

    def open(self, start: StartTasks, rank: int, stem: str) -> Stdin | SpawnFailure:
        """Make what a process reads that is not started yet; a terminal's output goes to the spool file of this name."""

    def started(self, key: AttemptKey, rank: int) -> None:
        """Take in that the process has it."""

    def take(self, message: Input) -> tuple[InputAck, ...]:
        """Take what was typed; a process without a console takes nothing."""

    def resize(self, message: Resize) -> None:
        """Give a terminal another size."""

    def remove(self, key: AttemptKey, rank: int) -> None:
        """Let go of the console of a process that is gone; all that it showed is in the spool then."""
