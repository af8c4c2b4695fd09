"""What was told last, so that only a change is recorded. Data alone; `history` reads and writes it."""

from __future__ import annotations

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.scheduler.planning.queue import Lane

ClaimKey = tuple[str, str, str, str | None, int]
"""Who asks for how much: user, account, QoS, array, GPUs. Quotas answer all of one key alike."""


class Notes:
    """What waiting jobs were told last."""

    def __init__(self) -> None:
        self.aside: list[Job] = []
        """Jobs that went aside with the event that is being handled: held, delayed, or waiting for others."""
        self.promised: dict[JobId, float] = {}
        self.refused: dict[ClaimKey, None] = {}
        self.lanes: dict[Lane, tuple[float, object]] = {}
        """For each lane, what the pass found (`until`, as a kind) and what was recorded."""
        self.looks = 0.0
        """How many nodes may be looked at, as of `looked_at`."""
        self.looked_at = 0.0
        self.turn = 0
        """Which lane is looked at next when none has changed."""
