"""Passes the master's results to the server's event loop: replies, and wake-ups for watchers. Holds no
data.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mgpu_agent.protocol.ids import JobId
from mgpu_agent.protocol.messages import InputAck
from mgpu_jupyter.master.ports import SavedJob

ANY_JOB = JobId("")
Listener = Callable[[Sequence[SavedJob]], None]
"""Called with every job that changed, on the loop."""


class Watch:
    """A flag that is raised when the watched thing changed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next change; False after the timeout."""
        try:
            await asyncio.wait_for(self._event.wait(), timeout_s)
        except TimeoutError:
            return False
        self._event.clear()
        return True

    def raise_flag(self) -> None:
        """Note a change."""
        self._event.set()


class Hub:
    """The master's sink. `publish` is called on its thread; all else belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._replies: deque[Callable[[], None]] = deque()
        self._changed: deque[JobId] = deque()
        self._jobs: deque[SavedJob] = deque()
        self._listeners: list[Listener] = []
        self._is_scheduled = False
        self._watches: dict[JobId, set[Watch]] = {}
        self._typists: dict[tuple[JobId, str], Callable[[InputAck], None]] = {}

    def publish(
        self, replies: Sequence[Callable[[], None]], jobs: Sequence[SavedJob], grown: set[JobId]
    ) -> None:
        """Pass on replies to requests, changed jobs, and jobs whose output grew."""
        self._replies.extend(replies)
        self._changed.extend(saved.job.id for saved in jobs)
        self._jobs.extend(jobs)
        self._changed.extend(grown)
        self._changed.append(ANY_JOB)
        if not self._is_scheduled:
            self._is_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                # The loop is closed: the server ended, and nobody waits for an answer any more.
                self._is_scheduled = False

    def typed(self, acks: Sequence[InputAck]) -> None:
        """Pass on how much of the typed input was read."""

        def deliver() -> None:
            for ack in acks:
                if (listener := self._typists.get((ack.key.job_id, ack.writer))) is not None:
                    listener(ack)

        self._replies.append(deliver)
        self.publish([], [], set())

    @contextmanager
    def typist(self, job_id: JobId, writer: str, listener: Callable[[InputAck], None]) -> Iterator[None]:
        """Call `listener` with how much is read of a writer's input for a job; a newer one replaces it."""
        self._typists[job_id, writer] = listener
        try:
            yield
        finally:
            if self._typists.get((job_id, writer)) is listener:
                del self._typists[job_id, writer]

    @contextmanager
    def listen(self, listener: Listener) -> Iterator[None]:
        """Call `listener` with every job that changes."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    @contextmanager
    def watch(self, job_id: JobId = ANY_JOB) -> Iterator[Watch]:
        """Watch one job, or everything."""
        watch = Watch()
        self._watches.setdefault(job_id, set()).add(watch)
        try:
            yield watch
        finally:
            watches = self._watches[job_id]
            watches.discard(watch)
            if not watches:
                del self._watches[job_id]

    def _deliver(self) -> None:
        # Cleared first: what is published from here on schedules the next delivery.
        self._is_scheduled = False
        while self._replies:
            self._replies.popleft()()
        jobs = [self._jobs.popleft() for _ in range(len(self._jobs))]
        if jobs:
            for listener in tuple(self._listeners):
                listener(jobs)
        while self._changed:
            for watch in self._watches.get(self._changed.popleft(), ()):
                watch.raise_flag()
