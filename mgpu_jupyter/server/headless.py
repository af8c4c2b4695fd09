"""`mgpu_master`: a Jupyter server with no browser and no other extension that runs only the master."""

from __future__ import annotations

import ipaddress
import secrets

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.places import check_private_state, state_place
from mgpu_jupyter.server.app import MgpuApp


def run(host: str, port: int, config: str | None, extra: list[str]) -> int:
    """Serve until ended; returns the exit code."""
    if not _is_loopback(host):
        raise InvalidRequest(
            "not-loopback", f"mgpu_master speaks plain HTTP and stays on loopback: use --host 127.0.0.1 instead of {host}, and a tunnel."
        )
    check_private_state(state_place().path)
    arguments = [
        f"--ServerApp.ip={host}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--ServerApp.allow_root=True",
        # Nobody logs in here with Jupyter's token; clients bring tokens of mgpu's own.
        f"--IdentityProvider.token={secrets.token_hex(32)}",
    ]
    if config is not None:
        arguments.append(f"--config={config}")
    MgpuApp.launch_instance([*arguments, *extra])  # type: ignore[no-untyped-call]
    return 0


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
