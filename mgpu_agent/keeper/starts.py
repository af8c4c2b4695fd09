"""How launches become processes: their environment and stdin, started by the keeper or by the helper of an
account. Decides nothing about attempts.

The answers of a helper come one by one; meanwhile a started process may have ended, or the attempt may be
stopped. An attempt that waits for answers counts as alive until the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from mgpu_agent.keeper.alarm import boot_clock
from mgpu_agent.keeper.ledger import Ledger, stale
from mgpu_agent.keeper.messages import MARKER, RankStart, StartRefused, StartTasks, TaskRecord, incarnation
from mgpu_agent.keeper.ports import Host, TaskStdin
from mgpu_agent.keeper.trees import marker_value
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.places import host_name
from mgpu_agent.run_as.account import Account, login_environment
from mgpu_agent.run_as.requests import Spawn
from mgpu_agent.run_as.spawn import SpawnFailure, Stdin

AskRank = Callable[[RankStart, Callable[[int | SpawnFailure], None]], None]
"""Asks for one process; the function passed in is called with its pid, or why there is none."""

STOPPED = SpawnFailure("stopped", "It was stopped before it started.", "stale")


class Ending(msgspec.Struct, frozen=True):
    """How an attempt is to end."""

    grace_s: float
    reason: str
    lost: bool = False


class StartResults(Protocol):
    """What is done with the answers."""

    def begin_rank(self, start: StartTasks, rank: int, pid: int) -> None:
        """Note that a process was started."""

    def end_trees(self, key: AttemptKey, stop: Ending) -> None:
        """End what runs of an attempt."""

    def refuse(self, start: StartTasks, failure: SpawnFailure) -> None:
        """Report that nothing of a launch was started."""

    def fail_rest(self, start: StartTasks, position: int, failure: SpawnFailure) -> None:
        """Stop a launch of which only some ranks could be started."""

    def all_answered(self, key: AttemptKey) -> None:
        """Note that no more processes of an attempt will start."""


def record_of(start: StartTasks, rank: int, spool: str) -> TaskRecord:
    """Return the record of a process for the ledger, before it is started."""
    return TaskRecord(
        key=start.key,
        rank=rank,
        spool=spool,
        gpus=start.gpus,
        cwd=start.cwd,
        python=start.python,
        note=start.note,
        host=host_name(),
        collect=start.collect,
    )


def why_not(start: StartTasks, ledger: Ledger, *, is_alive: bool) -> StartRefused | None:
    """Return the refusal of a launch that must not start; `is_alive`: an attempt of its job still runs."""
    if start.incarnation != incarnation(ledger.boot_id, ledger.ledger_id):
        return stale(start.key, "The launch was meant for the node as it was before it started anew.")
    if start.lease_s and boot_clock() >= start.alive_at + start.lease_s:
        return stale(start.key, "The launch came too late: its lease had run out.")
    if (refusal := ledger.refusal(start.key)) is not None or not is_alive:
        return refusal
    return StartRefused(
        key=start.key,
        code="attempt-alive",
        message=f"An earlier attempt of job {start.key.job_id} still runs here.",
        fault="node",
    )


class Starter:
    """Starts the processes of launches. `environment` is common to all of them."""

    def __init__(self, ledger: Ledger, host: Host, typing: TaskStdin | None) -> None:
        self._ledger = ledger
        self._host = host
        self._typing = typing
        self.environment: dict[bytes, bytes] = {}

    def marker(self, key: AttemptKey, rank: int) -> bytes:
        """Return the marker by which a process and all its children are recognised."""
        return marker_value(self._ledger.ledger_id, key, rank)

    def start(self, start: StartTasks, rank: RankStart) -> int | SpawnFailure:
        """Start one process as the keeper's own user, in the host's present directory; return its pid."""
        stem = self._ledger.tasks[start.key, rank.rank].spool
        stdin = self._open_stdin(start, rank.rank, stem)
        if isinstance(stdin, SpawnFailure):
            return stdin
        pid = self._host.spawn(start.argv, self._env(self.environment, start, rank), stem, stdin)
        if isinstance(pid, SpawnFailure):
            self._close_stdin(start.key, rank.rank)
        return pid

    def asking(self, start: StartTasks, account: Account) -> AskRank:
        """Return a function that asks an account's helper for a process of this launch."""
        group = self._host.new_group()
        base = login_environment(account, self.environment)

        def ask(rank: RankStart, then: Callable[[int | SpawnFailure], None]) -> None:
            stem = self._ledger.tasks[start.key, rank.rank].spool
            stdin = self._open_stdin(start, rank.rank, stem)
            if isinstance(stdin, SpawnFailure):
                then(stdin)
                return

            def answered(result: int | SpawnFailure) -> None:
                if isinstance(result, SpawnFailure):
                    self._close_stdin(start.key, rank.rank)
                then(result)

            terminal = stdin.terminal if stdin is not None else ""
            request = Spawn(
                number=0,
                group=group,
                argv=start.argv,
                env=self._env(base, start, rank),
                cwd=start.cwd,
                pipe=stdin is not None and not terminal,
                terminal=terminal,
            )
            self._host.spawn_as(
                account,
                request,
                stem,
                answered,
                stdin=stdin,
                may_gain=start.may_gain,
                attempt=str(start.key),
                share=start.share,
            )

        return ask

    def _env(self, base: dict[bytes, bytes], start: StartTasks, rank: RankStart) -> dict[bytes, bytes]:
        return {**base, **rank.env, **start.secret_env, MARKER: self.marker(start.key, rank.rank)}

    def _open_stdin(self, start: StartTasks, rank: int, stem: str) -> Stdin | SpawnFailure | None:
        """Return the stdin of a process that is about to be started; None for none."""
        reach("keeper.spawn.before")
        return (
            self._typing.open(start, rank, stem)
            if self._typing is not None and rank == 0 and (start.stdin or start.pty)
            else None
        )

    def _close_stdin(self, key: AttemptKey, rank: int) -> None:
        if self._typing is not None:
            self._typing.remove(key, rank)


class _Launch:
    def __init__(self, start: StartTasks) -> None:
        self.start = start
        self.left = len(start.ranks)
        self.begun = 0
        self.failure: tuple[int, SpawnFailure] | None = None
        self.stop: Ending | None = None


class UserStarts:
    """The launches that wait for a helper."""

    def __init__(self, machine: StartResults) -> None:
        self._machine = machine
        self._launches: dict[AttemptKey, _Launch] = {}

    def __bool__(self) -> bool:
        return bool(self._launches)

    def __contains__(self, key: AttemptKey) -> bool:
        return key in self._launches

    def has_job(self, job_id: str) -> bool:
        """Tell whether any attempt of this job waits."""
        return any(key.job_id == job_id for key in self._launches)

    def begin(self, start: StartTasks, ask: AskRank) -> None:
        """Ask for every process of a launch."""
        launch = self._launches[start.key] = _Launch(start)
        for position, rank in enumerate(start.ranks):
            ask(rank, lambda result, position=position: self._answered(launch, position, result))  # type: ignore[misc]

    def stop(self, key: AttemptKey, stop: Ending) -> None:
        """Stop an attempt as soon as each of its processes is known."""
        if (launch := self._launches.get(key)) is not None:
            launch.stop = stop

    def stop_all(self, stop: Ending) -> None:
        """Stop all attempts."""
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
