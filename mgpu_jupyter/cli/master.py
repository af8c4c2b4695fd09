"""`mgpu_master`: a headless Jupyter server that runs only the master. Reads the flags; the server is imported when it starts."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from mgpu_agent.protocol.errors import InvalidRequest, Unavailable
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.flags import Help, Parser

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080


class _Headless(Protocol):
    def run(self, host: str, port: int, config: str | None, extra: list[str], *, tls: bool, socket: str | None) -> int:
        """Serve until it is stopped."""


def main(argv: Sequence[str], make_client: Callable[[], Client]) -> int:  # noqa: ARG001 - a command like the others
    """Serve until stopped; words after `--` go to the Jupyter server."""
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    values = _parser().read(words[:cut])
    if isinstance(values, Help):
        print(values.text, end="")
        return 0
    if not values.port.isdecimal() or int(values.port) > 65535:
        raise InvalidRequest("bad-port", f"--port {values.port}: write a port like {DEFAULT_PORT}.")
    if values.socket and values.tls:
        raise InvalidRequest("contradiction", "--socket and --tls exclude each other: a socket does not leave the machine.")
    if importlib.util.find_spec("jupyter_server") is None:
        raise Unavailable("no-jupyter-server", 'mgpu_master needs jupyter_server: run  pip install "mgpu-jupyter[lab]"')
    headless = cast("_Headless", importlib.import_module("mgpu_jupyter.server.headless"))
    return headless.run(values.host, int(values.port), values.config, words[cut + 1 :], tls=values.tls, socket=values.socket)


def _parser() -> Parser:
    parser = Parser(
        "mgpu_master",
        "mgpu_master [--host H] [--port P] [--tls] [--socket PATH] [--config F] [-- SERVER-FLAGS…]",
        "Run the master without JupyterLab.",
    )
    parser.add_argument("--host", default=DEFAULT_HOST, metavar="H", help=f"address to listen on (default {DEFAULT_HOST})")
    parser.add_argument("--port", default=str(DEFAULT_PORT), metavar="P", help=f"port to listen on (default {DEFAULT_PORT})")
    parser.add_argument("--tls", action="store_true", help="serve HTTPS on loopback too; beyond loopback it is always HTTPS")
    parser.add_argument("--socket", metavar="PATH", help="serve a UNIX socket, for your own user on this machine, instead of a port")
    parser.add_argument("--config", metavar="F", help="configuration file")
    return parser
