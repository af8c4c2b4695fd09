"""The simulated world: one clock, one queue of events, one source of chance, and a record of all that
happened.

Knows processes only as things that run, end and begin again. While one of them waits for its disk, the others
go on (`wait`).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from tests.storm.time_machine import Crashed, Machine

Action = Callable[[], None]
KEPT_LINES = 200_000


class Process:
    """A program on a machine. A new start is a new `life`, and events of an earlier life are nobody's."""

    def __init__(self, world: World, name: str, machine: Machine) -> None:
        self.world = world
        self.name = name
        self.machine = machine
        self.is_up = False
        self.life = 0
        self.is_waiting = False
        """Whether it is inside a call that takes time, like a commit."""
        self.was_due = False
        """Whether a turn fell due meanwhile."""
        self.paused_until = 0.0
        self.points_left: int | None = None
        """It ends at the failpoint of this number from now on."""
        self.point_name = ""
        """Only failpoints whose name begins like this count."""
        self._turn_at: float | None = None

    def begin(self) -> None:
        """Come up."""
        self.life += 1
        self.is_up = True
        self.is_waiting = self.was_due = False
        self.paused_until = 0.0
        self.points_left = None
        self._turn_at = None
        self.world.note(self.name, "up")

    def crash(self, why: str = "") -> None:
        """End at once, as by `kill -9`."""
        if self.is_up:
            self.is_up = False
            self.world.note(self.name, f"down {why}")
            self.on_crash()

    def on_crash(self) -> None:
        """What the rest of the world sees of the end."""

    def turn(self) -> None:
        """Do all that is due, and say by `turn_at` when there is more."""
        raise NotImplementedError

    def at_failpoint(self, name: str) -> None:
        """End here if that was asked for."""
        self.world.points[name] = self.world.points.get(name, 0) + 1
        if self.points_left is not None and name.startswith(self.point_name):
            self.points_left -= 1
            if self.points_left <= 0:
                raise Crashed(name)

    def run(self, action: Action) -> None:
        """Run product code as this process; a crash inside ends it and nothing else."""
        before, self.world.running = self.world.running, self
        life = self.life
        try:
            action()
        except Crashed as crashed:
            self.world.running = before
            if self.life == life:  # else it was ended while it waited, and has begun again since
                self.crash(f"at {crashed}")
        finally:
            self.world.running = before

    def turn_at(self, at: float) -> None:
        """Take a turn then, unless one comes sooner anyway."""
        if not self.is_up or (self._turn_at is not None and self._turn_at <= at):
            return
        self._turn_at = at
        life = self.life
        self.world.at(at, lambda: self._due(life, at))

    def _due(self, life: int, at: float) -> None:
        if life != self.life or not self.is_up or self._turn_at != at:
            return
        self._turn_at = None
        if (later := self.held_up_until()) > self.world.now:
            self.turn_at(later)
        elif self.is_waiting:
            self.was_due = True
        else:
            self.run(self.turn)

    def held_up_until(self) -> float:
        """Return until when it does nothing: it is stopped, or its machine sleeps."""
        return max(self.paused_until, self.machine.resume_at if self.machine.frozen_at is not None else 0.0)


class World:
    """Time, chance and order."""

    def __init__(self, seed: int, *, keep_lines: bool = False) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.running: Process | None = None
        self.points: dict[str, int] = {}
        """How often each failpoint was reached."""
        self.lines: list[str] | None = [] if keep_lines else None
        self.events = 0
        self._queue: list[tuple[float, int, Action]] = []
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """Return one name for the whole history."""
        return self._hash.hexdigest()

    def note(self, who: str, what: str) -> None:
        """Record that something happened."""
        line = f"{self.now:10.4f} {who:<10} {what}"
        self._hash.update(line.encode())
        if self.lines is not None and len(self.lines) < KEPT_LINES:
            self.lines.append(line)

    def feed(self, data: bytes) -> None:
        """Let bytes that crossed the network be part of the history."""
        self._hash.update(data)

    def at(self, time: float, action: Action) -> None:
        """Let this happen then."""
        self._count += 1
        heappush(self._queue, (max(time, self.now), self._count, action))

    def later(self, seconds: float, action: Action) -> None:
        """Let this happen after so long."""
        self.at(self.now + seconds, action)

    def spread(self, low: float, high: float) -> float:
        """Draw a length of time, short ones as likely as long ones."""
        return low * (high / low) ** self.random.random()

    def run_until(self, time: float, is_over: Callable[[], Any] = lambda: False) -> None:
        """Let everything happen up to then, or until it is over."""
        while self._queue and self._queue[0][0] <= time and not is_over():
            at, _, action = heappop(self._queue)
            self.now = max(self.now, at)
            self.events += 1
            action()
        if not is_over():
            self.now = max(self.now, time)

    def wait(self, process: Process, seconds: float) -> None:
        """Let a process wait inside a call while all others go on; it may be ended meanwhile."""
        before, self.running = self.running, None
        life, process.is_waiting = process.life, True
        try:
            self.run_until(self.now + seconds)
        finally:
            process.is_waiting = False
            self.running = before
        if not process.is_up or process.life != life:
            raise Crashed("while it waited")
        if process.was_due:
            process.was_due = False
            process.turn_at(self.now + 0.001)
