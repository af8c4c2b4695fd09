"""`mgpu logout`: forgets the stored login. The token itself ends when an administrator removes the user."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.login import forget_login
from mgpu_jupyter.client.parser import Parser


def parser(prog: str) -> Parser:
    """Return the flags."""
    result = Parser(prog, f"{prog} [--json]", "Forget the login that `mgpu login` stored.")
    result.add_argument("--json", action="store_true", help="print one JSON document")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:  # noqa: ARG001 - a command like the others
    """Forget the login."""
    login = forget_login(os.environ)
    if values.json:
        document({"url": None if login is None else login.url})
        return 0
    tell("There was no login." if login is None else f"The login to {login.url or 'a master elsewhere'} is forgotten.")
    return 0
