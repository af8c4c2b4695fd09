"""The standing of a node: orders of operators, results of its starts, and the one state that people see.
Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.model.settings import Lists


class NodeOrders(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What operators want of a node, kept apart from what is heard of it."""

    state: NodeState | None = None
    """Draining or maintenance; None when it is to work."""
    reason: str = ""
    by: str = ""
    at: float = 0.0
    lists: Lists = Lists()
    """Who may use it."""
    lists_reason: str = ""
    lists_by: str = ""
    lists_at: float = 0.0
    labels: dict[str, str] = {}
    """In addition to those that the node brings, and in place of those of the same name."""
    labels_reason: str = ""
    labels_by: str = ""
    labels_at: float = 0.0


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The results of starts on a node, and when the next trial is due if they failed."""

    failures: int = 0
    """Failed starts in a row."""
    failures_total: int = 0
    failed_at: float | None = None
    trouble: str = ""
    """What made it unhealthy, as a sentence; empty while it is healthy."""
    probe_at: float | None = None
    """When the next trial is due, or when the answer to one is overdue."""
    probe_delay_s: float = 0.0
    """The last delay before a trial; 0 once a job started."""
    probe: int = 0
    """The number of the trial that is under way; 0 when none is."""

    @property
    def is_unhealthy(self) -> bool:
        """Tell whether too many starts in a row failed."""
        return bool(self.trouble)


def seen_as(
    link: NodeState, link_reason: str, orders: NodeOrders, health: NodeHealth, ailments: tuple[str, ...] = ()
) -> tuple[NodeState, str]:
    """Return the state that people see and its reason: a lost connection takes precedence over orders, and
    orders over health.
    """
    if link is not NodeState.ONLINE:
        return link, link_reason
    if orders.state is not None:
        what = "Drained" if orders.state is NodeState.DRAINING else "In maintenance, set"
        return orders.state, by_whom(what, orders.by, orders.reason)
    if health.is_unhealthy:
        when = (
            "It is being tried now."
            if health.probe or health.probe_at is None
            else f"It is tried again at {clock_time(health.probe_at)}."
        )
        return NodeState.UNHEALTHY, f"{health.trouble} {when}"
    if ailments:
        return NodeState.UNHEALTHY, " ".join(ailments)
    return NodeState.ONLINE, ""


def by_whom(what: str, by: str, reason: str) -> str:
    """Return one sentence that says who did it and why."""
    return f"{what} by {by}{f': {reason}' if reason else ''}".rstrip(".") + "."


def day_and_time(at: float) -> str:
    """Return a moment that may be days ago, in the same form for all readers."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock_time(at: float) -> str:
    """Return a time of day, in the same form for all readers."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
