"""Keeps the queue's newest versions while somebody watches it: asks the master at most once a second, and
never for more than a fiftieth of its time. Readers wait for the next version; one that was away gets the
difference if its version is still here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api.frames import QueueFrame
from mgpu_jupyter.master.queue_snapshot import QueueSnapshot, queue_snapshot
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.server.hub import Hub, Watch
from mgpu_jupyter.server.live.queue_versions import Numbers, Version, difference, is_same, whole

log = logging.getLogger("mgpu.live")

LEAST_PAUSE_S = 1.0
SHARE = 50
"""The master spends at most this fraction (1/50) of its time on the queue's readers."""
VERSIONS_KEPT = 32
DIFFERENCES_KEPT = 8
ANEW_S = 30.0
"""Reasons mention times, which pass without an event."""

Question = Callable[[ClusterState], tuple[QueueSnapshot, float]]


class Board:
    """The queue for all its readers. Belongs to the server's loop."""

    def __init__(
        self,
        ask: Callable[[Question], Awaitable[tuple[QueueSnapshot, float]]],
        hub: Hub,
        clock: Callable[[], float],
        first: int,
    ) -> None:
        self._ask = ask
        self._hub = hub
        self._clock = clock
        self._numbers = Numbers()
        self._number = first
        self._versions: OrderedDict[int, Version] = OrderedDict()
        self._differences: OrderedDict[tuple[int, int], QueueFrame] = OrderedDict()
        self._watches: set[Watch] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_stale = True
        """Whether nobody kept the newest version up to date: a new reader must not be shown it."""

    @contextmanager
    def reader(self, watch: Watch) -> Iterator[None]:
        """Raise the flag of `watch` at every new version; the queue is read while there is a reader."""
        self._watches.add(watch)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look())
        try:
            yield
        finally:
            self._watches.discard(watch)
            if not self._watches:
                self.close()

    def close(self) -> None:
        """Stop reading the queue."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._is_stale = True

    def frame_since(self, number: int) -> QueueFrame | None:
        """Return what changed since this version, the whole if it is no longer known, None for nothing
        new.
        """
        if self._is_stale or not self._versions:
            return None
        newest = next(reversed(self._versions.values()))
        if newest.number == number:
            return None
        old = self._versions.get(number)
        if old is None:
            return whole(newest)
        pair = (number, newest.number)
        if pair not in self._differences:
            self._differences[pair] = difference(old, newest)
            while len(self._differences) > DIFFERENCES_KEPT:
                self._differences.popitem(last=False)
        return self._differences[pair]

    async def _look(self) -> None:
        with self._hub.watch() as changed:
            while True:
                try:
                    snapshot, cost_s = await self._ask(self._question)
                except MgpuError as error:  # a turn came to nothing: the next one tells
                    log.debug("the queue was not looked at: %s", error)
                    cost_s = 0.0
                else:
                    self._take(snapshot)
                await asyncio.sleep(max(LEAST_PAUSE_S, SHARE * cost_s))
                await changed.wait(ANEW_S)

    def _question(self, state: ClusterState) -> tuple[QueueSnapshot, float]:
        begun = time.perf_counter()
        return queue_snapshot(state, self._clock()), time.perf_counter() - begun

    def _take(self, snapshot: QueueSnapshot) -> None:
        version = self._numbers.version(self._number + 1, snapshot)
        newest = next(reversed(self._versions.values()), None)
        if newest is None or not is_same(newest, version):
            self._number += 1
            self._versions[version.number] = version
            while len(self._versions) > VERSIONS_KEPT:
                self._versions.popitem(last=False)
        elif not self._is_stale:
            return
        self._is_stale = False
        for watch in self._watches:
            watch.raise_flag()
