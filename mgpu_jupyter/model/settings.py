"""What a site decides about scheduling (partitions, accounts, QoS, quotas, weights, backfill, retries),
nodes, and how much one user may ask at once. Values only; pure.
"""

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
    """Who may use something. An empty `allow` admits everybody; `deny` takes precedence over `allow`."""

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
    """Whether jobs that name no partition go here."""
    policy: Word = ""
    """Strategy that picks nodes here; empty for the cluster's."""
    max_time_s: Positive | None = None
    """Longest time limit of one job."""
    max_nodes: Annotated[int, Meta(ge=1)] | None = None
    """Most nodes of one job."""
    max_gpus: Count | None = None
    """Most GPUs of one job."""
    allow_users: tuple[str, ...] = ()
    """Who may use it; empty, with `allow_accounts`, for all."""
    deny_users: tuple[str, ...] = ()
    """Who may not, whatever is allowed."""
    allow_accounts: tuple[str, ...] = ()
    """Accounts that may use it."""
    deny_accounts: tuple[str, ...] = ()
    """Accounts that may not."""

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
    """Its fair share, against those of other accounts."""
    quota: Quota = Quota()
    """What all its jobs may have together."""


class Qos(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A class of service."""

    priority: float = 0.0
    """Points added to its jobs' priority, each worth an hour of waiting."""
    preemptible: bool = False
    """Its jobs may be ended and queued again for a job of a QoS with a higher priority."""
    grace_s: NotNegative | None = None
    """Time between TERM and KILL when it is preempted; None for the cluster's."""
    quota: Quota = Quota()
    """For each user within this QoS."""
    allow_users: tuple[str, ...] = ()
    """Who may ask for it; empty for all."""


class Weights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The weights of a job's priority. The unit is hours of waiting: each hour in the queue is worth `age`
    points.
    """

    age: NotNegative = 1.0
    """Added for each hour of waiting."""
    duration: float = 3.0
    """Subtracted for each hour it is expected to run."""
    duration_cap_h: NotNegative = 24.0
    """Hours beyond this do not count, so that no job falls behind for ever."""
    work: float = 0.0
    """Subtracted for each GPU-hour it is expected to use."""
    size: float = 0.0
    """Added for each GPU."""
    fair_share: NotNegative = 12.0
    """Added in full for a user without use, half for one who used exactly their share."""
    priority: NotNegative = 1_000.0
    """For each step of --priority."""
    qos: NotNegative = 1.0
    """For each point of the QoS."""


class Planning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The order of the queue and who may overtake whom."""

    weights: Weights = Weights()
    """The weights of the order."""
    overtake: bool = True
    """Whether a job may start before one ahead of it has; False is FIFO."""
    reservations: Annotated[int, Meta(ge=0, le=MAX_RESERVATIONS)] = 1
    """How many waiting jobs at the head keep a promised start: 0 none (skipping), 1 EASY, more
    conservative.
    """
    spare: bool = True
    """On nodes with several GPUs, let a job run past the head's start on GPUs that the head will not need;
    else by time alone.
    """
    sticky: bool = False
    """Whether a promise stays with its job, even when another comes before it in the order."""
    learn: bool = True
    """Expect the durations of this user's earlier jobs of the same name, where no limit is set or it is far
    off.
    """


class Retries(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Starts that fail, and nodes on which they do."""

    max_failed_starts: Annotated[int, Meta(ge=1)] = 5
    """How often a job may fail to start before it is given up."""
    backoff_base_s: NotNegative = 1.0
    """The pause after a first failed start; doubled each time."""
    backoff_cap_s: NotNegative = 30.0
    """The longest such pause."""
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.25
    """Delays vary by this fraction in both directions."""
    node_failures: Annotated[int, Meta(ge=1)] = 3
    """How many failed starts in a row make a node unhealthy."""
    probe_after_s: Positive = 30.0
    """When an unhealthy node is tried again; doubled each time it fails, up to `probe_cap_s`."""
    probe_cap_s: Positive = 1800.0
    """The longest time between two trials."""


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The health checks of nodes; a failed one takes the node or the GPU out, and a passed one takes it
    back.
    """

    every_s: Positive = 30.0
    """How often a node runs its checks."""
    min_free_mb: NotNegative = 16.0
    """MiB that should be free on the disk of a node's state."""
    clock_skew_s: Positive = 60.0
    """How far a node's clock may be from the master's."""
    program: tuple[str, ...] = ()
    """A program of the site's own, run on every node, as words: exit code 0 means healthy; else its output is
    the reason.
    """
    program_timeout_s: Positive = 30.0
    """How long that program may take."""


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes are told when they join, and when their silence counts."""

    cluster: str
    heartbeat_s: float = 2.0
    sample_s: float = 2.0
    timeout_s: float = 60.0
    output_window_bytes: int = 4 * 1024 * 1024
    health: Health = Health()


class Scheduling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All settings about scheduling."""

    strategy: Word = "fill_first"
    """How nodes are picked: `MgpuApp.default_policy`."""
    planning: Planning = Planning()
    """The order of the queue and who may overtake whom."""
    retries: Retries = Retries()
    """Starts that fail, and nodes on which they do."""
    partitions: dict[str, Partition] = {}
    """As `MgpuApp.partitions`."""
    accounts: dict[str, Account] = {}
    """As `MgpuApp.accounts`."""
    qos: dict[str, Qos] = {}
    """As `MgpuApp.qos`."""
    quota: Quota = Quota()
    """For each user."""
    quotas: dict[str, Quota] = {}
    """For single users, in place of `quota`."""
    shares: dict[str, Annotated[float, Meta(gt=0)]] = {}
    """Shares of single users; 1 for all others."""
    half_life_s: Positive = 7 * 86_400.0
    """After this time, past use counts half."""
    reorder_s: NotNegative = 60.0
    """How often priorities that change with time are recomputed."""
    default_time_s: Positive = 3600.0
    """The expected duration of a job of which nothing is known."""
    max_time_s: Positive | None = None
    """No job runs longer than this."""
    queued_bytes: Count = 256 * 1024**2
    """The most bytes of all waiting requests of one user; 0 for no limit."""
    preemption: bool = False
    """Whether jobs of a preemptible QoS are ended for others."""


GIB = 1024**3


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What exceeds one is refused with 429 and a sentence. 0 bytes mean no limit."""

    at_once: AtLeastOne = 64
    """Requests that are handled at a time; of one user half of them. Others wait, and users take turns."""
    heavy_at_once: AtLeastOne = 16
    """The same for those that compute long or ask nodes."""
    waiting: AtLeastOne = 1000
    """Requests of one user that may wait for their turn."""
    requests_per_s: Positive = 2000.0
    """Requests of one user in a second."""
    heavy_per_s: Positive = 20.0
    """Of these, those that compute long or ask nodes."""
    burst_s: Positive = 5.0
    """How many seconds' worth of requests may come at once."""
    streams: AtLeastOne = 256
    """WebSockets, followed output and file transfers of one user."""
    body_mb: AtLeastOne = 64
    """The bodies of one user's requests that are being handled."""
    folder_bytes: Count = 20 * GIB
    """One folder (--sync) when it is laid out on a node, and the variables (--in) of one cell."""
    results_bytes: Count = 20 * GIB
    """The results of one attempt on one node, files (--results) and variables (--out) together."""
    user_folders_bytes: Count | None = None
    """Folders and variables of one user that are kept; half of `folders_cap` if not set."""
    user_output_bytes: Count | None = None
    """Output of all jobs of one user; a quarter of the disk if not set."""
    user_results_bytes: Count | None = None
    """Results of all jobs of one user; a quarter of the disk if not set."""
    user_queued_bytes: Count = 256 * 1024**2
    """All requests of one user that wait, with their scripts and environments."""
