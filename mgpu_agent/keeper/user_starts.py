"""Launches whose processes the helper of an account starts: asked for, and not answered yet. Decides nothing else about attempts.

The answers come one by one, and meanwhile what was started may have ended, or the attempt is to end. An attempt that is here counts as
alive; it leaves with its last answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from mgpu_agent.keeper.messages import RankStart, StartTasks
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.run_as.spawn import SpawnFailure

STOPPED = SpawnFailure("stopped", "It was stopped before it started.", "stale")


class Stop(msgspec.Struct, frozen=True):
    """How an attempt is to end."""

    grace_s: float
    reason: str
    lost: bool = False


class KeeperMachine(Protocol):
    """What follows from the answers."""

    def begin_rank(self, start: StartTasks, rank: int, pid: int) -> None:
        """Take in that a process was started."""

    def end_trees(self, key: AttemptKey, stop: Stop) -> None:
        """End what runs of an attempt."""

    def refuse(self, start: StartTasks, failure: SpawnFailure) -> None:
        """Tell that nothing of a launch was started."""

    def fail_rest(self, start: StartTasks, position: int, failure: SpawnFailure) -> None:
        """End a launch of which some ranks were started, and the others could not be."""

    def all_answered(self, key: AttemptKey) -> None:
        """Take in that no more processes of an attempt will start."""


class _Launch:
    def __init__(self, start: StartTasks) -> None:
        self.start = start
        self.left = len(start.ranks)
        self.begun = 0
        self.failure: tuple[int, SpawnFailure] | None = None
        self.stop: Stop | None = None


class UserStarts:
    """The launches that wait for a helper."""

    def __init__(self, machine: KeeperMachine) -> None:
        self._machine = machine
        self._launches: dict[AttemptKey, _Launch] = {}

    def __bool__(self) -> bool:
        return bool(self._launches)

    def __contains__(self, key: AttemptKey) -> bool:
        return key in self._launches

    def has_job(self, job_id: str) -> bool:
        """Tell whether any attempt of this job waits."""
        return any(key.job_id == job_id for key in self._launches)

    def begin(self, start: StartTasks, ask: Callable[[RankStart, Callable[[int | SpawnFailure], None]], None]) -> None:
        """Ask for every process of a launch."""
        launch = self._launches[start.key] = _Launch(start)
        for position, rank in enumerate(start.ranks):
            ask(rank, lambda result, position=position: self._answered(launch, position, result))  # type: ignore[misc]

    def stop(self, key: AttemptKey, stop: Stop) -> None:
        """End an attempt as soon as each of its processes is known."""
        if (launch := self._launches.get(key)) is not None:
            launch.stop = stop

    def stop_all(self, stop: Stop) -> None:
        """End all."""
        for launch in self._launches.values():
            launch.stop = stop

    def _answered(self, launch: _Launch, position: int, result: int | SpawnFailure) -> None:
        start = launch.start
        launch.left -= 1
        if isinstance(result, SpawnFailure):
            launch.failure = launch.failure or (position, result)
        else:
            launch.begun += 1
            self._machine.begin_rank(start, start.ranks[position].rank, result)
            if launch.stop is not None:
                self._machine.end_trees(start.key, launch.stop)
        if launch.left:
            return
        del self._launches[start.key]
        if launch.failure is not None and not launch.begun:
            self._machine.refuse(start, STOPPED if launch.stop is not None else launch.failure[1])
        elif launch.failure is not None:
            self._machine.fail_rest(start, *launch.failure)
        if launch.begun:
            self._machine.all_answered(start.key)
