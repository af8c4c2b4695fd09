"""Clocks that somebody else moves, and the end of processes at their failpoints: what simulated code sees in
place of the real ones.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mgpu_agent.protocol import failpoints

WALL_AT_START = 1_800_000_000.0


class Crashed(BaseException):
    """A simulated process ends here and now; no product code may catch this."""


class Slept(AssertionError):
    """Simulated code wanted to wait: everything here is one thread, so nothing may."""


class Machine:
    """The clocks of one computer. They go at a pace of their own; only the wall clock is ever set anew."""

    def __init__(self, world: Any, pace: float = 1.0) -> None:
        self._world = world
        self._pace = pace
        self._booted_at = world.now - 100.0
        self._slept_s = 0.0
        self.wall_offset_s = 0.0
        self.frozen_at: float | None = None
        self.resumed_at = float("-inf")
        self.resume_at = 0.0

    def boot(self) -> None:
        """Start all clocks anew, but for the wall's."""
        self._booted_at = self._world.now - 1.0
        self._slept_s = 0.0
        self.frozen_at = None

    def freeze(self, seconds: float) -> None:
        """Sleep, as a laptop does when it is closed."""
        self.frozen_at = self._world.now
        self.resume_at = self._world.now + seconds

    def resume(self) -> None:
        """Go on; what was due meanwhile is due now."""
        if self.frozen_at is not None:
            self._slept_s += self._world.now - self.frozen_at
            self.last_frozen_at, self.frozen_at = self.frozen_at, None
            self.resumed_at = self._world.now

    def boottime(self) -> float:
        """Return the clock that goes on while the machine sleeps."""
        return (self._world.now - self._booted_at) * self._pace

    def monotonic(self) -> float:
        """Return the clock that does not."""
        return (self._world.now - self._booted_at - self._slept_s) * self._pace

    def wall(self) -> float:
        """Return the time of day, as far as this machine knows it."""
        return WALL_AT_START + self._world.now + self.wall_offset_s

    def when(self, boottime: float) -> float:
        """Return the world's time at a moment of `boottime`."""
        return self._booted_at + boottime / self._pace


class _Points:
    """Takes the place of armed failpoints: each is a place where the running process may end."""

    def __init__(self, world: Any) -> None:
        self._world = world

    def reach(self, name: str) -> None:
        process = self._world.running
        if process is not None:
            process.at_failpoint(name)


@contextmanager
def installed(world: Any) -> Iterator[None]:
    """Let all code of this thread live in the world's time, with the world's random numbers."""

    def clock(name: str, outside: Callable[[], float]) -> Callable[[], float]:
        return lambda: getattr(world.running.machine, name)() if world.running is not None else outside()

    def sleep(seconds: float) -> None:
        raise Slept(f"time.sleep({seconds})")

    monotonic, wall, boottime = (
        clock("monotonic", lambda: world.now),
        clock("wall", lambda: WALL_AT_START + world.now),
        None,
    )
    boottime = clock("boottime", lambda: world.now)
    patches: list[tuple[Any, str, Any]] = [
        (time, "monotonic", monotonic),
        (time, "time", wall),
        (time, "time_ns", lambda: int(wall() * 1e9)),
        (time, "clock_gettime", lambda which: boottime() if which == time.CLOCK_BOOTTIME else monotonic()),
        (time, "sleep", sleep),
        (os, "urandom", world.random.randbytes),
        (secrets, "randbits", world.random.getrandbits),
        (failpoints, "_armed", _Points(world)),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        for owner, name, value in patches:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        logging.disable(level)
