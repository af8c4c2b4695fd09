"""`mgpu user`: the people of a shared master. The server decides who may."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.join_token import seconds
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.flags import Help, Parser
from mgpu_jupyter.client.words import printable

USAGE = "mgpu user add NAME [--admin] [--ttl 30d] | list [--json] | remove NAME"


def main(argv: Sequence[str], make_client: Callable[[], Client]) -> int:
    """Add, list or remove users."""
    parser = Parser("mgpu user", USAGE, "Administer the users of a shared master.")
    parser.add_argument("action", nargs="?", metavar="ACTION", help="add, list or remove")
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the user")
    parser.add_argument("--admin", action="store_true", help="may see and cancel everyone's jobs, and add users")
    parser.add_argument("--ttl", metavar="T", help="how long the login is good for, like 30d; else until the user is removed")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    values = parser.read(argv)
    if isinstance(values, Help):
        print(values.text, end="")
        return 0
    if values.action not in ("add", "list", "remove"):
        raise InvalidRequest("usage", f"Say what to do, as in: {USAGE}")
    if values.action != "list" and not values.name:
        raise InvalidRequest("usage", f"Name the user, as in: mgpu user {values.action} ann")
    ttl_s = None if values.ttl is None else seconds(values.ttl)
    with make_client() as client:
        if values.action == "list":
            users = client.users()
            print(msgspec.json.encode({"users": users}).decode() if values.json else _as_text(users))
        elif values.action == "add":
            answer = client.add_user(values.name, admin=values.admin, ttl_s=ttl_s)
            print(msgspec.json.encode(answer).decode() if values.json else f"mgpu login {answer.line}")
        else:
            client.remove_user(values.name)
            print(f"{values.name} is removed, and all logins of that name have ended. Jobs that run go on: see mgpu_queue -u {values.name}")
    return 0


def _as_text(users: Sequence[models.User]) -> str:
    if not users:
        return "No users yet: `mgpu user add NAME` prints the line with which one logs in."
    return "\n".join(f"{printable(user.name)} | {user.role} | {_until(user.expires_at)}" for user in users)


def _until(expires_at: float | None) -> str:
    if expires_at is None:
        return "until removed"
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(expires_at))
    return f"expired on {day}" if expires_at < time.time() else f"until {day}"
