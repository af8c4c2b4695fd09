"""Calls of administrators about nodes: keys for new machines, addresses, revoking, orders.

Each runs inside a turn. A key or an address is durable by itself before it works; a node's key is unbound
with the turn's commit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mgpu_agent.protocol.errors import NotFound
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.master.calls import Answer, answering
from mgpu_jupyter.master.master import Call, Master
from mgpu_jupyter.master.ports import JoinKey, Store
from mgpu_jupyter.master.turn import Turn
from mgpu_jupyter.scheduler import orders
from mgpu_jupyter.scheduler.events import NodeDeclaredLost, NodeOrdered, Order

ADDRESSES = "link_addresses"


def kept_addresses(store: Store) -> tuple[str, ...]:
    """Return the addresses apart from loopback that the link listens on at every start."""
    return msgspec.json.decode(store.setting(ADDRESSES) or "[]", type=tuple[str, ...])


def listen(hosts: Sequence[str], answer: Answer[tuple[str, ...]]) -> Call:
    """Return a call that makes the link listen on `hosts`, now and after every start; answers with the new
    ones.
    """

    def act(master: Master, turn: Turn) -> tuple[str, ...]:  # noqa: ARG001 - a call like the others
        new = tuple(host for host in hosts if master.enrolment.listen(host))
        kept = kept_addresses(master.store)
        after = tuple(dict.fromkeys((*kept, *new)))
        if after != kept:
            master.store.set_setting(ADDRESSES, msgspec.json.encode(after).decode())
        return new

    return answering(act, answer)


def admit(key: JoinKey, answer: Answer[JoinKey]) -> Call:
    """Return a call that allows one node to enrol under this key."""

    def act(master: Master, turn: Turn) -> JoinKey:  # noqa: ARG001 - a call like the others
        master.store.add_join_key(key)
        master.enrolment.admit(key)
        return key

    return answering(act, answer)


def revoke(node_id: NodeId, by: str, reason: str, answer: Answer[str]) -> Call:
    """Return a call that unbinds a node's key and gives up its work; a second time only changes the
    reason.
    """

    def act(master: Master, turn: Turn) -> str:
        if node_id not in master.state.nodes and not master.enrolment.knows(node_id):
            raise NotFound("no-such-node", f"There is no node {node_id}: see `mgpu nodes`.")
        text = f"Revoked by {by}{f': {reason}' if reason else ''}".rstrip(".") + "."
        turn.revoke(node_id, text)
        master.apply(turn, NodeDeclaredLost(at=master.clock(), node_id=node_id, reason=text))
        return text

    return answering(act, answer)


class OrderWish(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator wants of a node."""

    action: Order
    reason: str = ""
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    labels: dict[str, str | None] = {}


def order(node_id: NodeId, by: str, wish: OrderWish, answer: Answer[str]) -> Call:
    """Return a call that carries out an operator's order about a node and answers with the result."""

    def act(master: Master, turn: Turn) -> str:
        event = NodeOrdered(
            at=master.clock(),
            node_id=node_id,
            by=by,
            action=wish.action,
            reason=wish.reason,
            users=wish.users,
            accounts=wish.accounts,
            labels=wish.labels,
        )
        text = orders.answer(master.state, event)
        master.apply(turn, event)
        return text

    return answering(act, answer)
