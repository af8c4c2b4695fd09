"""The queue as numbered versions, and what changed between two of them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence

import msgspec

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api.frames import QueueFrame, Why
from mgpu_jupyter.master.queue_snapshot import QueueSnapshot


class Version(msgspec.Struct, frozen=True):
    """The queue at one moment."""

    number: int
    order: tuple[JobId, ...] = ()
    why: Mapping[JobId, int] = {}
    reasons: Mapping[int, Why] = {}
    expected: Mapping[JobId, float] = {}


class Numbers:
    """Gives each reason a number that stays the same as long as the reason."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._next = 1

    def version(self, number: int, snapshot: QueueSnapshot) -> Version:
        """Return a snapshot as a version."""
        numbers: dict[Hashable, int] = {}
        for key in snapshot.reasons:
            numbers[key] = self._numbers.get(key) or self._new()
        self._numbers = numbers
        return Version(
            number,
            tuple(snapshot.order),
            dict(zip(snapshot.order, map(numbers.__getitem__, snapshot.keys), strict=True)),
            {numbers[key]: Why(reason.code, reason.text) for key, reason in snapshot.reasons.items()},
            {job_id: round(start, 0) for job_id, start in snapshot.expected.items()},
        )

    def _new(self) -> int:
        number, self._next = self._next, self._next + 1
        return number


def is_same(one: Version, other: Version) -> bool:
    """Tell whether two versions are equal."""
    return (one.order, one.why, one.reasons, one.expected) == (
        other.order,
        other.why,
        other.reasons,
        other.expected,
    )


def whole(version: Version) -> QueueFrame:
    """Return the frame with a whole version."""
    return QueueFrame(
        version=version.number,
        inserted=((0, version.order),) if version.order else (),
        reasons={str(number): one for number, one in version.reasons.items()},
        why=dict(version.why),
        expected=dict(version.expected),
    )


def difference(old: Version, new: Version) -> QueueFrame:
    """Return the frame that turns the old version into the new one; as large as what changed."""
    stay = _stay(old, new)
    expected: dict[JobId, float | None] = {
        job_id: start for job_id, start in new.expected.items() if old.expected.get(job_id) != start
    }
    expected.update(
        dict.fromkeys(
            (job_id for job_id in old.expected if job_id in new.why and job_id not in new.expected), None
        )
    )
    return QueueFrame(
        version=new.number,
        base=old.number,
        removed=()
        if len(stay) == len(old.order)
        else tuple(job_id for job_id in old.order if job_id not in stay),
        inserted=() if len(stay) == len(new.order) else tuple(_runs(new.order, stay)),
        reasons={str(number): one for number, one in new.reasons.items() if old.reasons.get(number) != one},
        why=dict(new.why.items() - old.why.items()),
        expected=expected,
    )


def _stay(old: Version, new: Version) -> set[JobId]:
    """Return the largest set of jobs that keep their relative order, so that few have to move."""
    before = [job_id for job_id in old.order if job_id in new.why]
    after = [job_id for job_id in new.order if job_id in old.why]
    if before == after:
        return set(after)
    start, end = 0, len(before)
    while before[start] == after[start]:
        start += 1
    while before[end - 1] == after[end - 1]:
        end -= 1
    place = {job_id: index for index, job_id in enumerate(before[start:end])}
    middle = after[start:end]
    rising = _rising([place[job_id] for job_id in middle])
    return {*after[:start], *after[end:], *(middle[index] for index in rising)}


def _rising(numbers: Sequence[int]) -> list[int]:
    """Return the indices of a longest rising sequence."""
    tails: list[int] = []
    at: list[int] = []
    before: list[int] = [-1] * len(numbers)
    for index, number in enumerate(numbers):
        place = bisect_left(tails, number)
        before[index] = at[place - 1] if place else -1
        tails[place : place + 1] = [number]
        at[place : place + 1] = [index]
    found: list[int] = []
    index = at[-1]
    while index >= 0:
        found.append(index)
        index = before[index]
    return found


def _runs(order: Sequence[JobId], stay: set[JobId]) -> list[tuple[int, tuple[JobId, ...]]]:
    runs: list[tuple[int, tuple[JobId, ...]]] = []
    begun: int | None = None
    for index, job_id in enumerate(order):
        if job_id in stay:
            if begun is not None:
                runs.append((begun, tuple(order[begun:index])))
                begun = None
        elif begun is None:
            begun = index
    if begun is not None:
        runs.append((begun, tuple(order[begun:])))
    return runs
