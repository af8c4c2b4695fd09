"""Turns settings of the extension into those of the master, its scheduler and a relay. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from mgpu_jupyter.master.privacy import Privacy
from mgpu_jupyter.model.policies import planning_of
from mgpu_jupyter.model.settings import Health, Limits, LinkSettings, Scheduling
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.server.site_settings import load_strategies, read_setting, scheduling_of
from mgpu_jupyter.server.upstream import RelayWaits
from mgpu_jupyter.server.wiring import ServiceSettings

if TYPE_CHECKING:
    from mgpu_jupyter.server.app import MgpuApp


def service_settings(app: MgpuApp, *, is_alone: bool) -> ServiceSettings:
    """Return the site's settings of the master; `is_alone` under `mgpu_master`."""
    strategies = load_strategies()
    # A closed laptop must not end its owner's jobs; a shared master must not wait for one lost machine.
    own = "fence" if is_alone else "keep"
    return ServiceSettings(
        link=LinkSettings(
            cluster=app.cluster_name,
            heartbeat_s=min(app.heartbeat_interval, app.lease / 4),
            sample_s=app.heartbeat_interval,
            timeout_s=min(app.timeout, app.lease),
            health=read_setting(app.health_checks, Health, "health_checks"),
        ),
        policy=Policy(
            kill_grace_s=app.kill_grace,
            on_disconnect="fence" if (app.on_disconnect or own) == "fence" else "keep",
            lease_s=app.lease,
            lease_margin_s=app.lease_margin,
            offline_s=app.offline_after,
            prepare_s=app.prepare_timeout,
            meet_s=app.meet_timeout,
            apart_s=app.apart,
            share_busy_gpus=app.share_busy_gpus,
            prolog=app.prolog,
            epilog=app.epilog,
            hook_s=app.hook_limit,
            scheduling=_scheduling(app, strategies),
        ),
        strategies=strategies,
        link_port=app.link_port,
        admins=tuple(app.admins),
        privacy=msgspec.convert(app.privacy, Privacy),
        output_cap_bytes=app.output_cap,
        folders_cap_bytes=app.folders_cap,
        limits=read_setting(app.limits, Limits, "limits"),
        follower_timeout_s=app.follower_timeout,
        ping_timeout_s=app.ping_timeout,
        expected=app.cluster_file.nodes,
        client_grace_s=app.client_grace,
    )


def relay_waits(app: MgpuApp) -> RelayWaits:
    """Return how long a relay waits for the master elsewhere."""
    return RelayWaits(
        connect_s=app.relay_connect_timeout,
        answer_s=app.relay_answer_timeout,
        health_s=app.relay_health_timeout,
    )


def _scheduling(app: MgpuApp, strategies: Iterable[str]) -> Scheduling:
    tables = {name: getattr(app, name) for name in ("partitions", "accounts", "qos", "quotas", "shares")}
    retries = {
        "max_failed_starts": app.max_failed_starts,
        "node_failures": app.node_failures,
        "probe_after_s": app.probe_after,
        "probe_cap_s": app.probe_cap,
    }
    planning = msgspec.to_builtins(planning_of(app.queue_policy))
    plain = {
        "strategy": app.default_policy,
        "planning": planning,
        "max_time_s": app.max_job_time,
        "retries": retries,
    }
    plain["queued_bytes"] = read_setting(app.limits, Limits, "limits").user_queued_bytes
    return scheduling_of(plain, app.scheduling, tables, strategies)
