"""The keeper's decisions on a machine of which a test says everything: clocks, room, processes, helpers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgpu_agent.keeper import attempt_hooks, hooks, machine, starts
from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.live_tasks import LiveTask
from mgpu_agent.keeper.machine import KeeperMachine
from mgpu_agent.keeper.messages import (
    Attach,
    FromKeeper,
    Hook,
    RankStart,
    StartTasks,
    TaskRecord,
    ToKeeper,
    incarnation,
)
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.messages import Input, InputAck, Resize, Warn
from mgpu_agent.run_as.account import Account, Confinement
from mgpu_agent.run_as.cgroups import NO_SHARE, Share
from mgpu_agent.run_as.requests import Spawn
from mgpu_agent.run_as.spawn import SpawnFailure, Stdin
from tests.agent.keepers import a_key

ANNE = Account("anne", 1001, 1001, (1001,), "/home/anne", "/bin/sh")
BROKEN = SpawnFailure("not-found", "There is no such program.", "request", 127)
WALL = 1_000_000.0


class Clock:
    """Three clocks that only a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return WALL + self.now

    def time_ns(self) -> int:
        return 0xAB

    def boot(self) -> float:
        return 5_000.0 + self.now


class MachineUnder:
    """The host: it keeps what it was asked for, in order."""

    pid = 77

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answers: list[int | SpawnFailure] = []
        self.helpers: list[tuple[Spawn, Callable[[int | SpawnFailure], None]]] = []
        self.no_way_into: dict[str, str] = {}
        self.room = True
        self.spooled: dict[str, tuple[int, int]] = {}
        self.complaints: list[str] = []
        self.envs: list[dict[bytes, bytes]] = []
        self._pids = itertools.count(501)
        self._groups = itertools.count(1)

    def enter(self, cwd: str) -> str:
        self.asked.append(("enter", cwd))
        return self.no_way_into.get(cwd, "")

    def leave(self) -> None:
        self.asked.append(("leave",))

    def spawn(
        self, argv: tuple[bytes, ...], env: dict[bytes, bytes], stem: str, stdin: Stdin | None = None
    ) -> int | SpawnFailure:
        self.asked.append(("spawn", argv, stem, stdin))
        self.envs.append(env)
        return self.answers.pop(0) if self.answers else next(self._pids)

    def new_group(self) -> int:
        return next(self._groups)

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
        self.asked.append(("spawn as", account.name, stem, stdin, may_gain, attempt, share))
        self.helpers.append((request, then))

    def release(self, attempt: str) -> None:
        self.asked.append(("release", attempt))

    def complain(self, sentence: str) -> None:
        self.complaints.append(sentence)

    def has_room(self) -> bool:
        return self.room

    def sizes(self, stem: str) -> tuple[int, int]:
        return self.spooled.get(stem, (0, 0))

    def did(self, *words: str) -> list[tuple[Any, ...]]:
        """Return what it was asked for under these words."""
        return [one for one in self.asked if one[0] in words]


class MadeUpProcesses:
    """The live processes: a test says which end, and sees which are to end."""

    def __init__(self) -> None:
        self.tasks: dict[tuple[AttemptKey, int], LiveTask] = {}
        self.stops: list[tuple[AttemptKey, float, str, float, bool]] = []
        self.warned: list[Warn] = []
        self.sweep_at: float | None = None
        self.swept: list[LiveTask] = []
        self._over: list[LiveTask] = []

    def exit(
        self, key: AttemptKey, rank: int = 0, *, code: int | None = 0, signal: int | None = None
    ) -> None:
        task = self.tasks[key, rank]
        task.exit_code, task.signal = code, signal
        self._over.append(task)

    def add(self, task: LiveTask) -> None:
        self.tasks[task.key, task.rank] = task

    def stop(self, key: AttemptKey, grace_s: float, reason: str, now: float, *, lost: bool = False) -> None:
        self.stops.append((key, grace_s, reason, now, lost))
        for (one, _), task in self.tasks.items():
            if one == key:
                task.reason, task.lost, task.kill_at = reason, lost, now + grace_s

    def has_attempt(self, key: AttemptKey) -> bool:
        return any(one == key for one, _ in self.tasks)

    def reap(self, now: float, wall: float) -> list[LiveTask]:
        over, self._over = self._over, []
        for task in over:
            task.exited_at = wall
        return over

    def sweep(self, now: float) -> list[LiveTask]:
        swept, self.swept = self.swept, []
        return swept

    def next_sweep_at(self) -> float | None:
        return self.sweep_at

    def remove(self, task: LiveTask) -> None:
        del self.tasks[task.key, task.rank]

    def warn(self, message: Warn) -> None:
        self.warned.append(message)


class NotedStdin:
    """What processes read."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.cannot: SpawnFailure | None = None
        self.terminal = ""

    def open(self, start: StartTasks, rank: int, stem: str) -> Stdin | SpawnFailure:
        self.done.append(("open", start.key, rank, stem))
        return self.cannot or Stdin(self.terminal, 9)

    def started(self, key: AttemptKey, rank: int) -> None:
        self.done.append(("started", key, rank))

    def take(self, message: Input) -> tuple[InputAck, ...]:
        return (InputAck(key=message.key, rank=message.rank, writer=message.writer, offset=3),)

    def resize(self, message: Resize) -> None:
        self.done.append(("resize", message.rows, message.columns))

    def remove(self, key: AttemptKey, rank: int) -> None:
        self.done.append(("remove", key, rank))


class World:
    """A keeper that an agent is attached to, unless told otherwise."""

    def __init__(self, path: Path, clock: Clock, *, attached: bool = True, boot_id: str = "boot") -> None:
        self.clock = clock
        self.host = MachineUnder()
        self.live = MadeUpProcesses()
        self.stdin = NotedStdin()
        self.told: list[FromKeeper] = []
        self.confined: list[Confinement] = []
        self.ledger = Ledger(path / "ledger", boot_id)
        self.machine = KeeperMachine(
            self.ledger,
            self.live,
            self.host,
            self.told.append,
            typing=self.stdin,
            confine=self.confined.append,
        )
        if attached:
            self.machine.obey(Attach(environment={b"BASE": b"base", b"SAME": b"agent"}))
            self.told.clear()

    def a_start(self, key: AttemptKey | None = None, *, ranks: int = 1, **more: Any) -> StartTasks:
        more.setdefault("argv", (b"run",))
        return StartTasks(
            key=key or a_key(),
            incarnation=incarnation(self.ledger.boot_id, self.ledger.ledger_id),
            ranks=tuple(RankStart(rank, {b"RANK": b"%d" % rank, b"SAME": b"rank"}) for rank in range(ranks)),
            cwd="/place",
            **more,
        )

    def tell(self, *messages: ToKeeper, after_s: float = 0.0) -> list[FromKeeper]:
        """Say this, let some time pass, take a turn; return what the agent heard."""
        for message in messages:
            self.machine.obey(message)
        self.clock.now += after_s
        self.machine.turn()
        told, self.told[:] = list(self.told), []
        return told

    def record(self, key: AttemptKey | None = None, rank: int = 0) -> TaskRecord:
        return self.ledger.tasks[key or a_key(), rank]

    def with_hooks(self, **more: Any) -> StartTasks:
        """Return a launch that has a hook of each kind: the site's, then the job's."""
        row = (Hook("site", site=True, limit_s=30.0), Hook("own", limit_s=20.0))
        return self.a_start(**{"prolog": row, "epilog": row, "facts": {b"MGPU_JOB": b"J"}, **more})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (machine, hooks, attempt_hooks):
        monkeypatch.setattr(module, "time", made)
    for module in (machine, starts):
        monkeypatch.setattr(module, "boot_clock", made.boot)
    return made


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    return World(tmp_path, clock)
