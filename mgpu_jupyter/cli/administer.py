"""Commands of administrators: `mgpu node`, `mgpu join-token` and `mgpu user`. The server decides who is
one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import printable, tell
from mgpu_jupyter.api import administration
from mgpu_jupyter.api.administration import NodeActionName
from mgpu_jupyter.cli.command import Command, MakeClient, add_json, seconds
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.words import duration

NODE_ACTIONS: dict[str, NodeActionName] = {
    "drain": "drain",
    "resume": "resume",
    "maintenance": "maintenance",
    "allow": "allow",
    "deny": "deny",
    "label": "label",
    "remove": "remove",
    "revoke": "revoke",
}
PING = "ping"
_NODE_EXAMPLES = (
    'drain n1 --reason "new memory on Friday"',
    "resume n1",
    "allow n1 --user ann --only",
    "label n1 room=B2 fast",
)
_NODE_ABOUT = (
    "Administer a node. drain and maintenance: no new jobs, what runs goes on. resume: jobs again. allow "
    "and deny: who may use it. "
    "label: what --constraint is about; NAME- takes one off again. "
    "remove: forget a node that is offline. revoke: refuse it from now on; what it runs is run elsewhere. "
    "ping: ask its agent who it is, through the real link."
)

USER_USAGE = "mgpu user add NAME [--admin] [--ttl 30d] | list [--json] | remove NAME"


def _node_parser(prog: str) -> Parser:
    """Return the flags."""
    usage = (
        f'{prog} {"|".join((*NODE_ACTIONS, PING))} ID [LABEL=VALUE…] [--reason "…"] [--user NAME] '
        "[--account NAME]"
    )
    result = Parser(prog, usage, _NODE_ABOUT, examples=[f"{prog} {words}" for words in _NODE_EXAMPLES])
    result.add_argument("action", nargs="?", help=", ".join((*NODE_ACTIONS, PING)))
    result.add_argument("node_id", nargs="?", metavar="ID", help="the node; see mgpu nodes")
    result.add_argument(
        "labels", nargs="*", metavar="LABEL=VALUE", help="label: NAME=VALUE or NAME; NAME- takes it off again"
    )
    result.add_argument("--reason", default="", metavar="TEXT", help="shown to everyone beside the node")
    result.add_argument(
        "--user", action="append", default=[], metavar="NAME", help="whom to allow or deny; may be repeated"
    )
    result.add_argument(
        "--account",
        action="append",
        default=[],
        metavar="NAME",
        help="an account to allow or deny; may be repeated",
    )
    result.add_argument("--only", action="store_true", help="allow: nobody but those named")
    result.add_argument("--everybody", action="store_true", help="allow: everybody again")
    add_json(result)
    return result


def _node(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Carry out the order and print the answer."""
    if values.action == PING and values.node_id:
        return _ping(values, make_client)
    action = _action_of(values)
    with make_client() as client:
        answer = client.admin.change_node(
            values.node_id,
            action,
            values.reason,
            users=values.user,
            accounts=values.account,
            labels=_labels(values),
        )
    if values.json:
        document(answer)
        return 0
    tell(f"{answer.node_id}: {printable(answer.message)}")
    return 0


def _ping(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Print the node's answer; exit 1 when something is not as it should be."""
    with make_client() as client:
        told = client.admin.ping_node(values.node_id)
    if values.json:
        document(told)
    else:
        tell(
            f"{told.node_id}: answered in {told.seconds * 1000:.0f} ms from host {printable(told.host)}, "
            f"{printable(told.address)}"
        )
        tell(
            f"  agent {printable(told.agent_version)} (master {told.master_version}), pid {told.pid}, "
            f"{printable(told.python)}"
        )
        tell(
            f"  its clock is {told.clock_skew_s:+.3f} s from the master's; it reaches the master at "
            f"{printable(told.link)}"
        )
        for text in told.warnings:
            tell(f"  WARNING: {printable(text)}")
    return 1 if told.warnings else 0


def _labels(values: argparse.Namespace) -> dict[str, str | None]:
    """Return the labels of the line; None for one to remove."""
    labels: dict[str, str | None] = {}
    for word in values.labels:
        name, _, value = word.partition("=")
        if not name:
            raise InvalidRequest("usage", f"{word} is no label: write NAME=VALUE, or NAME- to take one off.")
        if word.endswith("-") and "=" not in word:
            labels[name[:-1]] = None
        else:
            labels[name] = value
    return labels


def _action_of(values: argparse.Namespace) -> NodeActionName:
    """Return the order of the line, or raise what is missing or too much."""
    name, has_names = values.action, bool(values.user or values.account)
    if name not in (*NODE_ACTIONS, PING):
        raise InvalidRequest(
            "usage",
            f"mgpu node knows {', '.join((*NODE_ACTIONS, PING))}: write for example mgpu node drain ID.",
        )
    if not values.node_id:
        raise InvalidRequest("usage", f"Which node? Write mgpu node {name} ID; `mgpu nodes` lists them.")
    if (name == "label") != bool(values.labels):
        raise InvalidRequest(
            "usage",
            f"Labels go with label: write mgpu node label {values.node_id} room=B2, or leave them out.",
        )
    if name not in ("allow", "deny") and has_names:
        raise InvalidRequest(
            "usage", f"--user and --account go with allow and deny: leave them out of {name}."
        )
    if name != "allow" and (values.only or values.everybody):
        raise InvalidRequest("usage", f"--only and --everybody go with allow: leave them out of {name}.")
    if values.everybody:
        if has_names or values.only:
            raise InvalidRequest("usage", "--everybody names all: leave --only, --user and --account out.")
        return "clear-lists"
    if name in ("allow", "deny") and not has_names:
        raise InvalidRequest(
            "usage", f"Whom? Write mgpu node {name} {values.node_id} --user NAME, or --account NAME."
        )
    return "only" if values.only else NODE_ACTIONS[name]


def _join_token_parser(prog: str) -> Parser:
    """Return the flags."""
    usage = f"{prog} [--node-id ID] [--ttl 1h] [--listen ADDR] [--json]"
    examples = [f"{prog} --ttl 30m", f"{prog} --node-id gpu-07 --listen 10.0.0.1"]
    result = Parser(
        prog,
        usage,
        "Print one line that lets another machine join, once. For administrators.",
        examples=examples,
    )
    result.add_argument(
        "--node-id", metavar="ID", help="the name that the machine joins under; default: its host name"
    )
    result.add_argument(
        "--ttl", default="1h", metavar="T", help="how long the line works, like 30m, 1h or 2d (default 1h)"
    )
    result.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="ADDR",
        help="an address that the machine reaches; may be repeated",
    )
    add_json(result)
    return result


def _join_token(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Print the line to paste on the new machine."""
    ttl_s = seconds(values.ttl)
    with make_client() as client:
        token = client.admin.join_token(node_id=values.node_id, ttl_s=ttl_s, listen=values.listen)
    if values.json:
        document(token)
        return 0
    tell(token.command)
    where = ", ".join(token.addresses)
    notes = [token.message] if token.message else []
    notes.append(
        f"Run this line on the new machine within {duration(token.expires_at - time.time())}; it works once "
        f"and reaches {where}."
    )
    tell(*notes, file=sys.stderr)
    return 0


def _user_parser(prog: str) -> Parser:
    """Return the flags."""
    examples = [f"{prog} add ann --ttl 30d", f"{prog} list", f"{prog} remove ann"]
    result = Parser(
        prog, USER_USAGE, "Administer the users of a shared master. For administrators.", examples=examples
    )
    result.add_argument("action", nargs="?", metavar="ACTION", help="add, list or remove")
    result.add_argument("name", nargs="?", metavar="NAME", help="name of the user")
    result.add_argument(
        "--admin", action="store_true", help="may see and cancel everyone's jobs, and add users"
    )
    result.add_argument(
        "--ttl", metavar="T", help="how long the login is good for, like 30d; else until the user is removed"
    )
    add_json(result)
    return result


def _user(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Add, list or remove users."""
    if values.action not in ("add", "list", "remove"):
        raise InvalidRequest("usage", f"Say what to do, as in: {USER_USAGE}")
    if values.action != "list" and not values.name:
        raise InvalidRequest("usage", f"Name the user, as in: mgpu user {values.action} ann")
    if values.action == "list" and values.name:
        raise InvalidRequest("usage", f"mgpu user list shows all of them: leave {values.name} out.")
    ttl_s = None if values.ttl is None else seconds(values.ttl)
    with make_client() as client:
        if values.action == "list":
            users = client.admin.users()
            document({"users": users}) if values.json else tell(*_user_lines(users))
        elif values.action == "add":
            answer = client.admin.add_user(values.name, admin=values.admin, ttl_s=ttl_s)
            document(answer) if values.json else tell(f"mgpu login {answer.line}")
        else:
            removed = client.admin.remove_user(values.name)
            if values.json:
                document(removed)
                return 0
            tell(
                f"{values.name} is removed, and all logins of that name have ended. Jobs that run go on: "
                f"see mgpu_queue -u {values.name}"
            )
    return 0


def _user_lines(users: Sequence[administration.User]) -> list[str]:
    if not users:
        return ["No users yet: `mgpu user add NAME` prints the line with which one logs in."]
    return [f"{user.name} | {user.role} | {_until(user.expires_at)}" for user in users]


def _until(expires_at: float | None) -> str:
    if expires_at is None:
        return "until removed"
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(expires_at))
    return f"expired on {day}" if expires_at < time.time() else f"until {day}"


COMMANDS = {
    "node": Command(_node_parser, _node, actions=(*NODE_ACTIONS, PING)),
    "join-token": Command(_join_token_parser, _join_token),
    "user": Command(_user_parser, _user),
}
