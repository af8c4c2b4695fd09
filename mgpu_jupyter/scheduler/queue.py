"""The order of waiting jobs, grouped by shape so that one refusal answers for all jobs that ask for the same. Pure.

Theory of operation. Jobs that ask for the same thing share a *shape*. Within one pass resources only shrink, so when one job of
a shape cannot be placed, no later one of that shape can: a pass costs as many tries as there are shapes, not jobs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush

from mgpu_agent.protocol.ids import JobId

Rank = tuple[int, int]
"""Order of a job: minus its priority, then its number."""


class Queue:
    """Waiting jobs in order. Knows nothing of jobs but id, order and shape."""

    def __init__(self) -> None:
        self._order: list[tuple[Rank, JobId]] = []
        self._shapes: dict[Hashable, list[tuple[Rank, JobId]]] = {}
        self._entries: dict[JobId, tuple[Rank, Hashable]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._entries

    def __iter__(self) -> Iterator[JobId]:
        return (job_id for _, job_id in self._order)

    def add(self, job_id: JobId, rank: Rank, shape: Hashable) -> None:
        """Put a job in its place."""
        self._entries[job_id] = (rank, shape)
        insort(self._order, (rank, job_id))
        insort(self._shapes.setdefault(shape, []), (rank, job_id))

    def remove(self, job_id: JobId) -> None:
        """Take a job out."""
        rank, shape = self._entries.pop(job_id)
        del self._order[bisect_left(self._order, (rank, job_id))]
        members = self._shapes[shape]
        del members[bisect_left(members, (rank, job_id))]
        if not members:
            del self._shapes[shape]

    def place_of(self, job_id: JobId) -> int:
        """Return 1 for the next job, 2 for the one after it."""
        rank, _ = self._entries[job_id]
        return bisect_left(self._order, (rank, job_id)) + 1

    def shape_of(self, job_id: JobId) -> Hashable:
        """Return what this job asks for."""
        return self._entries[job_id][1]

    def pass_in_order(self) -> Pass:
        """Walk the queue once, in order, skipping shapes that were given up."""
        return Pass(self._shapes)


class Pass:
    """One walk over the queue. The queue may lose jobs that were handed out, nothing else may change meanwhile."""

    def __init__(self, shapes: dict[Hashable, list[tuple[Rank, JobId]]]) -> None:
        self._members = {shape: list(members) for shape, members in shapes.items()}
        self._next = dict.fromkeys(self._members, 0)
        # The counter stands between rank and shape, because shapes cannot be compared.
        self._heads = [(members[0][0], index, shape) for index, (shape, members) in enumerate(self._members.items())]
        heapify(self._heads)

    def next(self) -> tuple[JobId, Hashable] | None:
        """Return the next job and its shape, or None at the end."""
        if not self._heads:
            return None
        _, _, shape = self._heads[0]
        return self._members[shape][self._next[shape]][1], shape

    def placed(self) -> None:
        """The job that was handed out found a place: go on with the next of its shape."""
        _, index, shape = heappop(self._heads)
        self._next[shape] += 1
        if self._next[shape] < len(self._members[shape]):
            heappush(self._heads, (self._members[shape][self._next[shape]][0], index, shape))

    def give_up(self) -> None:
        """No job of this shape can be placed in this pass."""
        heappop(self._heads)
