"""What `cluster_config.yaml` may say, key by key. Values only; whatever is left out is left to the other settings."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.ids import NODE_ID_PATTERN
from mgpu_jupyter.model.limits import Limits
from mgpu_jupyter.model.settings import (
    Account,
    AtLeastOne,
    Count,
    Health,
    NotNegative,
    Partition,
    Planning,
    Positive,
    Qos,
    Quota,
    Retries,
    Weights,
)

Port = Annotated[int, Meta(ge=1, le=65535)]
Second = Annotated[float, Meta(ge=1)]
Tenth = Annotated[float, Meta(ge=0.1)]
CUSTOM = "custom"


class MasterPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the master is."""

    host: str = ""
    """The address to listen on, if it is one of this machine; what login lines name."""
    port: Port | None = None


class ClusterPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster itself."""

    name: str | None = None
    master: MasterPlace = MasterPlace()


class ExpectedNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine that is to join, and what it should be then."""

    node_id: Annotated[str, Meta(pattern=NODE_ID_PATTERN)]
    hostname: str = ""
    ip: str = ""
    port: Port | None = None
    """As in the earlier tools; shown, and needed by nobody."""
    gpu_count: Count | None = None
    gpu_type: str = ""
    """Part of the GPUs' name."""


class Networking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every wait on the network by name, in seconds, and what follows when it is over."""

    heartbeat_interval: Tenth | None = None
    timeout: Second | None = None
    retries: AtLeastOne | None = None
    """How often a job may fail to start before it is given up."""
    link_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    kill_grace: NotNegative | None = None
    on_disconnect: Literal["keep", "fence"] | None = None
    lease: Second | None = None
    lease_margin: NotNegative | None = None
    prepare_timeout: Tenth | None = None
    ping_timeout: Tenth | None = None
    follower_timeout: Second | None = None
    relay_connect_timeout: Tenth | None = None
    relay_answer_timeout: Tenth | None = None
    relay_health_timeout: Tenth | None = None
    backoff_base: NotNegative | None = None
    backoff_cap: NotNegative | None = None
    node_failures: AtLeastOne | None = None
    probe_after: Tenth | None = None
    probe_cap: Tenth | None = None


class SchedulingPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who starts when and where."""

    default_policy: str | None = None
    """fill_first, spread, topology, round_robin, or custom with `custom_policy`."""
    custom_policy: str | None = None
    """The name of a strategy of the site's own."""
    queue_policy: str | None = None
    max_job_time: Positive | None = None
    default_job_time: Positive | None = None
    weights: Weights | None = None
    planning: Planning | None = None
    retries: Retries | None = None
    quota: Quota | None = None
    half_life: Positive | None = None
    reorder: NotNegative | None = None
    preemption: bool | None = None
    share_busy_gpus: bool | None = None


class Security(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may what, and the certificate that `mgpu_master` serves."""

    enable_ssl: bool = False
    cert_file: str = ""
    key_file: str = ""
    admins: tuple[str, ...] | None = None
    privacy: Literal["full", "names", "none"] | None = None
    """What users see of the jobs of others."""


class LoggingPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is written down of the master's life."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] | None = None
    file: str = ""


class Retention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How long jobs that are over are kept; nothing set keeps them for ever."""

    max_age_days: Positive | None = None
    max_output_gb: Positive | None = None
    """Of all output together; the jobs that ended first go first."""
    max_jobs: Count | None = None
    """Of jobs that are over."""
    every_s: Second = 600.0
    env_days: NotNegative = 7.0
    """Values of --env are dropped so long after the end of their job, which cannot be run again from then on."""


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it."""

    cluster: ClusterPart = ClusterPart()
    nodes: tuple[ExpectedNode, ...] = ()
    networking: Networking = Networking()
    scheduling: SchedulingPart = SchedulingPart()
    security: Security = Security()
    logging: LoggingPart = LoggingPart()
    partitions: dict[str, Partition] = {}
    accounts: dict[str, Account] = {}
    qos: dict[str, Qos] = {}
    quotas: dict[str, Quota] = {}
    shares: dict[str, Positive] = {}
    retention: Retention = Retention()
    limits: Limits = Limits()
    health: Health = Health()
