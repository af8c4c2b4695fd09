"""The keys of `cluster_config.yaml`. Values only; what is left out is left to the other settings."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.ids import NODE_ID_PATTERN
from mgpu_jupyter.model.settings import (
    Account,
    AtLeastOne,
    Count,
    Health,
    Limits,
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
    """The address to listen on, if it is one of this machine; login lines contain it."""
    port: Port | None = None
    """The port to listen on; 8080 by default."""


class ClusterPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster itself."""

    name: str | None = None
    """The name of the cluster, as `MgpuApp.cluster_name`."""
    master: MasterPlace = MasterPlace()
    """Where `mgpu_master` listens, unless its flags say so."""


class ExpectedNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine that is expected to join, and its expected properties."""

    node_id: Annotated[str, Meta(pattern=NODE_ID_PATTERN)]
    """The name under which it joins."""
    hostname: str = ""
    """The machine's host name."""
    ip: str = ""
    """The address that it should announce."""
    port: Port | None = None
    """As in the earlier tools; shown only."""
    gpu_count: Count | None = None
    """How many GPUs it should have."""
    gpu_type: str = ""
    """Part of the GPUs' name."""


class Networking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every wait on the network by name, in seconds."""

    heartbeat_interval: Tenth | None = None
    timeout: Second | None = None
    """Silence after which a node is suspect."""
    offline_after: Second | None = None
    """Silence after which a suspect node counts as offline."""
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
    """The pause after a first failed start; doubled each time."""
    backoff_cap: NotNegative | None = None
    """The longest such pause."""
    node_failures: AtLeastOne | None = None
    probe_after: Tenth | None = None
    probe_cap: Tenth | None = None


class SchedulingPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs start when and where."""

    default_policy: str | None = None
    """fill_first, spread, topology, round_robin, or custom with `custom_policy`."""
    custom_policy: str | None = None
    """The name of a strategy of the site's own."""
    queue_policy: str | None = None
    max_job_time: Positive | None = None
    default_job_time: Positive | None = None
    """The expected duration of a job of which nothing is known; an hour if not set."""
    weights: Weights | None = None
    """The weights of the terms of a priority."""
    planning: Planning | None = None
    """The order of the queue and who may overtake whom."""
    retries: Retries | None = None
    """Starts that fail, and nodes on which they do."""
    quota: Quota | None = None
    """What each user may have."""
    half_life: Positive | None = None
    """After this many seconds, past use counts half."""
    reorder: NotNegative | None = None
    """Every this many seconds, priorities that change with time are recomputed."""
    preemption: bool | None = None
    """Whether jobs of a preemptible QoS are ended for others."""
    share_busy_gpus: bool | None = None


class Security(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rights, and the certificate that `mgpu_master` serves."""

    enable_ssl: bool = False
    """Serve HTTPS on loopback, too; beyond loopback it is always used."""
    cert_file: str = ""
    """With `enable_ssl`: a certificate of the site's own; without it one is made."""
    key_file: str = ""
    """Its key."""
    admins: tuple[str, ...] | None = None
    """Users who may cancel and read all jobs, as `MgpuApp.admins`."""
    privacy: Literal["full", "names", "none"] | None = None
    """What users see of the jobs of others."""


class LoggingPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log of the master."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] | None = None
    """The least level that is logged."""
    file: str = ""
    """The file to write to, in addition to the server's own log."""


class Retention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How long jobs that are over are kept; for ever if nothing is set."""

    max_age_days: Positive | None = None
    """Days after the end of a job."""
    max_output_gb: Positive | None = None
    """Of all output together; the jobs that ended first are deleted first."""
    max_jobs: Count | None = None
    """Of jobs that are over."""
    every_s: Second = 600.0
    """Seconds between two rounds."""
    env_days: NotNegative = 7.0
    """Values of --env are deleted this long after the end of their job, which cannot be run again from then
    on.
    """


class ClusterFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

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
