"""The surroundings of mpirun: hosts with slots, a launcher in place of ssh, interfaces. For Open MPI 4 and 5
and for MPICH (Hydra).

All of it is in the environment and in files, so that `mpirun -np 8 python train.py` works unchanged; what the
user set stays.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from mgpu_agent.mpi.parcels import SECRET_VARIABLE

HOSTS_VARIABLE = "MGPU_MPI_HOSTS"
LAUNCHER_VARIABLE = "OMPI_MCA_plm_rsh_agent"
INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_ROOT = str(Path(__file__).resolve().parents[2])
DIRECTORY_PREFIX = "mgpu-mpi-"
_SESSIONS = "sessions"
_MPIRUNS_SESSIONS = re.compile(rf"/[^\s\"']*/{DIRECTORY_PREFIX}\w+/{_SESSIONS}\b")
_OTHER_MANAGERS = ("SLURM_", "PBS_", "LSB_", "SGE_", "FLUX_")


def program(module: str) -> tuple[str, ...]:
    """Return the command that runs one of these programs with the agent's own Python, whatever PYTHONPATH
    says.
    """
    start = (
        f"import sys; sys.path.insert(0, {_ROOT!r}); from mgpu_agent.mpi.{module} import main; "
        f"sys.exit(main())"
    )
    return (sys.executable, "-P", "-c", start)


def hosts_of(text: str) -> dict[str, int]:
    """Read `n1:2,n2:2`: nodes and their slots."""
    pairs = (item.rpartition(":") for item in text.split(",") if item)
    return {name: int(slots) for name, _, slots in pairs}


def write_files(directory: Path, hosts: Mapping[str, int], secret: str = "") -> None:
    """Write the host files and the launcher, which alone has the attempt's secret, so that no program prints
    it with its environment.
    """
    (directory / "hosts.openmpi").write_text(
        "".join(f"{name} slots={slots}\n" for name, slots in hosts.items())
    )
    (directory / "hosts.mpich").write_text("".join(f"{name}:{slots}\n" for name, slots in hosts.items()))
    launcher = directory / "launch"
    known_by = f"export {SECRET_VARIABLE}={shlex.quote(secret)}\n" if secret else ""
    launcher.write_text(f'#!/bin/sh\n{known_by}exec {shlex.join(program("launch"))} "$@"\n')
    launcher.chmod(0o700)


def environment(directory: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a launcher; what the user set takes precedence."""
    launcher, interface = str(directory / "launch"), interface_of(environ)
    ours = {
        "OMPI_MCA_plm": "rsh",
        LAUNCHER_VARIABLE: launcher,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_default_hostfile": str(directory / "hosts.openmpi"),
        "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
        # Jobs share nodes: with binding, all of them would use the first cores.
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": launcher,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_default_hostfile": str(directory / "hosts.openmpi"),
        "PRTE_MCA_prte_keep_fqdn_hostnames": "1",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": launcher,
        "HYDRA_HOST_FILE": str(directory / "hosts.mpich"),
        "HYDRA_RMK": "user",
        # Otherwise each rank would see the GPUs of the first node; the environment comes from its own node.
        "HYDRA_ENV": "none",
    }
    if os.geteuid() == 0:
        ours |= dict.fromkeys(
            (f"{name}_ALLOW_RUN_AS_ROOT{tail}" for name in ("OMPI", "PRTE") for tail in ("", "_CONFIRM")), "1"
        )
    if interface:
        ours["HYDRA_IFACE"] = interface
        if network := network_of(interface):
            # As a network, because the interface may have another name on another node.
            ours |= dict.fromkeys(
                ("OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_btl_tcp_if_include", "PRTE_MCA_prte_if_include"),
                network,
            )
    if not any(f"OMPI_MCA_orte_{where}_tmpdir_base" in environ for where in ("local", "remote")):
        ours["OMPI_MCA_orte_tmpdir_base"] = str(directory / _SESSIONS)
    kept = {name: value for name, value in environ.items() if not name.startswith(_OTHER_MANAGERS)}
    return ours | kept


def with_sessions_in(directory: Path, command: str) -> str:
    """Return the command of a daemon of Open MPI 4 with its session directory in this one instead of that of
    mpirun.

    In the account's common one, a job that ends removes what another is about to use; the daemon of that one
    then ends without a word, and its mpirun waits for ever.
    """
    return _MPIRUNS_SESSIONS.sub(lambda _: str(directory / _SESSIONS), command)


def interface_of(environ: Mapping[str, str]) -> str:
    """Return the interface by which the nodes of the job reach each other, or the only one."""
    for name in INTERFACE_VARIABLES:
        if (
            wanted := environ.get(name, "").lstrip("=").partition(",")[0]
        ) and wanted in psutil.net_if_addrs():
            return wanted
    addresses = {
        name: [one.address for one in found if one.family == socket.AF_INET]
        for name, found in psutil.net_if_addrs().items()
    }
    for name, found in addresses.items():
        if environ.get("MASTER_ADDR") in found:
            return name
    usable = [name for name, found in addresses.items() if found and not found[0].startswith("127.")]
    return usable[0] if len(usable) == 1 else ""


def network_of(interface: str) -> str:
    """Return the IPv4 network of an interface, like 10.0.0.0/24."""
    for one in psutil.net_if_addrs().get(interface, ()):
        if one.family == socket.AF_INET and one.netmask:
            return str(ipaddress.ip_network(f"{one.address}/{one.netmask}", strict=False))
    return ""
