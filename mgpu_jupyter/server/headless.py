"""`mgpu_master`: a Jupyter server with no browser and no other extension that runs only the master. HTTPS beyond loopback."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.places import check_private_state, state_place
from mgpu_jupyter.client.login import is_loopback
from mgpu_jupyter.server.app import MgpuApp
from mgpu_jupyter.server.certificate import load_certificate

MAX_SOCKET_BYTES = 107  # what the kernel takes


def run(host: str, port: int, config: str | None, extra: list[str], *, tls: bool = False, socket: str | None = None) -> int:
    """Serve until ended; returns the exit code."""
    check_private_state(state_place().path)
    where = [f"--ServerApp.ip={host}", f"--ServerApp.port={port}"] if socket is None else [f"--ServerApp.sock={_checked(socket)}"]
    arguments = [
        *where,
        "--ServerApp.port_retries=0",
        "--ServerApp.allow_root=True",
        # Nobody logs in here with Jupyter's token; clients bring tokens of mgpu's own.
        f"--IdentityProvider.token={secrets.token_hex(32)}",
        # Who starts a master wants one here, whatever login is stored.
        "--MgpuApp.relay=False",
    ]
    if config is not None:
        arguments.append(f"--config={config}")
    application(host, tls=tls).launch_instance([*arguments, *extra])  # type: ignore[no-untyped-call]
    return 0


def _checked(path: str) -> Path:
    """Return the socket's whole path, or refuse one that cannot be bound."""
    whole = Path(path).expanduser().absolute()
    if len(str(whole).encode()) > MAX_SOCKET_BYTES:
        raise InvalidRequest("bad-socket", f"--socket {path}: the path is over {MAX_SOCKET_BYTES} bytes: use a shorter one.")
    if not whole.parent.is_dir():
        raise InvalidRequest("bad-socket", f"--socket {path}: there is no directory {whole.parent}: make it first.")
    return whole


def application(host: str, *, tls: bool) -> type[MgpuApp]:
    """Return the extension with a certificate as a default, which the site's `ServerApp.certfile` replaces."""
    if is_loopback(host) and not tls:
        return MgpuApp
    certificate = load_certificate(state_place().path / "keys", host)

    class Secure(MgpuApp):
        """The same with another default."""

        @classmethod
        def make_serverapp(cls, **kwargs: Any) -> Any:
            """Give the server a certificate before it reads its configuration."""
            return super().make_serverapp(certfile=str(certificate), **kwargs)

    return Secure
