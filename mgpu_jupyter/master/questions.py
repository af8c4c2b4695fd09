"""Questions to nodes that are open: who waits for which answer. Sends nothing; nothing depends on it but what people are shown."""

from __future__ import annotations

from collections.abc import Callable

from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.messages import Pong
from mgpu_agent.protocol.model import CellWish
from mgpu_jupyter.master.node_link import Answer, AskNode

QUESTIONS_REMEMBERED = 1_000

OnAnswer = Callable[[Pong | None], None]
"""Called on the master's thread with what a node answered; None when it is away."""


class Questions:
    """Used by the master's thread."""

    def __init__(self) -> None:
        self._number = 0
        self._open: dict[int, tuple[NodeId, OnAnswer]] = {}

    def ask(self, node_id: NodeId, key: AttemptKey | None, on_answer: OnAnswer, cell: CellWish | None = None) -> AskNode:
        """Return the question to send; the oldest open ones are given up when there are too many."""
        self._number += 1
        self._open[self._number] = (node_id, on_answer)
        if len(self._open) > QUESTIONS_REMEMBERED:
            del self._open[next(iter(self._open))]
        return AskNode(node_id, self._number, key, cell)

    def take(self, answer: Answer) -> None:
        """Pass an answer on to who asked this node; one that nobody asked for is dropped."""
        asked = self._open.get(answer.number)
        if asked is not None and asked[0] == answer.node_id:
            del self._open[answer.number]
            asked[1](answer.pong)
