"""What the keeper's decisions need of the machine: the host, live processes, and the stdin of processes."""

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
        """Change to this directory; return why that failed, or an empty string."""

    def leave(self) -> None:
        """Leave the job's directory, so that it can be removed."""

    def spawn(
        self, argv: tuple[bytes, ...], env: dict[bytes, bytes], stem: str, stdin: Stdin | None = None
    ) -> int | SpawnFailure:
        """Start a process as the keeper's user in the present directory, with output in these spool files;
        return its pid.
        """

    def new_group(self) -> int:
        """Return a number for a group of processes: once one of them fails to start, no other is started."""

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
        """Have a process started as an account, with output in these spool files; `then` gets the result."""

    def release(self, attempt: str) -> None:
        """Release the limits of an attempt of which nothing is left."""

    def complain(self, sentence: str) -> None:
        """Report what only an administrator can mend."""

    def has_room(self) -> bool:
        """Tell whether the disk has room for the output of one more job."""

    def sizes(self, stem: str) -> tuple[int, int]:
        """Return the sizes of the two spool files of this name."""

    @property
    def pid(self) -> int:
        """The keeper's own pid."""


class Processes(Protocol):
    """The live processes; `LiveTasks` is the real one."""

    tasks: dict[tuple[AttemptKey, int], LiveTask]

    def add(self, task: LiveTask) -> None:
        """Take care of a process that was just started."""

    def stop(self, key: AttemptKey, grace_s: float, reason: str, now: float, *, lost: bool = False) -> None:
        """Ask every tree of this attempt to end, and kill it after the grace."""

    def has_attempt(self, key: AttemptKey) -> bool:
        """Tell whether a task of this attempt is alive."""

    def reap(self, now: float, wall: float) -> list[LiveTask]:
        """Collect the children that ended and return the tasks with no process left."""

    def sweep(self, now: float) -> list[LiveTask]:
        """Signal the trees that are to end again and return those that are gone."""

    def next_sweep_at(self) -> float | None:
        """Return when `sweep` has something to do."""

    def remove(self, task: LiveTask) -> None:
        """Drop a task of which nothing is left."""

    def warn(self, message: Warn) -> None:
        """Send a signal to an attempt, once."""


class TaskStdin(Protocol):
    """The stdin of processes that read input; `Consoles` is the real one."""

    def open(self, start: StartTasks, rank: int, stem: str) -> Stdin | SpawnFailure:
        """Open the stdin of a process; a terminal's output goes to the spool file of this name."""

    def started(self, key: AttemptKey, rank: int) -> None:
        """Note that the process has its end."""

    def take(self, message: Input) -> tuple[InputAck, ...]:
        """Accept input; a process without a console accepts none."""

    def resize(self, message: Resize) -> None:
        """Give a terminal another size."""

    def remove(self, key: AttemptKey, rank: int) -> None:
        """Close the console of a process that is gone, after copying the rest of its output to the spool."""
