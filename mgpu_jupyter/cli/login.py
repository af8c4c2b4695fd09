"""`mgpu login` tries a login line and stores it, `mgpu logout` deletes it.

The line is a secret, so it is wiped from this process's command line at once. The token itself ends when an
administrator removes the user.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from msgspec.structs import replace

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import printable, tell
from mgpu_jupyter.cli.command import Command, MakeClient, add_json, wipe_from_ps
from mgpu_jupyter.cli.show import document, show_help
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.login import Login, forget_login, read_line, store_login
from mgpu_jupyter.client.parser import Help, Parser
from mgpu_jupyter.client.transport import Timeouts

QUICK = Timeouts(retry_s=0)


class _Parser(Parser):
    """Never repeats a word that it does not know: it may be half of a secret."""

    def refuse(self, word: str) -> NoReturn:  # noqa: ARG002 - that is the point
        raise InvalidRequest(
            "usage",
            "That is more than one line: paste it whole, in one piece, as in: mgpu login mgpulogin1.…",
        )


def _login_parser(prog: str) -> Parser:
    """Return the flags."""
    about = "Use the master that the line names, from now on and wherever this home is."
    result = _Parser(
        prog, f"{prog} LINE [--json]", about, examples=[f"{prog} mgpulogin1.…", f"{prog} - < line.txt"]
    )
    result.add_argument(
        "line", nargs="?", metavar="LINE", help="what `mgpu user add` printed; - reads it from stdin"
    )
    add_json(result)
    return result


def _login(argv: Sequence[str], make_client: MakeClient) -> int:  # noqa: ARG001 - a command like the others
    """Log in to a master elsewhere."""
    wipe_from_ps(argv)
    values = _login_parser("mgpu login").read(argv)
    if isinstance(values, Help):
        return show_help(values.text)
    if not values.line:
        raise InvalidRequest(
            "usage",
            "Paste the line that your administrator's `mgpu user add` printed: mgpu login mgpulogin1.…",
        )
    login = read_line(sys.stdin.readline() if values.line == "-" else values.line)
    with _client_of(login) as client:
        me = client.cluster()
    path = store_login(replace(login, user=me.user), os.environ)
    if values.json:
        document({"user": me.user, "admin": me.admin, "cluster": me.name, "url": login.url})
        return 0
    tell(
        f"You are {printable(me.user)}{' (administrator)' if me.admin else ''} on {printable(me.name)} at "
        f"{login.url}; kept in {path}."
    )
    if os.environ.get("MGPU_URL"):
        tell(
            "This shell has MGPU_URL set, which goes before the login: restart its Jupyter server, or unset "
            "MGPU_URL MGPU_TOKEN."
        )
    return 0


def _client_of(login: Login) -> Client:
    return Client.of_login(login, timeouts=QUICK)


def _logout_parser(prog: str) -> Parser:
    """Return the flags."""
    result = Parser(prog, f"{prog} [--json]", "Forget the login that `mgpu login` stored.")
    add_json(result)
    return result


def _logout(values: argparse.Namespace, make_client: MakeClient) -> int:  # noqa: ARG001 - a command like the others
    """Delete the stored login."""
    login = forget_login(os.environ)
    if values.json:
        document({"url": None if login is None else login.url})
        return 0
    tell(
        "There was no login."
        if login is None
        else f"The login to {login.url or 'a master elsewhere'} is forgotten."
    )
    return 0


COMMANDS = {"login": Command(_login_parser, main=_login), "logout": Command(_logout_parser, _logout)}
