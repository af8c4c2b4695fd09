"""The Jupyter server extension: settings, routes, and the master's life within the server's own hooks."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Dict, Enum, Float, Int, List, TraitError, Unicode

from mgpu_agent import __version__
from mgpu_agent.protocol.errors import InvalidRequest, MgpuError, Unavailable
from mgpu_agent.protocol.places import check_private_state, find_runtime_file, state_place
from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api.models import Health as HealthAnswer
from mgpu_jupyter.api.routes import PREFIX
from mgpu_jupyter.client.login import is_loopback, load_login
from mgpu_jupyter.client.pin import pin_of_file
from mgpu_jupyter.client.unix import unix_url
from mgpu_jupyter.master.privacy import Privacy
from mgpu_jupyter.model.cluster_file import ClusterFile, LoggingPart, Retention
from mgpu_jupyter.model.limits import Limits
from mgpu_jupyter.model.policies import DEFAULT, POLICIES, planning_of
from mgpu_jupyter.model.settings import Health, LinkSettings, Scheduling
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.server import local_agents
from mgpu_jupyter.server.access import Access
from mgpu_jupyter.server.cluster_file import VARIABLE, apply, read_cluster_file, site_warnings
from mgpu_jupyter.server.handlers import ALL, Guarded, Unknown
from mgpu_jupyter.server.limits import Shares
from mgpu_jupyter.server.log_file import unwrite_log, write_log
from mgpu_jupyter.server.retention import drop_values, keep_tidy
from mgpu_jupyter.server.service import Service
from mgpu_jupyter.server.site_settings import load_strategies, read_setting, scheduling_of
from mgpu_jupyter.server.upstream import Upstream, Waits
from mgpu_jupyter.server.wiring import ServiceSettings, own_token
from mgpu_jupyter.store.logs import DEFAULT_CAP_BYTES
from mgpu_jupyter.store.pieces import DEFAULT_CAP_BYTES as FOLDERS_CAP_BYTES

AGENT_FAREWELL_S = 1.5
TAKE_OVER_S = 2.0  # how often a second server looks whether the first is gone
ANY_ADDRESS = ("", "0.0.0.0", "::", "*")  # noqa: S104 - compared, not bound


def _own_srun() -> str:
    """Return where `mgpu_srun` of this installation is, for terminals of this server: their PATH may not reach a virtual environment."""
    beside = Path(sys.executable).with_name("mgpu_srun")
    return str(beside) if beside.exists() else "mgpu_srun"


class MgpuApp(ExtensionApp):
    """The GPUs of several machines as one pool inside JupyterLab."""

    name = "mgpu_jupyter"
    extension_url = "/"
    load_other_extensions = False
    serverapp_config = {"open_browser": False}  # noqa: RUF012 - a traitlets convention

    cluster_name = Unicode("mgpu", help="Name of the cluster, shown in the sidebar.").tag(config=True)
    local_agent = Bool(True, help="Start an agent for this machine's own GPUs.").tag(config=True)
    simulate = Unicode("", help="Start agents with simulated GPUs instead: 2x4 means two nodes with four each.").tag(config=True)
    link_port = Int(0, help="ZeroMQ port of the link at its first start; 0 takes 8790 if it is free. Kept from then on.").tag(config=True)
    heartbeat_interval = Float(2.0, min=0.1, help="Seconds between an agent's signs of life.").tag(config=True)
    timeout = Float(60.0, min=1.0, help="Seconds of silence after which a node is suspect.").tag(config=True)
    kill_grace = Float(15.0, min=0.0, help="Seconds between TERM and KILL when a job is ended.").tag(config=True)
    on_disconnect = Enum(
        ("", "keep", "fence"),
        "",
        help="What becomes of jobs whose node is cut off: keep lets them run on, fence ends them after the lease and runs them elsewhere. "
        "Empty: fence under mgpu_master, keep in a Jupyter server of one's own.",
    ).tag(config=True)
    lease = Float(300.0, min=1.0, help="Seconds that a fenced job runs on after its node was last heard.").tag(config=True)
    lease_margin = Float(
        10.0, min=0.0, help="Seconds that are waited beyond lease and kill grace before a fenced job starts elsewhere."
    ).tag(config=True)
    meet_timeout = Float(4.0, min=0.1, help="Seconds in which the nodes of a distributed job try to reach each other.").tag(config=True)
    apart = Float(60.0, min=0, help="Seconds for which two nodes that could not reach each other get no such job together.").tag(
        config=True
    )
    prepare_timeout = Float(15.0, min=0.1, help="Seconds in which all nodes of a job must say that they can start it.").tag(config=True)
    max_failed_starts = Int(5, min=1, help="How often a job may fail to start before it is given up.").tag(config=True)
    node_failures = Int(3, min=1, help="So many failed starts in a row make a node unhealthy.").tag(config=True)
    probe_after = Float(30.0, min=0.1, help="Seconds after which an unhealthy node is tried again; doubled each time it fails.").tag(
        config=True
    )
    probe_cap = Float(1800.0, min=0.1, help="Longest time in seconds between two trials of an unhealthy node.").tag(config=True)
    max_job_time = Float(None, allow_none=True, help="Longest time in seconds that a job may run; none if not set.").tag(config=True)
    queue_policy = Unicode(DEFAULT, help=f"Order of the queue: {', '.join(POLICIES)}; see docs/scheduling.md.").tag(config=True)
    default_policy = Unicode(
        "fill_first", help="How nodes are picked: fill_first, spread, topology, round_robin, or a strategy of your own."
    ).tag(config=True)
    partitions = Dict(help="Partitions by name: nodes (patterns), default, policy, max_time_s, max_nodes, max_gpus, allow_users, …").tag(
        config=True
    )
    accounts = Dict(help="Accounts by name: users, shares, quota.").tag(config=True)
    qos = Dict(help="Classes of service by name: priority, preemptible, grace_s, quota, allow_users.").tag(config=True)
    quotas = Dict(help="Quotas of single users: gpus and running at once, queued.").tag(config=True)
    shares = Dict(help="Fair shares of single users; 1 for all others.").tag(config=True)
    scheduling = Dict(help="All else about scheduling: planning, retries, quota (of each user), half_life_s, preemption, …").tag(
        config=True
    )
    health_checks = Dict(
        help="What nodes are looked after for: every_s, min_free_mb, clock_skew_s, program (words), program_timeout_s."
    ).tag(config=True)
    prolog = Unicode("", help="Shell command that runs on each node before a job; one that fails puts the job back.").tag(config=True)
    epilog = Unicode("", help="Shell command that runs on each node after a job, however it ended.").tag(config=True)
    hook_limit = Float(60.0, min=0.1, help="Seconds that one prolog or epilog may take.").tag(config=True)
    retention = Dict(
        help="How long jobs that are over are kept, with their output: max_age_days, max_output_gb, max_jobs, every_s; for ever if empty. "
        "env_days: how long values of --env are kept after the end (7)."
    ).tag(config=True)
    cluster_config = Unicode("", help=f"A cluster_config.yaml; what other settings say goes before. ${VARIABLE} names it too.").tag(
        config=True
    )
    ping_timeout = Float(5.0, min=0.1, help="Seconds in which a node must answer when it is asked who it is.").tag(config=True)
    relay_connect_timeout = Float(5.0, min=0.1, help="Seconds to connect to a master elsewhere.").tag(config=True)
    relay_answer_timeout = Float(60.0, min=0.1, help="Seconds in which a master elsewhere must begin to answer.").tag(config=True)
    relay_health_timeout = Float(5.0, min=0.1, help="Seconds in which a master elsewhere must say how it is.").tag(config=True)
    share_busy_gpus = Bool(False, help="Hand out GPUs that processes outside mgpu compute on, too.").tag(config=True)
    output_cap = Int(DEFAULT_CAP_BYTES, min=0, help="Bytes of output kept of each rank of a job; 0 keeps all.").tag(config=True)
    folders_cap = Int(FOLDERS_CAP_BYTES, min=0, help="Bytes of folders (--sync) that are kept for later jobs.").tag(config=True)
    limits = Dict(
        help="What one user may ask at once: at_once, heavy_at_once, waiting, requests_per_s, heavy_per_s, burst_s, streams, body_mb; "
        "bytes that the master takes, 0 for no limit: folder_bytes, results_bytes (of one job), user_folders_bytes, "
        "user_output_bytes, user_results_bytes, user_queued_bytes."
    ).tag(config=True)
    follower_timeout = Float(
        60.0, min=1.0, help="Seconds after which a reader that takes nothing is cut off; it may go on from its offset."
    ).tag(config=True)
    client_grace = Float(
        30.0, min=0.0, help="Seconds that a job with --interactive-kill waits for its client to come back before it is cancelled."
    ).tag(config=True)
    privacy = Enum(
        ("full", "names", "none"),
        "full",
        help="What users see of the jobs of others: full (commands, directories, pids too), names, or none (only that they are there).",
    ).tag(config=True)
    admins = List(Unicode(), help="Users who may cancel and read all jobs, beside the one who runs the server.").tag(config=True)
    relay = Bool(True, help="Relay to the master of a stored login, or of another server of this user, instead of starting one.").tag(
        config=True
    )
    public_url = Unicode("", help="URL at which other machines reach this server, for login lines; found by itself if empty.").tag(
        config=True
    )

    service: Service | None = None
    upstream: Upstream | None = None
    user_shares: Shares
    problem = ""
    own_token = ""
    certificate_pin = ""

    def initialize_settings(self) -> None:
        """Read the cluster's file, and let handlers find the extension."""
        self.warnings: list[str] = []
        self.cluster_file = ClusterFile()
        self._file_problem = ""
        self._read_cluster_file()
        self._logging: list[logging.Handler] = []
        self._is_alone, self._server_log = False, logging.getLogger("ServerApp")
        self._tidying: list[asyncio.Task[None]] = []
        self.access = Access(getpass.getuser(), tuple(self.admins))
        self.settings["mgpu_extension"] = self
        self.settings.setdefault("page_config_data", {})["mgpuSrun"] = _own_srun()
        self._agents: list[subprocess.Popen[bytes]] = []
        self._environment: dict[str, str | None] = {}
        self.streams: WeakSet[Guarded] = WeakSet()
        self._taking_over: asyncio.Task[None] | None = None

    def _read_cluster_file(self) -> None:
        """Take over what the file says; a mistake keeps the master from starting and shows in `health`."""
        path = self.cluster_config or os.environ.get(VARIABLE, "")
        if not path:
            return
        try:
            self.cluster_file = read_cluster_file(Path(path), load_strategies())
            apply(self, self.cluster_file)
        except (InvalidRequest, TraitError) as error:
            self._file_problem = str(error)

    def _write_log(self) -> None:
        wanted = self.cluster_file.logging
        if wanted == LoggingPart():
            return
        try:
            self._logging = write_log(wanted.file, wanted.level, self._server_log)
        except Unavailable as error:
            self.warnings.append(error.message)
            self.log.warning("mgpu: %s", error.message)

    def initialize_handlers(self) -> None:
        """Add one route per handler, and one for all else below the prefix."""
        handlers: tuple[type[Guarded], ...] = (*ALL, Unknown)
        self.handlers += [(pattern_of(handler.path), handler) for handler in handlers]

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        """Start the master, or relay to one elsewhere; a failure shows in `health` and never stops the server."""
        if self._file_problem:
            self.problem = self._file_problem
            self.log.error("mgpu: %s", self.problem)
            return
        self._is_alone, self._server_log = serverapp.starter_app is self, serverapp.log
        self._write_log()
        self.warnings += site_warnings(self.cluster_file, serverapp, is_alone=self._is_alone)
        try:
            self.certificate_pin = pin_of_file(Path(serverapp.certfile)) if serverapp.certfile else ""
            check_private_state(state_place().path)
            self.own_token = own_token(state_place())
            if self.relay and load_login(os.environ) is not None:
                self.upstream = Upstream.of_login(dict(os.environ), self._relay_waits())
                self.log.info("mgpu: relays %s%s to %s", server_url(serverapp), PREFIX, self.upstream.address().url)
            else:
                self._start_master(serverapp)
        except MgpuError as error:
            if error.code == "second-master" and self.relay:
                self._relay_to_other(serverapp, error.message)
            else:
                self.problem = error.message
                self.log.error("mgpu: %s", printable(error.message))  # noqa: TRY400 - one sentence is enough
                return
        except Exception as error:
            self.problem = f"The master did not start ({type(error).__name__}): see the server's log."
            self.log.exception("mgpu: the master did not start")
            return
        self._give_to_kernels(MGPU_URL=server_url(serverapp), MGPU_TOKEN=self.own_token, MGPU_CERTIFICATE_PIN=self.certificate_pin)

    def _start_master(self, serverapp: Any) -> None:
        agents = local_agents.plan(simulate=self.simulate) if self.local_agent or self.simulate else ()
        self.user_shares = Shares(read_setting(self.limits, Limits, "limits"))
        service = self._make_service(serverapp)
        service.start()
        self.service, self.upstream = service, None
        retention = read_setting(self.retention, Retention, "retention")
        loop = asyncio.get_running_loop()
        self._tidying = [loop.create_task(drop_values(service, retention))]
        if retention != Retention(every_s=retention.every_s, env_days=retention.env_days):
            self._tidying.append(loop.create_task(keep_tidy(service, retention)))
        self._agents = local_agents.start(agents, service.place.path, serverapp.port)
        self.log.info("mgpu: master at %s%s, link %s, state %s", server_url(serverapp), PREFIX, service.link_address, service.place.path)

    def _relay_waits(self) -> Waits:
        return Waits(connect_s=self.relay_connect_timeout, answer_s=self.relay_answer_timeout, health_s=self.relay_health_timeout)

    def _relay_to_other(self, serverapp: Any, problem: str) -> None:
        """Relay to the server of this user that holds the state directory, and take its place when it is gone."""
        self.upstream = Upstream.of_other_server(state_place().path, problem, self._relay_waits())
        self._taking_over = asyncio.get_running_loop().create_task(self._take_over(serverapp))
        self.log.info("mgpu: relays %s%s to the server that runs the master of %s", server_url(serverapp), PREFIX, state_place().path)

    async def _take_over(self, serverapp: Any) -> None:
        while self.service is None:
            await asyncio.sleep(TAKE_OVER_S)
            if find_runtime_file(state_place().path) is not None:
                continue
            try:
                self._start_master(serverapp)
            except MgpuError as error:
                # Shown by `health` while there is no server to relay to.
                if error.code != "second-master":
                    self.upstream = Upstream.of_other_server(state_place().path, error.message, self._relay_waits())

    async def stop_extension(self) -> None:
        """Stop the master; jobs go on on their nodes."""
        service, self.service, self.upstream = self.service, None, None
        self.problem = "The server is stopping."
        if self._taking_over is not None:
            self._taking_over.cancel()
        for task in self._tidying:
            task.cancel()
        unwrite_log(self._logging, self._server_log)
        self._give_to_kernels(**dict.fromkeys(self._environment, ""))
        if service is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, service.stop)
            await loop.run_in_executor(None, local_agents.end, self._agents, AGENT_FAREWELL_S)

    def health(self) -> HealthAnswer:
        """Return the state of the master in one value."""
        if self.service is None:
            if self.problem:
                return HealthAnswer(status="failed", version=__version__, message=self.problem)
            return HealthAnswer(status="starting", version=__version__, message="The master is starting.")
        master = self.service.master
        warnings = tuple(self.warnings)
        if self.service.place.on_network:
            warnings += (f"{self.service.place.path} is on a network file system: set MGPU_STATE_DIR to a local disk.",)
        problem = master.problem if master.is_alive else "The master's thread ended: see the server's log and restart the server."
        return HealthAnswer(
            status="degraded" if problem else "ok",
            version=__version__,
            cluster=self.cluster_name,
            master_epoch=master.epoch,
            message=problem,
            warnings=warnings + self.service.listening.warnings + self.service.turned_away(),
            link_address=self.service.link_address,
            link_addresses=self.service.listening.addresses,
        )

    def _make_service(self, serverapp: Any) -> Service:
        strategies = load_strategies()
        # A closed laptop must not end its owner's jobs; a master that serves many must not wait for one lost machine.
        own = "fence" if serverapp.starter_app is self else "keep"
        settings = ServiceSettings(
            link=LinkSettings(
                cluster=self.cluster_name,
                heartbeat_s=min(self.heartbeat_interval, self.lease / 4),
                sample_s=self.heartbeat_interval,
                timeout_s=min(self.timeout, self.lease),
                health=read_setting(self.health_checks, Health, "health_checks"),
            ),
            policy=Policy(
                kill_grace_s=self.kill_grace,
                on_disconnect="fence" if (self.on_disconnect or own) == "fence" else "keep",
                lease_s=self.lease,
                lease_margin_s=self.lease_margin,
                prepare_s=self.prepare_timeout,
                meet_s=self.meet_timeout,
                apart_s=self.apart,
                share_busy_gpus=self.share_busy_gpus,
                prolog=self.prolog,
                epilog=self.epilog,
                hook_s=self.hook_limit,
                scheduling=self._scheduling(strategies),
            ),
            strategies=strategies,
            link_port=self.link_port,
            admins=tuple(self.admins),
            privacy=msgspec.convert(self.privacy, Privacy),
            output_cap_bytes=self.output_cap,
            folders_cap_bytes=self.folders_cap,
            limits=read_setting(self.limits, Limits, "limits"),
            follower_timeout_s=self.follower_timeout,
            ping_timeout_s=self.ping_timeout,
            expected=self.cluster_file.nodes,
            client_grace_s=self.client_grace,
        )
        return Service(state_place(), settings, url=server_url(serverapp), port=serverapp.port, certificate_pin=self.certificate_pin)

    def _scheduling(self, strategies: Iterable[str]) -> Scheduling:
        tables = {name: getattr(self, name) for name in ("partitions", "accounts", "qos", "quotas", "shares")}
        retries = {
            "max_failed_starts": self.max_failed_starts,
            "node_failures": self.node_failures,
            "probe_after_s": self.probe_after,
            "probe_cap_s": self.probe_cap,
        }
        planning = msgspec.to_builtins(planning_of(self.queue_policy))
        plain = {"strategy": self.default_policy, "planning": planning, "max_time_s": self.max_job_time, "retries": retries}
        plain["queued_bytes"] = read_setting(self.limits, Limits, "limits").user_queued_bytes
        return scheduling_of(plain, self.scheduling, tables, strategies)

    def public_url_now(self) -> str:
        """Return where other machines reach this server, ending in `/`."""
        if self.public_url:
            return f"{self.public_url.rstrip('/')}/"
        serverapp: Any = self.serverapp
        named = self.cluster_file.cluster.master.host if self._is_alone and not is_loopback(serverapp.ip) else ""
        return server_url(serverapp, others=True, named=named)

    def end_streams_of(self, user: str) -> None:
        """Break off all that goes on for a user who was removed, administrator or not, unless their credential is still good."""
        for handler in [handler for handler in self.streams if handler.person.name == user]:
            person = handler.person
            is_out = self.service.reader.token(person.token) is None if person.token and self.service else not person.is_admin
            if is_out:
                handler.end_stream("You were logged out by an administrator.")

    def _give_to_kernels(self, **values: str) -> None:
        """Put these into the environment that kernels and terminals inherit; an empty value brings back what was there."""
        for name, value in values.items():
            if value:
                self._environment.setdefault(name, os.environ.get(name))
                os.environ[name] = value
            elif (before := self._environment.get(name)) is not None:
                os.environ[name] = before
            else:
                os.environ.pop(name, None)


def pattern_of(path: str) -> str:
    """Return the regular expression of a path of the route table, below the server's base URL."""
    return f"/{PREFIX}/{re.sub(r'{[a-z_]+}', '([^/]+)', path)}"


def server_url(serverapp: Any, *, others: bool = False, named: str = "") -> str:
    """Return where programs on this machine (or on others) reach the server, ending in `/`; `named` is what a site calls it."""
    if serverapp.sock:
        return unix_url(serverapp.sock, serverapp.base_url)
    host = named or serverapp.ip if named or serverapp.ip not in ANY_ADDRESS else (socket.getfqdn() if others else "127.0.0.1")
    scheme = "https" if serverapp.certfile else "http"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{serverapp.port}{serverapp.base_url}"
