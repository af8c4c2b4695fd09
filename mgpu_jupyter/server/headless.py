"""`mgpu_master`: a Jupyter server with no browser and no other extension that runs only the master. HTTPS beyond loopback."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, NamedTuple

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.places import check_private_state, state_place
from mgpu_jupyter.client.login import is_loopback
from mgpu_jupyter.model.cluster_file import ClusterFile
from mgpu_jupyter.server.app import MgpuApp
from mgpu_jupyter.server.certificate import load_certificate
from mgpu_jupyter.server.cluster_file import SUFFIXES, is_here, read_cluster_file
from mgpu_jupyter.server.site_settings import load_strategies

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
MAX_SOCKET_BYTES = 107  # what the kernel takes


def run(host: str | None, port: int | None, config: str | None, extra: list[str], *, tls: bool = False, socket: str | None = None) -> int:
    """Serve until ended; returns the exit code. What is not given is taken from the cluster's file, if `config` is one."""
    check_private_state(state_place().path)
    is_cluster_file = config is not None and Path(config).suffix in SUFFIXES
    file = read_cluster_file(Path(config), load_strategies()) if config is not None and is_cluster_file else ClusterFile()
    place, security = file.cluster.master, file.security
    host = host or (place.host if place.host and is_here(place.host) else DEFAULT_HOST)
    port = DEFAULT_PORT if port is None and place.port is None else port if port is not None else place.port
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
        arguments.append(f"--MgpuApp.cluster_config={Path(config).absolute()}" if is_cluster_file else f"--config={config}")
    if file.logging.level is not None:
        arguments.append(f"--ServerApp.log_level={file.logging.level}")
    own = Certificate(security.cert_file, security.key_file) if security.enable_ssl and security.cert_file else None
    application(host, tls=tls or security.enable_ssl, own=own).launch_instance([*arguments, *extra])  # type: ignore[no-untyped-call]
    return 0


def _checked(path: str) -> Path:
    """Return the socket's whole path, or refuse one that cannot be bound."""
    whole = Path(path).expanduser().absolute()
    if len(str(whole).encode()) > MAX_SOCKET_BYTES:
        raise InvalidRequest("bad-socket", f"--socket {path}: the path is over {MAX_SOCKET_BYTES} bytes: use a shorter one.")
    if not whole.parent.is_dir():
        raise InvalidRequest("bad-socket", f"--socket {path}: there is no directory {whole.parent}: make it first.")
    return whole


class Certificate(NamedTuple):
    """The site's own, as files; the key may be in the same one."""

    file: str
    key: str = ""


def application(host: str, *, tls: bool, own: Certificate | None = None) -> type[MgpuApp]:
    """Return the extension with a certificate as a default, which the site's `ServerApp.certfile` replaces."""
    if is_loopback(host) and not tls:
        return MgpuApp
    files = {"certfile": str(load_certificate(state_place().path / "keys", host))} if own is None else {"certfile": own.file}
    if own is not None and own.key:
        files["keyfile"] = own.key

    class Secure(MgpuApp):
        """The same with another default."""

        @classmethod
        def make_serverapp(cls, **kwargs: Any) -> Any:
            """Give the server a certificate before it reads its configuration."""
            return super().make_serverapp(**files, **kwargs)

    return Secure
