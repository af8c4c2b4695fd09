"""What is noted of jobs beside decisions: when a step of a job's way was seen, and what nodes answer when they are asked who they are.

Nothing depends on it but what people are shown. Used by the master's thread.
"""

from __future__ import annotations

from collections.abc import Callable

from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.messages import Ping, Pong
from mgpu_agent.protocol.model import CellWish
from mgpu_jupyter.master.marks import Mark, OnPong, Step

PINGS_REMEMBERED = 1_000


class Witness:
    """Keeps marks until they are taken, and the questions that are open."""

    def __init__(self, clock: Callable[[], float], has: Callable[[NodeId, AttemptKey], bool]) -> None:
        self._clock = clock
        self._has = has
        self._marks: list[Mark] = []
        self._number = 0
        self._open: dict[int, tuple[NodeId, OnPong]] = {}

    def note(self, step: Step, node_id: NodeId, key: AttemptKey, rank: int | None = None) -> None:
        """Note that this node, or a rank of what it was given, got so far now; what others say of it is not noted."""
        if self._has(node_id, key):
            who = node_id if rank is None else str(rank)
            self._marks.append(Mark(job_id=key.job_id, attempt=key.attempt, step=step, who=who, at=self._clock()))

    def take_marks(self) -> list[Mark]:
        """Return what was noted since the last call."""
        marks, self._marks = self._marks, []
        return marks

    def ask(self, node_id: NodeId, key: AttemptKey | None, answer: OnPong, cell: CellWish | None = None) -> Ping:
        """Return the question to send; the oldest open ones are given up when there are too many."""
        self._number += 1
        self._open[self._number] = (node_id, answer)
        if len(self._open) > PINGS_REMEMBERED:
            del self._open[next(iter(self._open))]
        return Ping(number=self._number, key=key, cell=cell)

    def take(self, node_id: NodeId, pong: Pong) -> None:
        """Pass an answer on to who asked this node; one that nobody asked for is dropped."""
        asked = self._open.get(pong.number)
        if asked is not None and asked[0] == node_id:
            del self._open[pong.number]
            asked[1](pong)
