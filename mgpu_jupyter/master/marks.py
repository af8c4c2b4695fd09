"""Steps on a job's way that are noted when they are seen, beside what decisions are made from. Values only."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mgpu_agent.protocol.ids import JobId

ATTEMPTS_REMEMBERED = 50
"""Of how many attempts of one job the store keeps record and marks, beside the current one."""
MARKS_WAIT_S = 1.0
"""A mark that comes with no other change is written after so long, so that it costs no commit of its own."""


class Step(StrEnum):
    """What is noted: of a node that it is prepared, of a rank that its first output came, and that all of it is kept here."""

    PREPARED = "prepared"
    OUTPUT = "output"
    COLLECTED = "collected"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """When a step was seen; only the first time counts."""

    job_id: JobId
    attempt: int
    step: str
    who: str
    """The node's name, or the number of the rank."""
    at: float
