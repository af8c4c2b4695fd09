"""`mgpu_master`: a Jupyter server without a browser that runs only the master. HTTPS beyond loopback."""

from __future__ import annotations

import errno
import secrets
import socket as sockets
from pathlib import Path
from typing import Any, NamedTuple

from mgpu_agent.protocol.errors import InvalidRequest, Unavailable
from mgpu_agent.protocol.places import check_private_state, state_place
from mgpu_jupyter.client.login import is_loopback
from mgpu_jupyter.model.cluster_file import ClusterFile
from mgpu_jupyter.server.app import MgpuApp
from mgpu_jupyter.server.certificate import load_certificate
from mgpu_jupyter.server.cluster_file import SUFFIXES, is_here, read_cluster_file
from mgpu_jupyter.server.site_settings import load_strategies

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
JUPYTER_SUFFIXES = (".py", ".json")
MAX_SOCKET_BYTES = 107  # the kernel's limit


def run(
    host: str | None,
    port: int | None,
    config: str | None,
    extra: list[str],
    *,
    tls: bool = False,
    socket: str | None = None,
) -> int:
    """Serve until ended; return the exit code. A cluster's file in `config` sets what is left out."""
    check_private_state(state_place().path)
    if config is not None:
        _check_config(config)
    is_cluster_file = config is not None and Path(config).suffix in SUFFIXES
    file = (
        read_cluster_file(Path(config), load_strategies())
        if config is not None and is_cluster_file
        else ClusterFile()
    )
    place, security = file.cluster.master, file.security
    host = host or (place.host if place.host and is_here(place.host) else DEFAULT_HOST)
    port = DEFAULT_PORT if port is None and place.port is None else port if port is not None else place.port
    where = (
        [f"--ServerApp.ip={host}", f"--ServerApp.port={port}"]
        if socket is None
        else [f"--ServerApp.sock={_checked(socket)}"]
    )
    if socket is None and not any(word.startswith(("--ServerApp.ip", "--ServerApp.port")) for word in extra):
        _check_place(host, port or 0)
    arguments = [
        *where,
        "--ServerApp.port_retries=0",
        "--ServerApp.allow_root=True",
        # Nobody logs in here with Jupyter's token; clients have tokens of mgpu's own.
        f"--IdentityProvider.token={secrets.token_hex(32)}",
        # This command is for a master here, whatever login is stored.
        "--MgpuApp.relay=False",
    ]
    if config is not None:
        arguments.append(
            f"--MgpuApp.cluster_config={Path(config).absolute()}" if is_cluster_file else f"--config={config}"
        )
    if file.logging.level is not None:
        arguments.append(f"--ServerApp.log_level={file.logging.level}")
    own = (
        Certificate(security.cert_file, security.key_file)
        if security.enable_ssl and security.cert_file
        else None
    )
    application(host, tls=tls or security.enable_ssl, own=own).launch_instance([*arguments, *extra])  # type: ignore[no-untyped-call]
    return 0


def _check_config(config: str) -> None:
    """Refuse a file that would not be read: Jupyter ignores such files silently."""
    path = Path(config)
    if path.is_dir():
        raise InvalidRequest(
            "bad-config",
            f"--config {config} is a directory: name the file, like {path / 'cluster_config.yaml'}.",
        )
    if path.suffix not in (*SUFFIXES, *JUPYTER_SUFFIXES):
        raise InvalidRequest(
            "bad-config",
            f"--config {config}: its name must end in .yaml or .yml for a cluster's file, or in .py or .json "
            f"for one of Jupyter's own; rename it.",
        )
    if not path.is_file():
        raise InvalidRequest("bad-config", f"--config {config}: there is no such file; look at its path.")


def _check_place(host: str, port: int) -> None:
    """Refuse an address that this machine does not have, and a port that is taken."""
    try:
        family, kind, _, _, place = sockets.getaddrinfo(host, port, type=sockets.SOCK_STREAM)[0]
    except OSError:
        raise InvalidRequest(
            "bad-host", f"--host {host}: no machine of that name is known; write an address of this machine."
        ) from None
    with sockets.socket(family, kind) as probe:
        probe.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise Unavailable(
                    "port-taken",
                    f"Port {port} of {host} is taken by another program, perhaps a master of yours: stop "
                    f"that one, or choose another port by --port.",
                ) from None
            if error.errno == errno.EACCES:
                raise InvalidRequest(
                    "bad-port", f"--port {port}: only root may listen there; use one from 1024 on."
                ) from None
            raise InvalidRequest(
                "bad-host",
                f"--host {host} is no address of this machine: use 0.0.0.0 for all that it has, or leave "
                f"--host out.",
            ) from None


def _checked(path: str) -> Path:
    """Return the socket's absolute path, or refuse one that cannot be bound."""
    whole = Path(path).expanduser().absolute()
    if len(str(whole).encode()) > MAX_SOCKET_BYTES:
        raise InvalidRequest(
            "bad-socket", f"--socket {path}: the path is over {MAX_SOCKET_BYTES} bytes: use a shorter one."
        )
    if not whole.parent.is_dir():
        raise InvalidRequest(
            "bad-socket", f"--socket {path}: there is no directory {whole.parent}: make it first."
        )
    return whole


class Certificate(NamedTuple):
    """The site's own certificate, as files; the key may be in the same one."""

    file: str
    key: str = ""


def application(host: str, *, tls: bool, own: Certificate | None = None) -> type[MgpuApp]:
    """Return the extension with a certificate as a default that `ServerApp.certfile` replaces."""
    if is_loopback(host) and not tls:
        return MgpuApp
    files = (
        {"certfile": str(load_certificate(state_place().path / "keys", host))}
        if own is None
        else {"certfile": own.file}
    )
    if own is not None and own.key:
        files["keyfile"] = own.key

    class Secure(MgpuApp):
        """The same with another default."""

        @classmethod
        def make_serverapp(cls, **kwargs: Any) -> Any:
            """Give the server a certificate before it reads its configuration."""
            return super().make_serverapp(**files, **kwargs)

    return Secure
