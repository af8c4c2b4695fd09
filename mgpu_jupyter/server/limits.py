"""What one user may ask of the server at once: turns, rates, streams and bodies. Knows no routes.

A fixed number of requests is worked on at once, and waiting ones are served user by user, so a flood delays
only its sender. Rates, streams and bodies are limits beyond that; what exceeds them is refused with 429 and
the time after which to try again. Administrators take turns like everybody and have no limits: they could
change them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum

import msgspec

from mgpu_agent.protocol.errors import Unavailable
from mgpu_jupyter.model.settings import Limits

TOO_MANY = "too-many-requests"
MIB = 1024 * 1024


class Cost(StrEnum):
    """What a request costs the server."""

    LIGHT = "light"
    HEAVY = "heavy"
    """Computes long, or asks nodes."""
    STREAM = "stream"
    """Goes on for a while, at its reader's speed; takes no turn, since it would keep it."""


class Bucket(msgspec.Struct):
    """Permits that are renewed with time, up to as many as may be used at once."""

    per_s: float
    most: float
    left: float
    at: float

    def wait_s(self, now: float) -> float:
        """Take one permit and return 0, or return how long to wait for it."""
        self.left = min(self.most, self.left + max(now - self.at, 0.0) * self.per_s)
        self.at = now
        if self.left >= 1:
            self.left -= 1
            return 0.0
        return (1 - self.left) / self.per_s


class Turns:
    """Limits how many requests are worked on at once, in all and for each user; users take turns."""

    def __init__(self, at_once: int, each: int, waiting: int) -> None:
        self._free = at_once
        self._each = each
        self._most = waiting
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Wait for a turn and hold it."""
        await self._take(user)
        try:
            yield
        finally:
            self._give_back(user)

    async def _take(self, user: str) -> None:
        if self._free and user not in self._waiting and self._held[user] < self._each:
            self._hold(user)
            return
        queue = self._waiting.setdefault(user, deque())
        if len(queue) >= self._most:
            raise too_many(f"{len(queue)} requests of yours wait already", 1.0)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self._give_back(user)
            raise

    def _hold(self, user: str) -> None:
        self._free -= 1
        self._held[user] += 1

    def _give_back(self, user: str) -> None:
        self._free += 1
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
        for other in list(self._waiting):  # in the order in which they were last served
            if not self._free:
                return
            if self._held[other] < self._each:
                self._serve(other)

    def _serve(self, user: str) -> None:
        queue = self._waiting.pop(user)
        while queue:
            place = queue.popleft()
            if not place.done():
                self._hold(user)
                place.set_result(None)
                break
        if queue:
            self._waiting[user] = queue  # behind all others


class RequestShares:
    """What each user uses of the server now."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._turns = {
            Cost.LIGHT: Turns(limits.at_once, max(1, limits.at_once // 2), limits.waiting),
            Cost.HEAVY: Turns(limits.heavy_at_once, max(1, limits.heavy_at_once // 2), limits.waiting),
        }
        self._buckets: dict[tuple[str, bool], Bucket] = {}
        self._streams: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def turns(self, cost: Cost) -> Turns | None:
        """Return the turns for requests of this cost."""
        return self._turns.get(cost)

    def ask(self, user: str, cost: Cost) -> None:
        """Count one request, or refuse it."""
        heavy = cost is Cost.HEAVY
        per_s = self._limits.heavy_per_s if heavy else self._limits.requests_per_s
        bucket = self._buckets.get((user, heavy))
        if bucket is None:
            most = max(1.0, per_s * self._limits.burst_s)
            bucket = self._buckets[user, heavy] = Bucket(per_s, most, most, self._clock())
        wait_s = bucket.wait_s(self._clock())
        if wait_s:
            raise too_many(f"you may send {per_s:g} {'heavy ' if heavy else ''}requests a second", wait_s)

    def begin_stream(self, user: str) -> None:
        """Count a stream, or refuse it."""
        if self._streams[user] >= self._limits.streams:
            raise too_many(f"you have {self._limits.streams} streams open", 1.0)
        self._streams[user] += 1

    def end_stream(self, user: str) -> None:
        """Stop counting a stream."""
        _less(self._streams, user, 1)

    def begin_bytes(self, user: str, size: int) -> None:
        """Count a body, or a piece of one, or refuse it."""
        if self._bytes[user] and self._bytes[user] + size > self._limits.body_mb * MIB:
            raise too_many(f"you send more than {self._limits.body_mb} MiB at once", 1.0)
        self._bytes[user] += size

    def end_bytes(self, user: str, size: int) -> None:
        """Stop counting a body."""
        _less(self._bytes, user, size)


def _less(counts: Counter[str], user: str, number: int) -> None:
    counts[user] -= number
    if counts[user] <= 0:
        del counts[user]


def too_many(why: str, wait_s: float) -> Unavailable:
    """Return the error; `wait_s` is when to try again."""
    after_s = max(1, math.ceil(wait_s))
    return Unavailable(
        TOO_MANY, f"That is too much at once ({why}): try again in {after_s} s.", {"retry_after_s": after_s}
    )
