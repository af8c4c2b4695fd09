"""What the agent knows of every attempt on its node: its open ranks, the state of each, and when its end was
last told. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mgpu_agent.protocol.ids import AttemptKey, GpuUuid
from mgpu_agent.protocol.model import TaskStatus

RETELL_S = 10.0


class Attempt:
    """One attempt on this node, until it is forgotten."""

    def __init__(self, gpus: tuple[GpuUuid, ...], ranks: Iterable[int]) -> None:
        self.gpus = gpus
        self.open_ranks = set(ranks)
        self.statuses: dict[int, TaskStatus] = {}
        self.saved_ranks: set[int] = set()
        """Ranks whose end and output the master has."""
        self.told_at = 0.0

    def take(self, status: TaskStatus) -> bool:
        """Note a status; tell whether it is news (an end is never taken back)."""
        known = self.statuses.get(status.rank)
        if known is not None and known.ended_at is not None:
            return False
        self.statuses[status.rank] = status
        if status.ended_at is None:
            self.open_ranks.add(status.rank)
        else:
            self.open_ranks.discard(status.rank)
        return known != status

    def pids_by_gpu(self) -> Iterator[tuple[GpuUuid, int]]:
        """Yield each GPU with the pid that uses it: GPUs are shared out in the order of ranks."""
        ranks = sorted(self.statuses.keys() | self.open_ranks)
        for place, uuid in enumerate(self.gpus):
            status = self.statuses.get(ranks[place * len(ranks) // len(self.gpus)])
            yield uuid, status.pid if status is not None and status.ended_at is None else 0


class Attempts:
    """Every attempt that is not forgotten."""

    def __init__(self) -> None:
        self._all: dict[AttemptKey, Attempt] = {}
        self._open: dict[AttemptKey, Attempt] = {}
        self._over: dict[AttemptKey, Attempt] = {}

    def __contains__(self, key: AttemptKey) -> bool:
        return key in self._all

    @property
    def is_busy(self) -> bool:
        """Tell whether anything runs or is about to start."""
        return bool(self._open)

    @property
    def owes_news(self) -> bool:
        """Tell whether an end was told that the master has not yet said to forget."""
        return bool(self._over)

    def expect(self, key: AttemptKey, gpus: tuple[GpuUuid, ...], ranks: Iterable[int]) -> None:
        """Note a launch that is on its way."""
        self._all[key] = self._open[key] = Attempt(gpus, ranks)

    def take(self, status: TaskStatus, at: float) -> bool:
        """Note the state of a process; tell whether it is news."""
        attempt = self._all.get(status.key)
        if attempt is None:
            attempt = self._all[status.key] = self._open[status.key] = Attempt(status.gpus, ())
        is_news = attempt.take(status)
        if not attempt.open_ranks and self._open.pop(status.key, None) is not None:
            self._over[status.key] = attempt
            attempt.told_at = at
        return is_news

    def drop(self, key: AttemptKey) -> None:
        """Forget an attempt, whatever its state."""
        self._all.pop(key, None)
        self._open.pop(key, None)
        self._over.pop(key, None)

    def is_over(self, key: AttemptKey) -> bool:
        """Tell whether all ranks of a known attempt have ended."""
        return key in self._over

    def note_saved(self, key: AttemptKey, rank: int) -> None:
        """Note that the master has the end and the output of one rank."""
        if (attempt := self._all.get(key)) is not None:
            attempt.saved_ranks.add(rank)

    def is_saved(self, key: AttemptKey) -> bool:
        """Tell whether an attempt is over and the master has all of it."""
        attempt = self._over[key]
        return attempt.statuses.keys() <= attempt.saved_ranks

    def live(self) -> list[AttemptKey]:
        """Return the attempts that run or are about to start."""
        return list(self._open)

    def unanswered(self) -> Iterator[AttemptKey]:
        """Yield the launches of which no process is known yet."""
        return (key for key, attempt in self._open.items() if not attempt.statuses)

    def statuses(self, key: AttemptKey) -> tuple[TaskStatus, ...]:
        """Return what is known of each rank of one attempt."""
        attempt = self._all.get(key)
        return () if attempt is None else tuple(attempt.statuses.values())

    def all_statuses(self) -> tuple[TaskStatus, ...]:
        """Return what is known of every process."""
        return tuple(status for attempt in self._all.values() for status in attempt.statuses.values())

    def holder(self, gpus: Iterable[GpuUuid]) -> AttemptKey | None:
        """Return a live attempt that holds one of these GPUs."""
        wanted = set(gpus)
        return next((key for key, attempt in self._open.items() if wanted.intersection(attempt.gpus)), None)

    def held_gpus(self) -> dict[GpuUuid, int]:
        """Return the GPUs of live attempts, each with the pid that uses it (0 before its start and after its
        end).
        """
        return {uuid: pid for attempt in self._open.values() for uuid, pid in attempt.pids_by_gpu()}

    def gpus_by_attempt(self) -> dict[AttemptKey, tuple[GpuUuid, ...]]:
        """Return the GPUs of each live attempt that has some."""
        return {key: attempt.gpus for key, attempt in self._open.items() if attempt.gpus}

    def due_to_retell(self, at: float) -> list[TaskStatus]:
        """Return the ends that were told long enough ago and are not forgotten; mark them as told now."""
        due: list[TaskStatus] = []
        for attempt in self._over.values():
            if at - attempt.told_at >= RETELL_S:
                attempt.told_at = at
                due += attempt.statuses.values()
        return due

    def note_all_told(self, at: float) -> None:
        """Note that every end was told just now."""
        for attempt in self._over.values():
            attempt.told_at = at
