"""Where the master is: by its runtime file on the same machine, else by what was saved at the enrolment. Connects to nothing."""

from __future__ import annotations

import os
import platform
import socket
import sys
from urllib.parse import urlsplit

import msgspec

from mgpu_agent import __version__
from mgpu_agent.config import AgentConfig
from mgpu_agent.identity import Enrolment
from mgpu_agent.link import KeyPair, Target
from mgpu_agent.protocol.model import GpuInfo, NodeFacts
from mgpu_agent.protocol.places import RuntimeFile, find_runtime_file, host_name

_LOOPBACK = "127.0.0.1"


class Whereabouts(msgspec.Struct, frozen=True):
    """How to reach the master, and the key to enrol with if its runtime file is at hand."""

    target: Target
    port: int | None = None
    enrol_keys: KeyPair | None = None


def find_master(config: AgentConfig, enrolment: Enrolment | None) -> Whereabouts | None:
    """Return where the master is now, or None if nothing is known."""
    runtime = _runtime_file(config, enrolment) if config.is_master_local else None
    if runtime is not None:
        keys = KeyPair(runtime.enrol_public_key, runtime.enrol_secret_key)
        return Whereabouts(Target(runtime.link_address, runtime.link_public_key), runtime.port, keys)
    if enrolment is not None:
        return Whereabouts(enrolment.target, enrolment.port)
    return None


def _runtime_file(config: AgentConfig, enrolment: Enrolment | None) -> RuntimeFile | None:
    if config.master_port is not None:
        return find_runtime_file(config.state, config.master_port)
    if enrolment is not None and enrolment.port is not None:
        same = find_runtime_file(config.state, enrolment.port)
        if same is not None:
            return same
    return find_runtime_file(config.state)


def address_towards(target: Target) -> str:
    """Return this machine's address on the way to the master."""
    parts = urlsplit(target.address)
    try:
        with socket.socket(socket.AF_INET6 if ":" in (parts.hostname or "") else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.hostname or _LOOPBACK, parts.port or 1))  # a datagram socket: nothing is sent
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return _LOOPBACK


def describe_node(
    config: AgentConfig, *, boot_id: str, incarnation: str, address: str, gpus: tuple[GpuInfo, ...], gpu_note: str
) -> NodeFacts:
    """Return what this machine is."""
    return NodeFacts(
        host=host_name(),
        address=address,
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
    )
