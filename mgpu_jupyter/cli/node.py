"""`mgpu node ACTION ID`: what administrators do to one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.flags import Help, Parser
from mgpu_jupyter.client.words import printable

ACTIONS = ("revoke",)


def main(argv: Sequence[str], make_client: Callable[[], Client]) -> int:
    """Do it and say what became of the node."""
    parser = Parser("mgpu node", 'mgpu node revoke ID [--reason "…"]', "Refuse a node from now on; what it runs is run elsewhere.")
    parser.add_argument("action", nargs="?", help=" or ".join(ACTIONS))
    parser.add_argument("node_id", nargs="?", metavar="ID", help="the node; see mgpu nodes")
    parser.add_argument("--reason", default="", metavar="TEXT", help="shown to everyone beside the node")
    values = parser.read(argv)
    if isinstance(values, Help):
        print(values.text, end="")
        return 0
    if values.action not in ACTIONS:
        raise InvalidRequest("usage", f"mgpu node knows {', '.join(ACTIONS)}: write mgpu node {ACTIONS[0]} ID.")
    if not values.node_id:
        raise InvalidRequest("usage", f"Which node? Write mgpu node {values.action} ID; `mgpu nodes` lists them.")
    with make_client() as client:
        answer = client.revoke_node(values.node_id, values.reason)
    print(f"{answer.node_id}: {printable(answer.message)}")
    return 0
