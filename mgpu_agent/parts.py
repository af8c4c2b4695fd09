"""The parts of an agent, wired by hand: all that its loop needs of its machine. The simulation has others."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from mgpu_agent.config import AgentConfig
from mgpu_agent.gpu.sampler import Sampler
from mgpu_agent.gpu.source import GpuSource
from mgpu_agent.identity import SavedEnrolment
from mgpu_agent.link import Link
from mgpu_agent.network.meetings import Meetings
from mgpu_agent.node_checks import Checks, Gauge
from mgpu_agent.process.cells import RUNNER, copy_runner
from mgpu_agent.process.environment import base_environment
from mgpu_agent.process.inotify import ModifiedFiles
from mgpu_agent.process.job_socket import JobSecrets, JobSocket
from mgpu_agent.process.keeper_client import KeeperClient
from mgpu_agent.process.output import OutputShipper, Puncher
from mgpu_agent.process.passage import make_passage
from mgpu_agent.process.preparation import Preparation, look_for
from mgpu_agent.process.spool import Spool
from mgpu_agent.protocol.addresses import FOUND_BY_WORDS, find_address
from mgpu_agent.protocol.join import JoinString
from mgpu_agent.protocol.model import NodeFacts
from mgpu_agent.protocol.places import host_name
from mgpu_agent.run_as.account import Accounts
from mgpu_agent.run_as.user_files import UserFiles
from mgpu_agent.whereabouts import Whereabouts, describe_node, find_master

log = logging.getLogger("mgpu.agent")


class Parts(NamedTuple):
    """What an agent owns; it closes all of it."""

    spool: Spool
    watch: ModifiedFiles
    keeper: KeeperClient
    preparation: Preparation
    shipper: OutputShipper
    link: Link
    sampler: Sampler
    gauge: Gauge
    checks: Checks
    meetings: Meetings
    wake: tuple[socket.socket, socket.socket]
    """A write to the second wakes a poll of the first."""
    host: str
    address: str
    look: Callable[[SavedEnrolment | None, JoinString | None], Whereabouts | None]
    """Returns where the master is now."""
    describe: Callable[[str, str], NodeFacts]
    """Returns what this machine is, under this boot id and incarnation."""
    jobs: JobSocket | None = None
    """The socket for processes of jobs, where there is one."""
    users: UserFiles | None = None
    """Works on files under the accounts of users."""


def open_parts(config: AgentConfig, where: Whereabouts, source: GpuSource) -> Parts:
    """Open all parts of an agent on this machine."""
    base = base_environment(os.environb)
    gpus = source.gpus[: config.gpu_count]
    users = UserFiles(config.confinement)
    spool = Spool(config.directory, config.passage, users)
    found = find_address(config.address, where.target.address)
    log.info("address=%s found_by=%s (%s)", found.address, found.by, FOUND_BY_WORDS[found.by])
    wake, wake_writer = socket.socketpair()
    socket_place = config.directory if config.passage is None else make_passage(config.passage / "socket")
    jobs = JobSocket(socket_place, JobSecrets(config.directory), for_all_users=config.passage is not None)

    def tick_soon() -> None:
        """Wake the loop from another thread: a reading or a meeting has a result."""
        with contextlib.suppress(OSError):
            wake_writer.send(b"\0")

    def describe(boot_id: str, incarnation: str) -> NodeFacts:
        return describe_node(
            config, boot_id=boot_id, incarnation=incarnation, found=found, gpus=gpus, gpu_note=source.note
        )

    preparation = Preparation(
        config.node_id,
        spool,
        gpus,
        base,
        Accounts(config.user_map) if config.run_as_user else None,
        master=where.target.address,
        runner=RUNNER if config.passage is None else copy_runner(config.passage),
        jobs=jobs,
    )
    return Parts(
        spool=spool,
        watch=ModifiedFiles(spool.path),
        keeper=KeeperClient(config.directory, base, confinement=config.confinement, again=config.again),
        preparation=preparation,
        shipper=OutputShipper(str(spool.path), Puncher(str(spool.path))),
        link=Link(),
        sampler=Sampler(source, frozenset(gpu.uuid for gpu in gpus), tick_soon),
        gauge=Gauge(),
        checks=Checks(config.node_id, config.directory, found, gpus),
        meetings=Meetings(config.node_id, found.address, tick_soon, partial(look_for, users, preparation)),
        wake=(wake, wake_writer),
        host=host_name(),
        address=found.address,
        look=partial(find_master, config),
        describe=describe,
        jobs=jobs,
        users=users,
    )
