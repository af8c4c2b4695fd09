"""`mgpu node ACTION ID`: what administrators do to one node."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import printable, tell
from mgpu_jupyter.api.administration import NodeActionName
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser

ACTIONS: dict[str, NodeActionName] = {
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
_EXAMPLES = ('drain n1 --reason "new memory on Friday"', "resume n1", "allow n1 --user ann --only", "label n1 room=B2 fast")
_ABOUT = (
    "Administer a node. drain and maintenance: no new jobs, what runs goes on. resume: jobs again. allow and deny: who may use it. "
    "label: what --constraint is about; NAME- takes one off again. "
    "remove: forget a node that is offline. revoke: refuse it from now on; what it runs is run elsewhere. "
    "ping: ask its agent who it is, through the real link."
)


def parser(prog: str) -> Parser:
    """Return the flags."""
    usage = f'{prog} {"|".join((*ACTIONS, PING))} ID [LABEL=VALUE…] [--reason "…"] [--user NAME] [--account NAME]'
    result = Parser(prog, usage, _ABOUT, examples=[f"{prog} {words}" for words in _EXAMPLES])
    result.add_argument("action", nargs="?", help=", ".join((*ACTIONS, PING)))
    result.add_argument("node_id", nargs="?", metavar="ID", help="the node; see mgpu nodes")
    result.add_argument("labels", nargs="*", metavar="LABEL=VALUE", help="label: NAME=VALUE or NAME; NAME- takes it off again")
    result.add_argument("--reason", default="", metavar="TEXT", help="shown to everyone beside the node")
    result.add_argument("--user", action="append", default=[], metavar="NAME", help="whom to allow or deny; may be repeated")
    result.add_argument("--account", action="append", default=[], metavar="NAME", help="an account to allow or deny; may be repeated")
    result.add_argument("--only", action="store_true", help="allow: nobody but those named")
    result.add_argument("--everybody", action="store_true", help="allow: everybody again")
    result.add_argument("--json", action="store_true", help="print one JSON document")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Do it and say what became of the node."""
    if values.action == PING and values.node_id:
        return _ping(values, make_client)
    action = _action(values)
    with make_client() as client:
        answer = client.change_node(
            values.node_id, action, values.reason, users=values.user, accounts=values.account, labels=_labels(values)
        )
    if values.json:
        document(answer)
        return 0
    tell(f"{answer.node_id}: {printable(answer.message)}")
    return 0


def _ping(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Say how the node answered; exit 1 when something is not as it should be."""
    with make_client() as client:
        told = client.ping_node(values.node_id)
    if values.json:
        document(told)
    else:
        tell(f"{told.node_id}: answered in {told.seconds * 1000:.0f} ms from host {printable(told.host)}, {printable(told.address)}")
        tell(f"  agent {printable(told.agent_version)} (master {told.master_version}), pid {told.pid}, {printable(told.python)}")
        tell(f"  its clock is {told.clock_skew_s:+.3f} s from the master's; it reaches the master at {printable(told.link)}")
        for text in told.warnings:
            tell(f"  WARNING: {printable(text)}")
    return 1 if told.warnings else 0


def _labels(values: argparse.Namespace) -> dict[str, str | None]:
    """Return the labels that are named; None for one to be taken off."""
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


def _action(values: argparse.Namespace) -> NodeActionName:
    """Return what is asked for, or say what is missing or too much."""
    name, has_names = values.action, bool(values.user or values.account)
    if name not in (*ACTIONS, PING):
        raise InvalidRequest("usage", f"mgpu node knows {', '.join((*ACTIONS, PING))}: write for example mgpu node drain ID.")
    if not values.node_id:
        raise InvalidRequest("usage", f"Which node? Write mgpu node {name} ID; `mgpu nodes` lists them.")
    if (name == "label") != bool(values.labels):
        raise InvalidRequest("usage", f"Labels go with label: write mgpu node label {values.node_id} room=B2, or leave them out.")
    if name not in ("allow", "deny") and has_names:
        raise InvalidRequest("usage", f"--user and --account go with allow and deny: leave them out of {name}.")
    if name != "allow" and (values.only or values.everybody):
        raise InvalidRequest("usage", f"--only and --everybody go with allow: leave them out of {name}.")
    if values.everybody:
        if has_names or values.only:
            raise InvalidRequest("usage", "--everybody names all: leave --only, --user and --account out.")
        return "clear-lists"
    if name in ("allow", "deny") and not has_names:
        raise InvalidRequest("usage", f"Whom? Write mgpu node {name} {values.node_id} --user NAME, or --account NAME.")
    return "only" if values.only else ACTIONS[name]
