"""What administrators set and do, in the words of REST: partitions, quotas, actions on nodes, users, tidying up. Values only."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.ids import NodeId


class PartitionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are used together, and what one job may have of them; None for no limit."""

    nodes: tuple[str, ...] = ()
    """Patterns of node ids; empty for all."""
    default: bool = False
    policy: str = ""
    max_time_s: float | None = None
    max_nodes: int | None = None
    max_gpus: int | None = None


class QuotaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Most that one user may have at once; None for no limit."""

    gpus: int | None = None
    running: int | None = None
    queued: int | None = None


class QosInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A class of service."""

    priority: float = 0.0
    preemptible: bool = False
    quota: QuotaInfo = QuotaInfo()


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


USER_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}$(?!\n)"


class NewUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person who is to use this master."""

    name: Annotated[str, Meta(pattern=USER_PATTERN)]
    role: Literal["user", "admin"] = "user"
    ttl_s: Annotated[float, Meta(gt=0, le=100 * 365 * 86_400)] | None = None
    """How long the login is good for; without it, until the user is removed."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A person of this master."""

    name: str
    role: str
    created_at: float
    expires_at: float | None = None


class UserList(msgspec.Struct, frozen=True, kw_only=True):
    """All users by name."""

    users: tuple[User, ...]


class NewLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A new user and the line to log in with, which is shown only here."""

    user: User
    line: str


class PurgeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs that are over are to be forgotten, with their output."""

    older_than_s: Annotated[float, Meta(ge=0, le=100 * 365 * 86_400)] = 30 * 86_400.0
    """Only those that ended so long ago."""
    user: Annotated[str, Meta(max_length=200)] | None = None
    """Whose; your own if it is left out. Others' are for administrators."""
    everybody: bool = False
    """Those of all users; for administrators."""
    dry_run: bool = False
    """Only count them."""


class PurgeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was forgotten, or would be."""

    jobs: int
    output_bytes: int
    """How much space their output took."""
    dry_run: bool = False


class ReplaceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be otherwise about a job that waits."""

    patch: dict[str, Any]
    """Fields of the request to set, as an offer of `explain` names them; null takes one out."""
