"""`mgpu user`: the people of a shared master. The server decides who may."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.api import administration
from mgpu_jupyter.cli.join_token import seconds
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser

USAGE = "mgpu user add NAME [--admin] [--ttl 30d] | list [--json] | remove NAME"


def parser(prog: str) -> Parser:
    """Return the flags."""
    examples = [f"{prog} add ann --ttl 30d", f"{prog} list", f"{prog} remove ann"]
    result = Parser(prog, USAGE, "Administer the users of a shared master. For administrators.", examples=examples)
    result.add_argument("action", nargs="?", metavar="ACTION", help="add, list or remove")
    result.add_argument("name", nargs="?", metavar="NAME", help="name of the user")
    result.add_argument("--admin", action="store_true", help="may see and cancel everyone's jobs, and add users")
    result.add_argument("--ttl", metavar="T", help="how long the login is good for, like 30d; else until the user is removed")
    result.add_argument("--json", action="store_true", help="print one JSON document")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Add, list or remove users."""
    if values.action not in ("add", "list", "remove"):
        raise InvalidRequest("usage", f"Say what to do, as in: {USAGE}")
    if values.action != "list" and not values.name:
        raise InvalidRequest("usage", f"Name the user, as in: mgpu user {values.action} ann")
    ttl_s = None if values.ttl is None else seconds(values.ttl)
    with make_client() as client:
        if values.action == "list":
            users = client.users()
            document({"users": users}) if values.json else tell(*_as_lines(users))
        elif values.action == "add":
            answer = client.add_user(values.name, admin=values.admin, ttl_s=ttl_s)
            document(answer) if values.json else tell(f"mgpu login {answer.line}")
        else:
            removed = client.remove_user(values.name)
            if values.json:
                document(removed)
                return 0
            tell(f"{values.name} is removed, and all logins of that name have ended. Jobs that run go on: see mgpu_queue -u {values.name}")
    return 0


def _as_lines(users: Sequence[administration.User]) -> list[str]:
    if not users:
        return ["No users yet: `mgpu user add NAME` prints the line with which one logs in."]
    return [f"{user.name} | {user.role} | {_until(user.expires_at)}" for user in users]


def _until(expires_at: float | None) -> str:
    if expires_at is None:
        return "until removed"
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(expires_at))
    return f"expired on {day}" if expires_at < time.time() else f"until {day}"
