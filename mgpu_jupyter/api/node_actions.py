"""What administrators do to a node, in the words of REST. Values only."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.ids import NodeId

MAX_REASON = 500
MAX_NAMES = 1_000

NodeActionName = Literal["drain", "resume", "maintenance", "allow", "deny", "only", "clear-lists", "label", "remove", "revoke"]
Names = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...], Meta(max_length=MAX_NAMES)]


LabelName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,62}$(?!\n)")]
LabelValue = Annotated[str, Meta(pattern=r"^([A-Za-z0-9_.][A-Za-z0-9_./:-]{0,62})?$(?!\n)")]


class NodeAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an administrator does to a node, and why."""

    action: NodeActionName
    """`drain`, `maintenance`: no new jobs, what runs goes on. `resume`: jobs again. `allow`, `deny`: who may use it; `only`: nobody
    but those named; `clear-lists`: everybody. `label`: what --constraint is about. `remove`: an offline node is forgotten.
    `revoke`: its key is refused from now on, and what it runs is lost to it."""
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""
    users: Names = ()
    """For `allow`, `deny` and `only`."""
    accounts: Names = ()
    labels: Annotated[dict[LabelName, LabelValue | None], Meta(max_length=MAX_NAMES)] = {}
    """For `label`: values by name; null takes a label off again that was given by `label`."""


class NodeActionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the node."""

    node_id: NodeId
    action: str
    message: str
