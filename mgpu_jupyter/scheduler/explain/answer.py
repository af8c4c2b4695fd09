"""The full answer to "why?", as values: what each unit lacks, who is ahead, when it may start, what would start it now."""

from __future__ import annotations

from typing import Any

import msgspec

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.scheduler.planning.priority import Term

STARTS = "now"
NOT_NOW = "not_now"
NEVER = "never"
STARTED = "started"
OVER = "over"


class Excluded(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that one check keeps a unit from, and what is missing there."""

    check: str
    text: str
    never: bool
    """No change of load can help."""
    count: int
    nodes: tuple[NodeId, ...]
    """The first few of them."""
    passed: tuple[str, ...] = ()
    """The checks before it, which they pass, in order."""


class UnitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Units of a job that need the same, and how each node answers them."""

    first: int
    """Number of the first of them."""
    count: int
    needs: str
    missing: int
    """How many of them find no node now."""
    would_do: int
    """Nodes that would do now."""
    given: tuple[NodeId, ...] = ()
    """The first few of those that they would get."""
    excluded: tuple[Excluded, ...] = ()


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """A job that comes before in the order."""

    job_id: JobId
    user: str
    gpus: int
    priority: float = 0.0
    """The sum of its terms."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What one node would give."""

    node: NodeId
    gpus: tuple[int, ...] = ()


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a job is expected to start, if all others end as expected; nothing set when nobody can say."""

    at: float | None = None
    promised: bool = False
    """Nobody who comes later may delay it."""
    later_than: float | None = None
    """It was looked ahead as far as this without finding its start."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has nodes, or is expected to get them, as far as it is planned."""

    job_id: JobId
    nodes: tuple[NodeId, ...]
    """Those of them that matter here."""
    start_at: float | None = None
    """None for one that has them already."""
    end_at: float | None = None
    """None for one that nothing ends."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the request with which it would start now."""

    text: str
    flags: tuple[str, ...]
    """What to change on the command line, one for each flag."""
    patch: dict[str, Any]
    """The fields of the request that change; null takes a field out."""
    where: tuple[Where, ...] = ()


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a job was told at one time, kept when it changes."""

    at: float
    code: str
    text: str
    never: bool = False
    units: tuple[UnitAnswer, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    verdict: str
    """`now`, `not_now`, `never`; for a job that no longer waits `started` or `over`."""
    code: str
    text: str
    """The answer in one sentence."""
    where: tuple[Where, ...] = ()
    """Where it would start now, or runs."""
    units: tuple[UnitAnswer, ...] = ()
    place: int | None = None
    ahead_count: int = 0
    ahead: tuple[Ahead, ...] = ()
    """The first few of those ahead."""
    terms: tuple[Term, ...] = ()
    priority: float | None = None
    """The sum of the terms."""
    expected: Forecast = Forecast()
    plan: tuple[Planned, ...] = ()
    """Who has or gets the nodes that it is expected on, itself first."""
    offers: tuple[Offer, ...] = ()
