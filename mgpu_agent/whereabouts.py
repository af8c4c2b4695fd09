"""Where the master is: by a join line, by its runtime file on the same machine, or by what the enrolment
saved. Connects to nothing.
"""

from __future__ import annotations

import os
import platform
import pwd
import socket
import sys

import msgspec

from mgpu_agent import __version__
from mgpu_agent.config import AgentConfig
from mgpu_agent.identity import SavedEnrolment
from mgpu_agent.link import KeyPair, Target
from mgpu_agent.protocol.addresses import FoundAddress
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.join import JoinString
from mgpu_agent.protocol.model import SUBMITTER, GpuInfo, NodeFacts
from mgpu_agent.protocol.places import RuntimeFile, find_runtime_file, host_name


class Whereabouts(msgspec.Struct, frozen=True):
    """How to reach the master, and the key to enrol with if a runtime file or a join line has one."""

    target: Target
    port: int | None = None
    enrol_keys: KeyPair | None = None
    addresses: tuple[str, ...] = ()
    """All addresses to try, when there are several."""
    is_joined: bool = False

    def target_at(self, number: int) -> Target:
        """Return the target with the address of this number, counted in a circle."""
        return (
            Target(self.addresses[number % len(self.addresses)], self.target.server_key)
            if self.addresses
            else self.target
        )


def find_master(
    config: AgentConfig, enrolment: SavedEnrolment | None, join: JoinString | None = None
) -> Whereabouts | None:
    """Return where the master is now, or None if nothing is known."""
    if join is not None:
        target, keys = Target(join.addresses[0], join.server_key), KeyPair(join.public_key, join.secret_key)
        return Whereabouts(target, enrol_keys=keys, addresses=join.addresses, is_joined=True)
    if (
        enrolment is not None
        and enrolment.is_joined
        and not (config.is_master_local and config.master_port is not None)
    ):
        return Whereabouts(enrolment.target, addresses=enrolment.addresses, is_joined=True)
    runtime = _runtime_file(config, enrolment) if config.is_master_local else None
    if runtime is not None:
        keys = KeyPair(runtime.enrol_public_key, runtime.enrol_secret_key)
        return Whereabouts(Target(runtime.link_address, runtime.link_public_key), runtime.port, keys)
    if enrolment is not None:
        return Whereabouts(enrolment.target, enrolment.port)
    return None


def check_named_master(config: AgentConfig, enrolment: SavedEnrolment) -> None:
    """Refuse a named host that differs from that of the master which this node is enrolled with."""
    host = config.master_host
    if host is None or config.is_master_local:
        return
    known = {_host_of(address) for address in (enrolment.link_address, *enrolment.addresses)}
    if known & {host, *_addresses_of(host)}:
        return
    raise InvalidRequest(
        "other-master",
        f"This node is enrolled with the master at {', '.join(sorted(known))}, not with one on {host}: leave "
        f"--master-host out, or run `mgpu join-token` on {host} and start mgpu_node with the line it prints.",
    )


def _host_of(address: str) -> str:
    """Return the host of an address like `tcp://10.0.0.1:5555`."""
    return address.rpartition(":")[0].rpartition("/")[2].strip("[]")


def _addresses_of(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError:
        return set()


def _runtime_file(config: AgentConfig, enrolment: SavedEnrolment | None) -> RuntimeFile | None:
    if config.master_port is not None:
        return find_runtime_file(config.state, config.master_port)
    if enrolment is not None and enrolment.port is not None:
        same = find_runtime_file(config.state, enrolment.port)
        if same is not None:
            return same
    return find_runtime_file(config.state)


def describe_node(
    config: AgentConfig,
    *,
    boot_id: str,
    incarnation: str,
    found: FoundAddress,
    gpus: tuple[GpuInfo, ...],
    gpu_note: str,
) -> NodeFacts:
    """Return the description of this machine."""
    return NodeFacts(
        host=host_name(),
        address=found.address,
        arch=platform.machine(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        boot_id=boot_id,
        incarnation=incarnation,
        agent_version=__version__,
        python=sys.executable,
        pid=os.getpid(),
        gpus=gpus,
        gpu_note=gpu_note,
        labels=config.labels,
        rack=config.rack,
        switch=config.switch,
        address_method=found.by,
        port=config.port,
        runs_as=SUBMITTER if config.run_as_user else _own_account(),
    )


def _own_account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
