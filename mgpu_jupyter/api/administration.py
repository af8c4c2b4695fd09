"""Bodies about what administrators set and do: partitions, quotas, nodes, join lines, users. Values only."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.ids import NODE_ID_PATTERN, NodeId


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

NodeActionName = Literal[
    "drain", "resume", "maintenance", "allow", "deny", "only", "clear-lists", "label", "remove", "revoke"
]
Names = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...], Meta(max_length=MAX_NAMES)]

LabelName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,62}$(?!\n)")]
LabelValue = Annotated[str, Meta(pattern=r"^([A-Za-z0-9_.][A-Za-z0-9_./:-]{0,62})?$(?!\n)")]


class NodeAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What an administrator does to a node, and why."""

    action: NodeActionName
    """`drain`, `maintenance`: no new jobs, what runs goes on. `resume`: jobs again. `allow`, `deny`: who may
    use it; `only`: nobody but those named; `clear-lists`: everybody. `label`: labels for --constraint.
    `remove`: an offline node is forgotten. `revoke`: its key is refused from now on, and what it runs is
    given up.
    """
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""
    users: Names = ()
    """For `allow`, `deny` and `only`."""
    accounts: Names = ()
    labels: Annotated[dict[LabelName, LabelValue | None], Meta(max_length=MAX_NAMES)] = {}
    """For `label`: values by name; null removes a label that was set by `label`."""


class NodeActionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an order about a node."""

    node_id: NodeId
    action: str
    message: str


USER_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}$(?!\n)"


class NewUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new user of this master."""

    name: Annotated[str, Meta(pattern=USER_PATTERN)]
    role: Literal["user", "admin"] = "user"
    ttl_s: Annotated[float, Meta(gt=0, le=100 * 365 * 86_400)] | None = None
    """How long the login is valid; without it, until the user is removed."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user of this master."""

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
    """Which ended jobs to forget, with their output."""

    older_than_s: Annotated[float, Meta(ge=0, le=100 * 365 * 86_400)] = 30 * 86_400.0
    """Only those that ended at least this long ago."""
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


MAX_LISTEN = 16
MAX_JOIN_TTL_S = 30 * 86_400


class JoinTokenRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a join line for one new machine."""

    node_id: Annotated[str, Meta(pattern=NODE_ID_PATTERN)] | None = None
    """The only name that it may be used for; any new name if left out."""
    ttl_s: Annotated[float, Meta(ge=1, le=MAX_JOIN_TTL_S)] = 3600.0
    listen: Annotated[tuple[str, ...], Meta(max_length=MAX_LISTEN)] = ()
    """Addresses of this machine on which the link listens from now on; that of the default route if none is
    known.
    """


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """The line to paste. It holds a secret that works once."""

    command: str
    """`mgpu_node --join …`"""
    line: str
    expires_at: float
    addresses: tuple[str, ...]
    """The addresses at which the new machine looks for the master."""
    node_id: NodeId | None = None
    message: str = ""
    """Set when the link began to listen on an address."""
