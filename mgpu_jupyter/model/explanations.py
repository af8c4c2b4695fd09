"""The answer to "why?", as the scheduler gives it and as clients read it. Values only; it may grow new
fields.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mgpu_agent.protocol.ids import JobId, NodeId


class Excluded(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that fail one check for a unit, and what is missing there."""

    check: str
    text: str
    never: bool
    """Whether no change of load can help."""
    count: int
    nodes: tuple[NodeId, ...]
    """The first eight of them."""
    passed: tuple[str, ...] = ()
    """The checks before it, which they pass, in order."""


class UnitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Units of a job that need the same (a unit is what one node must give), and the nodes' answers."""

    first: int
    """Number of the first of them."""
    count: int
    needs: str
    missing: int
    """How many of them find no node now."""
    would_do: int
    """Nodes that would do now."""
    given: tuple[NodeId, ...] = ()
    """The first eight of those that they would get."""
    excluded: tuple[Excluded, ...] = ()


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is ahead in the queue."""

    job_id: JobId
    user: str
    gpus: int
    priority: float = 0.0
    """The sum of its terms."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What one node gives: GPUs by index."""

    node: NodeId
    gpus: tuple[int, ...] = ()


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """One summand of a priority: what it counts, how much of it there is, and its value in hours of
    waiting.
    """

    name: str
    amount: float
    points: float


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a job is expected to start, if all others end as expected; nothing is set when that is unknown."""

    at: float | None = None
    promised: bool = False
    """Whether no later job may delay it."""
    later_than: float | None = None
    """The forecast reached this far without finding its start."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has nodes, or is expected to get them, as far as it is planned."""

    job_id: JobId
    """Empty for a request that is not submitted."""
    nodes: tuple[NodeId, ...]
    """Those of them that matter here, at most eight for all jobs together."""
    start_at: float | None = None
    """None for a job that has them already."""
    end_at: float | None = None
    """None for a job without an expected end."""


class NodeOutlook(msgspec.Struct, frozen=True, kw_only=True):
    """The waiting jobs that are expected on a node, if all others end as expected and no new ones come; as
    far as the forecast goes.
    """

    node: NodeId
    jobs: tuple[Planned, ...] = ()
    """The next 64, the next one first."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the request with which it would start now. For a job that waits: cancel it and submit the
    changed request.
    """

    text: str
    flags: tuple[str, ...]
    """What to change on the command line."""
    patch: dict[str, Any]
    """The fields of the request to set; null takes one out."""
    where: tuple[Where, ...] = ()


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a job was told from some time on."""

    at: float
    code: str
    text: str
    never: bool = False
    units: tuple[UnitAnswer, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job waits, or what would happen to a request."""

    verdict: Literal["now", "not_now", "never", "started", "over"]
    """`now`: it would start. `not_now`, `never`: whether a change of load can help. `started`, `over`: it
    does not wait any more.
    """
    code: str
    text: str
    """The answer in one sentence."""
    job_id: JobId | None = None
    """None for a request that is not submitted."""
    where: tuple[Where, ...] = ()
    """Where it would start now, or ran last."""
    units: tuple[UnitAnswer, ...] = ()
    place: int | None = None
    """1 is next."""
    ahead_count: int = 0
    ahead: tuple[Ahead, ...] = ()
    """The first five of those ahead."""
    terms: tuple[Term, ...] = ()
    priority: float | None = None
    """The sum of the terms."""
    expected: Forecast = Forecast()
    plan: tuple[Planned, ...] = ()
    """Who has or gets the nodes that it is expected on, itself first; empty when those are not known."""
    offers: tuple[Offer, ...] = ()
    """The smallest changes with which it would start now, the smallest first."""
    history: tuple[Record, ...] = ()
    """The last 50 changes of its answer, oldest first."""
