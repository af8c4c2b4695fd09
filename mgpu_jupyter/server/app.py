"""The Jupyter server extension: settings, routes, and the start and end of the master with the server."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from weakref import WeakSet

from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Dict, Enum, Float, Int, List, TraitError, Unicode

from mgpu_agent import __version__
from mgpu_agent.protocol.errors import InvalidRequest, MgpuError, Unavailable
from mgpu_agent.protocol.places import check_private_state, find_runtime_file, state_place
from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api.models import Health as HealthAnswer
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.client.connecting import pin_of_file
from mgpu_jupyter.client.login import is_loopback, load_login
from mgpu_jupyter.model.cluster_file import ClusterFile, Retention
from mgpu_jupyter.model.policies import DEFAULT, POLICIES
from mgpu_jupyter.model.settings import Limits
from mgpu_jupyter.server import local_agents
from mgpu_jupyter.server.access import Access
from mgpu_jupyter.server.cluster_file import VARIABLE, apply, read_cluster_file, site_warnings
from mgpu_jupyter.server.handlers import ALL, Guarded, Unknown
from mgpu_jupyter.server.limits import RequestShares
from mgpu_jupyter.server.log_file import ServerLog
from mgpu_jupyter.server.retention import drop_values, keep_tidy
from mgpu_jupyter.server.service import Service
from mgpu_jupyter.server.service_settings import relay_waits, service_settings
from mgpu_jupyter.server.site_settings import load_strategies, read_setting
from mgpu_jupyter.server.surroundings import KernelVariables, own_srun, path_to_programs, server_url
from mgpu_jupyter.server.upstream import Upstream
from mgpu_jupyter.server.wiring import own_token
from mgpu_jupyter.store.logs import DEFAULT_CAP_BYTES
from mgpu_jupyter.store.pieces import DEFAULT_CAP_BYTES as FOLDERS_CAP_BYTES

AGENT_FAREWELL_S = 1.5
TAKE_OVER_S = 2.0  # how often a second server checks whether the first is gone


class MgpuApp(ExtensionApp):
    """The GPUs of several machines as one pool inside JupyterLab."""

    name = "mgpu_jupyter"
    extension_url = "/"
    load_other_extensions = False
    serverapp_config = {"open_browser": False}  # noqa: RUF012 - a traitlets convention

    cluster_name = Unicode("mgpu", help="Name of the cluster, shown in the sidebar.").tag(config=True)
    local_agent = Bool(True, help="Start an agent for this machine's own GPUs.").tag(config=True)
    simulate = Unicode(
        "", help="Start agents with simulated GPUs instead: 2x4 means two nodes with four each."
    ).tag(config=True)
    link_port = Int(
        0, help="ZeroMQ port of the link at its first start; 0 takes 8790 if it is free. Kept from then on."
    ).tag(config=True)
    heartbeat_interval = Float(2.0, min=0.1, help="Seconds between an agent's signs of life.").tag(
        config=True
    )
    timeout = Float(60.0, min=1.0, help="Seconds of silence after which a node is suspect.").tag(config=True)
    offline_after = Float(
        300.0, min=1.0, help="Seconds of silence after which a suspect node counts as offline."
    ).tag(config=True)
    kill_grace = Float(15.0, min=0.0, help="Seconds between TERM and KILL when a job is ended.").tag(
        config=True
    )
    on_disconnect = Enum(
        ("", "keep", "fence"),
        "",
        help="What becomes of jobs whose node is cut off: keep lets them run on, fence ends them after the "
        "lease and runs them elsewhere. "
        "Empty: fence under mgpu_master, keep in a Jupyter server of one's own.",
    ).tag(config=True)
    lease = Float(
        120.0, min=1.0, help="Seconds that a fenced job runs on after its node was last heard."
    ).tag(config=True)
    lease_margin = Float(
        10.0,
        min=0.0,
        help="Seconds that are waited beyond lease and kill grace before a fenced job starts elsewhere.",
    ).tag(config=True)
    meet_timeout = Float(
        4.0, min=0.1, help="Seconds in which the nodes of a distributed job try to reach each other."
    ).tag(config=True)
    apart = Float(
        60.0,
        min=0,
        help="Seconds for which two nodes that could not reach each other get no such job together.",
    ).tag(config=True)
    prepare_timeout = Float(
        15.0, min=0.1, help="Seconds in which all nodes of a job must say that they can start it."
    ).tag(config=True)
    max_failed_starts = Int(5, min=1, help="How often a job may fail to start before it is given up.").tag(
        config=True
    )
    node_failures = Int(3, min=1, help="So many failed starts in a row make a node unhealthy.").tag(
        config=True
    )
    probe_after = Float(
        30.0,
        min=0.1,
        help="Seconds after which an unhealthy node is tried again; doubled each time it fails.",
    ).tag(config=True)
    probe_cap = Float(
        1800.0, min=0.1, help="Longest time in seconds between two trials of an unhealthy node."
    ).tag(config=True)
    max_job_time = Float(
        None, allow_none=True, help="Longest time in seconds that a job may run; none if not set."
    ).tag(config=True)
    queue_policy = Unicode(
        DEFAULT, help=f"Order of the queue: {', '.join(POLICIES)}; see docs/scheduling.md."
    ).tag(config=True)
    default_policy = Unicode(
        "fill_first",
        help="How nodes are picked: fill_first, spread, topology, round_robin, or a strategy of your own.",
    ).tag(config=True)
    partitions = Dict(
        help="Partitions by name: nodes (patterns), default, policy, max_time_s, max_nodes, max_gpus, "
        "allow_users, …"
    ).tag(config=True)
    accounts = Dict(help="Accounts by name: users, shares, quota.").tag(config=True)
    qos = Dict(help="Classes of service by name: priority, preemptible, grace_s, quota, allow_users.").tag(
        config=True
    )
    quotas = Dict(help="Quotas of single users: gpus and running at once, queued.").tag(config=True)
    shares = Dict(help="Fair shares of single users; 1 for all others.").tag(config=True)
    scheduling = Dict(
        help="All else about scheduling: planning, retries, quota (of each user), half_life_s, preemption, …"
    ).tag(config=True)
    health_checks = Dict(
        help="What nodes are looked after for: every_s, min_free_mb, clock_skew_s, program (words), "
        "program_timeout_s."
    ).tag(config=True)
    prolog = Unicode(
        "", help="Shell command that runs on each node before a job; one that fails puts the job back."
    ).tag(config=True)
    epilog = Unicode("", help="Shell command that runs on each node after a job, however it ended.").tag(
        config=True
    )
    hook_limit = Float(60.0, min=0.1, help="Seconds that one prolog or epilog may take.").tag(config=True)
    retention = Dict(
        help="How long jobs that are over are kept, with their output: max_age_days, max_output_gb, "
        "max_jobs, every_s; for ever if empty. "
        "env_days: how long values of --env are kept after the end (7)."
    ).tag(config=True)
    cluster_config = Unicode(
        "", help=f"A cluster_config.yaml; what other settings say goes before. ${VARIABLE} names it too."
    ).tag(config=True)
    ping_timeout = Float(
        5.0, min=0.1, help="Seconds in which a node must answer when it is asked who it is."
    ).tag(config=True)
    relay_connect_timeout = Float(5.0, min=0.1, help="Seconds to connect to a master elsewhere.").tag(
        config=True
    )
    relay_answer_timeout = Float(
        60.0, min=0.1, help="Seconds in which a master elsewhere must begin to answer."
    ).tag(config=True)
    relay_health_timeout = Float(
        5.0, min=0.1, help="Seconds in which a master elsewhere must say how it is."
    ).tag(config=True)
    share_busy_gpus = Bool(False, help="Hand out GPUs that processes outside mgpu compute on, too.").tag(
        config=True
    )
    output_cap = Int(
        DEFAULT_CAP_BYTES, min=0, help="Bytes of output kept of each rank of a job; 0 keeps all."
    ).tag(config=True)
    folders_cap = Int(
        FOLDERS_CAP_BYTES, min=0, help="Bytes of folders (--sync) that are kept for later jobs."
    ).tag(config=True)
    limits = Dict(
        help="What one user may ask at once: at_once, heavy_at_once, waiting, requests_per_s, heavy_per_s, "
        "burst_s, streams, body_mb; "
        "bytes that the master takes, 0 for no limit: folder_bytes, results_bytes (of one job), "
        "user_folders_bytes, "
        "user_output_bytes, user_results_bytes, user_queued_bytes."
    ).tag(config=True)
    follower_timeout = Float(
        60.0,
        min=1.0,
        help="Seconds after which a reader that takes nothing is cut off; it may go on from its offset.",
    ).tag(config=True)
    client_grace = Float(
        30.0,
        min=0.0,
        help="Seconds that a job with --interactive-kill waits for its client to come back before it is "
        "cancelled.",
    ).tag(config=True)
    privacy = Enum(
        ("full", "names", "none"),
        "full",
        help="What users see of the jobs of others: full (commands, directories, pids too), names, or none "
        "(only that they are there).",
    ).tag(config=True)
    admins = List(
        Unicode(), help="Users who may cancel and read all jobs, beside the one who runs the server."
    ).tag(config=True)
    relay = Bool(
        True,
        help="Relay to the master of a stored login, or of another server of this user, instead of starting "
        "one.",
    ).tag(config=True)
    public_url = Unicode(
        "", help="URL at which other machines reach this server, for login lines; found by itself if empty."
    ).tag(config=True)

    service: Service | None = None
    upstream: Upstream | None = None
    user_shares: RequestShares
    problem = ""
    own_token = ""
    certificate_pin = ""

    def initialize_settings(self) -> None:
        """Read the cluster's file, and make the extension known to handlers."""
        self.warnings: list[str] = []
        self.cluster_file = ClusterFile()
        self._file_problem = ""
        self._read_cluster_file()
        self._logging: ServerLog | None = None
        self._is_alone = False
        self._tidying: list[asyncio.Task[None]] = []
        self.access = Access(getpass.getuser(), tuple(self.admins))
        self.settings["mgpu_extension"] = self
        self.settings.setdefault("page_config_data", {})["mgpuSrun"] = own_srun()
        self._agents: list[subprocess.Popen[bytes]] = []
        self._variables = KernelVariables()
        self.streams: WeakSet[Guarded] = WeakSet()
        self._taking_over: asyncio.Task[None] | None = None

    def _read_cluster_file(self) -> None:
        """Apply the file's settings; a mistake keeps the master from starting and shows in `health`."""
        path = self.cluster_config or os.environ.get(VARIABLE, "")
        if not path:
            return
        try:
            self.cluster_file = read_cluster_file(Path(path), load_strategies())
            apply(self, self.cluster_file)
        except (InvalidRequest, TraitError) as error:
            self._file_problem = str(error)

    def _write_log(self, server_log: logging.Logger) -> None:
        self._logging = ServerLog(self.cluster_file.logging, server_log)
        try:
            self._logging.start()
        except Unavailable as error:
            self.warnings.append(error.message)
            self.log.warning("mgpu: %s", error.message)

    def initialize_handlers(self) -> None:
        """Add one route per handler, and one for everything else below the prefix."""
        handlers: tuple[type[Guarded], ...] = (*ALL, Unknown)
        self.handlers += [(pattern_of(handler.path), handler) for handler in handlers]

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        """Start the master, or relay to one elsewhere; a failure shows in `health` and ends nothing."""
        if self._file_problem:
            self.problem = self._file_problem
            self.log.error("mgpu: %s", self.problem)
            return
        self._is_alone = serverapp.starter_app is self
        self._write_log(serverapp.log)
        self.warnings += site_warnings(self.cluster_file, serverapp, is_alone=self._is_alone)
        try:
            self.certificate_pin = pin_of_file(Path(serverapp.certfile)) if serverapp.certfile else ""
            check_private_state(state_place().path)
            self.own_token = own_token(state_place())
            if self.relay and load_login(os.environ) is not None:
                self.upstream = Upstream.of_login(dict(os.environ), relay_waits(self))
                self.log.info(
                    "mgpu: relays %s%s to %s", server_url(serverapp), PREFIX, self.upstream.address().url
                )
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
        self._variables.give(
            MGPU_URL=server_url(serverapp),
            MGPU_TOKEN=self.own_token,
            MGPU_CERTIFICATE_PIN=self.certificate_pin,
            PATH=path_to_programs(),
        )

    def _start_master(self, serverapp: Any) -> None:
        agents = local_agents.plan(simulate=self.simulate) if self.local_agent or self.simulate else ()
        self.user_shares = RequestShares(read_setting(self.limits, Limits, "limits"))
        service = Service(
            state_place(),
            service_settings(self, is_alone=serverapp.starter_app is self),
            url=server_url(serverapp),
            port=serverapp.port,
            certificate_pin=self.certificate_pin,
        )
        service.start()
        self.service, self.upstream = service, None
        retention = read_setting(self.retention, Retention, "retention")
        loop = asyncio.get_running_loop()
        self._tidying = [loop.create_task(drop_values(service, retention))]
        if retention != Retention(every_s=retention.every_s, env_days=retention.env_days):
            self._tidying.append(loop.create_task(keep_tidy(service, retention)))
        self._agents = local_agents.start(agents, service.place.path, serverapp.port)
        self.log.info(
            "mgpu: master at %s%s, link %s, state %s",
            server_url(serverapp),
            PREFIX,
            service.link_address,
            service.place.path,
        )

    def _relay_to_other(self, serverapp: Any, problem: str) -> None:
        """Relay to this user's server that holds the state directory, and take its place when it is gone."""
        self.upstream = Upstream.of_other_server(state_place().path, problem, relay_waits(self))
        self._taking_over = asyncio.get_running_loop().create_task(self._take_over(serverapp))
        self.log.info(
            "mgpu: relays %s%s to the server that runs the master of %s",
            server_url(serverapp),
            PREFIX,
            state_place().path,
        )

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
                    self.upstream = Upstream.of_other_server(
                        state_place().path, error.message, relay_waits(self)
                    )

    async def stop_extension(self) -> None:
        """Stop the master; jobs go on on their nodes."""
        service, self.service, self.upstream = self.service, None, None
        self.problem = "The server is stopping."
        if self._taking_over is not None:
            self._taking_over.cancel()
        for task in self._tidying:
            task.cancel()
        self._variables.take_back()
        loop = asyncio.get_running_loop()
        if service is not None:
            await loop.run_in_executor(None, service.stop)
            await loop.run_in_executor(None, local_agents.end, self._agents, AGENT_FAREWELL_S)
        if self._logging is not None:
            self._logging.stop()

    def health(self) -> HealthAnswer:
        """Return the state of the master in one value."""
        if self.service is None:
            if self.problem:
                return HealthAnswer(status="failed", version=__version__, message=self.problem)
            return HealthAnswer(status="starting", version=__version__, message="The master is starting.")
        return self.service.health(self.cluster_name, tuple(self.warnings))

    def public_url_now(self) -> str:
        """Return the URL by which other machines reach this server, ending in `/`."""
        if self.public_url:
            return f"{self.public_url.rstrip('/')}/"
        serverapp: Any = self.serverapp
        named = (
            self.cluster_file.cluster.master.host if self._is_alone and not is_loopback(serverapp.ip) else ""
        )
        return server_url(serverapp, others=True, named=named)

    def end_streams_of(self, user: str) -> None:
        """End all streams of a user who was removed, unless their credential is still valid."""
        for handler in [handler for handler in self.streams if handler.person.name == user]:
            person = handler.person
            is_out = (
                self.service.reader.token(person.token) is None
                if person.token and self.service
                else not person.is_admin
            )
            if is_out:
                handler.end_stream("You were logged out by an administrator.")


def pattern_of(path: str) -> str:
    """Return the regular expression of a path of the route table, below the server's base URL."""
    return f"/{PREFIX}/{re.sub(r'{[a-z_]+}', '([^/]+)', path)}"
