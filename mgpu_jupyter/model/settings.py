"""What a site decides about scheduling (partitions, accounts, QoS, quotas, weights, backfill, retries) and nodes. Values only; pure."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_jupyter.model.job import Word

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
MAX_RESERVATIONS = 100


class Lists(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Who may use something. An empty `allow` lets in everybody; `deny` goes before `allow`."""

    allow_users: tuple[str, ...] = ()
    deny_users: tuple[str, ...] = ()
    allow_accounts: tuple[str, ...] = ()
    deny_accounts: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.allow_users or self.deny_users or self.allow_accounts or self.deny_accounts)

    def admit(self, user: str, account: str) -> bool:
        """Tell whether a job of this user under this account may use it."""
        if user in self.deny_users or account in self.deny_accounts:
            return False
        if not self.allow_users and not self.allow_accounts:
            return True
        return user in self.allow_users or account in self.allow_accounts


class Partition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Nodes that are used together, under rules of their own."""

    nodes: tuple[str, ...] = ()
    """Node ids, `*` within them for anything; empty for all nodes."""
    default: bool = False
    """Where jobs go that name no partition."""
    policy: Word = ""
    """Strategy that picks nodes here; empty for the cluster's."""
    max_time_s: Positive | None = None
    max_nodes: Annotated[int, Meta(ge=1)] | None = None
    max_gpus: Count | None = None
    """Most GPUs of one job."""
    allow_users: tuple[str, ...] = ()
    deny_users: tuple[str, ...] = ()
    allow_accounts: tuple[str, ...] = ()
    deny_accounts: tuple[str, ...] = ()

    @property
    def lists(self) -> Lists:
        """Who may use it."""
        return Lists(
            allow_users=self.allow_users,
            deny_users=self.deny_users,
            allow_accounts=self.allow_accounts,
            deny_accounts=self.deny_accounts,
        )


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much one user or account may have."""

    gpus: Count | None = None
    """GPUs at once."""
    running: Count | None = None
    """Jobs that run at once."""
    queued: Count | None = None
    """Jobs that wait; more are refused."""


class Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A group or project that jobs are counted for."""

    users: tuple[str, ...] = ()
    """Who may use it; empty for all."""
    shares: Positive = 1.0
    quota: Quota = Quota()


class Qos(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A class of service."""

    priority: float = 0.0
    preemptible: bool = False
    """Its jobs may be ended and queued again for a job of a QoS with a higher priority."""
    grace_s: NotNegative | None = None
    """Time between TERM and KILL when it is preempted; None for the cluster's."""
    quota: Quota = Quota()
    """For each user within this QoS."""
    allow_users: tuple[str, ...] = ()
    """Who may ask for it; empty for all."""


class Weights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What counts how much in a job's priority. The unit is hours of waiting: each hour in the queue is worth `age` points."""

    age: NotNegative = 1.0
    duration: float = 3.0
    """Taken off for each hour it is expected to run."""
    duration_cap_h: NotNegative = 24.0
    """Hours beyond this count no more, so that no job falls behind for ever."""
    work: float = 0.0
    """Taken off for each GPU-hour it is expected to use."""
    size: float = 0.0
    """Added for each GPU."""
    fair_share: NotNegative = 12.0
    """Added whole to one who used nothing, half to one who used exactly their share."""
    priority: NotNegative = 1_000.0
    """For each step of --priority."""
    qos: NotNegative = 1.0
    """For each point of the QoS."""


class Planning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The order of the queue and who may overtake whom."""

    weights: Weights = Weights()
    overtake: bool = True
    """False: nobody starts before the one ahead of them has (FIFO)."""
    reservations: Annotated[int, Meta(ge=0, le=MAX_RESERVATIONS)] = 1
    """How many waiting jobs at the head keep a promised start: 0 none (skipping), 1 EASY, more conservative."""
    spare: bool = True
    """On nodes with several GPUs, let a job run past the head's start on GPUs that the head will not need; else by time alone."""
    sticky: bool = False
    """Who has the promise keeps it, even when another comes before them in the order."""
    learn: bool = True
    """Expect what this user's jobs of this name took before, where no limit is given or it is far off."""


class Retries(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Starts that fail, and nodes on which they do."""

    max_failed_starts: Annotated[int, Meta(ge=1)] = 5
    backoff_base_s: NotNegative = 1.0
    backoff_cap_s: NotNegative = 30.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.25
    """Delays are spread by this part of themselves to both sides."""
    node_failures: Annotated[int, Meta(ge=1)] = 3
    """So many failed starts in a row make a node unhealthy."""
    probe_after_s: Positive = 30.0
    """When an unhealthy node is tried again; doubled each time it fails, up to `probe_cap_s`."""
    probe_cap_s: Positive = 1800.0


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What nodes are looked after for; what fails takes the node or the GPU out, and brings it back when it passes."""

    every_s: Positive = 30.0
    """How often a node looks."""
    min_free_mb: NotNegative = 16.0
    """Megabytes that should be free on the disk of a node's state."""
    clock_skew_s: Positive = 60.0
    """How far a node's clock may be from the master's."""
    program: tuple[str, ...] = ()
    """A program of the site's own, run on every node, as words: exit code 0 is well; else what it prints is the reason."""
    program_timeout_s: Positive = 30.0


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes are told when they join, and when their silence counts."""

    cluster: str
    heartbeat_s: float = 2.0
    sample_s: float = 2.0
    timeout_s: float = 60.0
    output_window_bytes: int = 4 * 1024 * 1024
    health: Health = Health()


class Scheduling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All of it."""

    strategy: Word = "fill_first"
    planning: Planning = Planning()
    retries: Retries = Retries()
    partitions: dict[str, Partition] = {}
    accounts: dict[str, Account] = {}
    qos: dict[str, Qos] = {}
    quota: Quota = Quota()
    """For each user."""
    quotas: dict[str, Quota] = {}
    """For single users, in place of `quota`."""
    shares: dict[str, Annotated[float, Meta(gt=0)]] = {}
    """Shares of single users; 1 for all others."""
    half_life_s: Positive = 7 * 86_400.0
    """After this time, what was used counts half."""
    reorder_s: NotNegative = 60.0
    """How often priorities that change with time are computed anew."""
    default_time_s: Positive = 3600.0
    """How long a job is expected to run of which nothing is known."""
    max_time_s: Positive | None = None
    """No job runs longer than this."""
    queued_bytes: Count = 256 * 1024**2
    """What all requests of one user that wait may have together; 0 for no limit."""
    preemption: bool = False
