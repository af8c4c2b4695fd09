"""Which master a command means, when its flags name one: the earlier tools' `--host` and `--port`. Sends nothing."""

from __future__ import annotations

import os

from mgpu_jupyter.client.parser import Parser


def add_place(parser: Parser) -> None:
    """Add the flags that name the master."""
    parser.add_argument("--host", metavar="H", help="host of the master; default: $MGPU_MASTER_HOST, else as found")
    parser.add_argument("--port", metavar="P", help="HTTP port of the master; default: $MGPU_MASTER_PORT, else 8080")


def point_at(host: str | None, port: str | None) -> None:
    """Let every client of this process speak to that master: a flag goes before the environment."""
    if host is None and port is None:
        return
    os.environ.pop("MGPU_URL", None)
    if host is not None:
        os.environ["MGPU_MASTER_HOST"] = host
    if port is not None:
        os.environ["MGPU_MASTER_PORT"] = port
