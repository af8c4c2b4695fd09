"""`mgpu_master`: a headless Jupyter server that runs only the master. Imports the server when it starts."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from mgpu_agent.protocol.errors import InvalidRequest, Unavailable
from mgpu_jupyter.cli.command import Command, MakeClient
from mgpu_jupyter.cli.show import show_help
from mgpu_jupyter.client.parser import Help, Parser

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080


class _Headless(Protocol):
    def run(
        self,
        host: str | None,
        port: int | None,
        config: str | None,
        extra: list[str],
        *,
        tls: bool,
        socket: str | None,
    ) -> int:
        """Serve until it is stopped."""


def main(argv: Sequence[str], make_client: MakeClient) -> int:  # noqa: ARG001 - a command like the others
    """Serve until stopped; words after `--` are passed to the Jupyter server."""
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    values = parser("mgpu_master").read(words[:cut])
    if isinstance(values, Help):
        return show_help(values.text)
    if values.port is not None and (not values.port.isdecimal() or int(values.port) > 65535):
        raise InvalidRequest(
            "bad-port", f"--port {values.port}: write a port up to 65535, like {DEFAULT_PORT}."
        )
    if values.socket and values.tls:
        raise InvalidRequest(
            "contradiction", "--socket and --tls exclude each other: a socket does not leave the machine."
        )
    if importlib.util.find_spec("jupyter_server") is None:
        raise Unavailable(
            "no-jupyter-server", 'mgpu_master needs jupyter_server: run  pip install "mgpu-jupyter[lab]"'
        )
    leave_out_slow_imports()
    headless = cast("_Headless", importlib.import_module("mgpu_jupyter.server.headless"))
    return headless.run(
        values.host,
        None if values.port is None else int(values.port),
        values.config,
        _extra(words[cut + 1 :], verbose=values.verbose),
        tls=values.tls,
        socket=values.socket,
    )


def _extra(words: list[str], *, verbose: bool) -> list[str]:
    return ["--ServerApp.log_level=DEBUG", *words] if verbose else words


def leave_out_slow_imports() -> None:
    """Skip an import that takes longer than all the rest of a start, for a check that nobody needs.

    jsonschema, by which Jupyter checks its events, works without the package where it is not installed.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None makes its import fail, as Python documents


def parser(prog: str) -> Parser:
    """Return the flags."""
    result = Parser(
        prog,
        f"{prog} [--host H] [--port P] [--tls] [--socket PATH] [--config F] [--verbose] [-- SERVER-FLAGS…]",
        "Run the master without JupyterLab, until Ctrl-C.",
        examples=[f"{prog} --port 8080", f"{prog} --host 0.0.0.0 -- --MgpuApp.on_disconnect=fence"],
    )
    add = result.add_argument
    add(
        "--host", metavar="H", help=f"address to listen on (default {DEFAULT_HOST}); beyond loopback by HTTPS"
    )
    add("--port", metavar="P", help=f"port to listen on (default {DEFAULT_PORT})")
    add("--tls", action="store_true", help="serve HTTPS on loopback too; beyond loopback it is always HTTPS")
    add(
        "--socket",
        metavar="PATH",
        help="serve a UNIX socket, for your own user on this machine, instead of a port",
    )
    add("--config", metavar="F", help="cluster_config.yaml, or a configuration file of Jupyter's own kind")
    add("--verbose", action="store_true", help="log more")
    return result


COMMANDS = {"master": Command(parser, main=main)}
