"""Who may become a node: enrolment under the key of this machine's own user, or under a join key that works
once.

Decides about keys and names, and keeps the carrier's allow-list in step with the store; a binding is durable
before it works.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.errors import Conflict
from mgpu_agent.protocol.ids import NODE_ID_PATTERN, NodeId
from mgpu_jupyter.master.node_link import FrameCarrier, Incoming
from mgpu_jupyter.master.ports import JoinKey, SavedNode

log = logging.getLogger("mgpu.agents")

LINK_HOST = "127.0.0.1"
ENROL_USER = ":enrol"  # no node id has a colon
JOIN_USER = ":join:"
REVOKED = "revoked"
WAS_USED = "this join line was used already"
HAS_EXPIRED = "this join line has expired"
_ASK_AGAIN = "run `mgpu join-token` on the master's machine for a new join line"


class Forgets(Protocol):
    """A part that remembers something about nodes."""

    def forget(self, node_id: NodeId) -> None:
        """Forget a node."""


class AgentsEnrolment:
    """Holds the valid join keys, and who was revoked. Plays `Enrolment`; master's thread only."""

    def __init__(
        self,
        carrier: FrameCarrier,
        bind: Callable[[NodeId, str, str | None], None],
        clock: Callable[[], float],
        *,
        port: int,
        connections: Forgets,
        known: Sequence[Forgets] = (),
    ) -> None:
        self._carrier = carrier
        self._bind = bind
        self._clock = clock
        self._port = port
        self._hosts = {LINK_HOST}
        self._connections = connections
        self._known = known
        """The parts to inform when a node is forgotten."""
        self._join_keys: dict[str, JoinKey] = {}
        self._revoked: dict[NodeId, str] = {}

    def recover(self, nodes: Iterable[SavedNode], join_keys: Iterable[JoinKey], enrol_key: str) -> None:
        """Allow the enrolled nodes and valid keys, and remember why the rest is refused; `enrol_key` is that
        of this machine's user.
        """
        for node in nodes:
            if node.public_key is not None:
                self._carrier.allow(node.public_key, node.id)
            else:
                self.revoke(node.id, node.revoked)
        self._carrier.allow(enrol_key, ENROL_USER)
        for key in join_keys:
            if key.used_by is None and key.expires_at > self._clock():
                self.admit(key)
            else:
                self._carrier.remember(
                    key.public_key, join_user(key), WAS_USED if key.used_by is not None else HAS_EXPIRED
                )

    def listen(self, host: str) -> bool:
        """Listen on this address, too, on the link's own port; tell whether it is new."""
        if host in self._hosts:
            return False
        self._carrier.bind(host, self._port)
        self._hosts.add(host)
        return True

    def knows(self, node_id: NodeId) -> bool:
        """Tell whether a node of this name is enrolled."""
        return self._carrier.knows(node_id)

    def admit(self, key: JoinKey) -> None:
        """Allow a node to enrol under this key until it is used or expires."""
        self._join_keys[join_user(key)] = key
        self._carrier.allow(key.public_key, join_user(key))

    def revoke(self, node_id: NodeId, reason: str) -> None:
        """Refuse a node's key, and its name, too, until a join line brings it back."""
        why = f"node {node_id} is not part of this cluster any more ({reason.rstrip('.')})"
        self._revoked[node_id] = why
        self._carrier.forbid(node_id, why)
        self._connections.forget(node_id)

    def forget(self, node_id: NodeId) -> None:
        """Forget a node: its name is free, its key is worthless."""
        self._revoked.pop(node_id, None)
        if self._carrier.knows(node_id):
            self._carrier.forbid(node_id, f"node {node_id} was removed from this cluster")
        for known in (self._connections, *self._known):
            known.forget(node_id)

    def close_expired(self) -> None:
        """Remove expired join keys from the list."""
        now = self._clock()
        for user in [user for user, key in self._join_keys.items() if key.expires_at <= now]:
            del self._join_keys[user]
            self._carrier.forbid(user, HAS_EXPIRED)

    def enrol(self, user_id: str, message: wire.Enrol, *, is_connected: bool) -> None:
        """Bind the node's own key to its name, once for a join key; raises Conflict with the reason if
        not.
        """
        join_key = self._join_keys.get(user_id)
        node_id = message.node_id
        if not re.fullmatch(NODE_ID_PATTERN, node_id):
            raise Conflict(
                "bad-node-id",
                "That is no node id: use letters, digits, dot, dash and underscore, at most 63.",
            )
        if join_key is not None and join_key.node_id not in (None, node_id):
            raise Conflict(
                "wrong-node-id",
                f"This join line is for {join_key.node_id}, not for {node_id}: use that --node-id.",
            )
        if join_key is None and node_id in self._revoked:
            raise Conflict(REVOKED, _sentence(self._revoked[node_id]))
        try:
            holder = self._carrier.holder(message.public_key)
        except ValueError as error:
            raise Conflict("bad-key", "That is not a public key.") from error
        if holder not in (None, node_id):
            raise Conflict(
                "key-taken",
                "That key is enrolled under another name: delete the node's directory and join again.",
            )
        if is_connected:
            raise Conflict("node-id-taken", f"A node named {node_id} is connected: choose another --node-id.")
        if (
            join_key is not None
            and join_key.node_id is None
            and holder is None
            and self._carrier.knows(node_id)
        ):
            raise Conflict(
                "node-id-taken",
                f"{node_id} is another machine's name: choose another --node-id, or ask for a join line for "
                f"that name.",
            )
        self._bind(node_id, message.public_key, None if join_key is None else join_key.public_key)
        self._carrier.allow(message.public_key, node_id)
        self._revoked.pop(node_id, None)
        if join_key is not None:
            del self._join_keys[user_id]
            self._carrier.forbid(user_id, WAS_USED)
        log.info(
            "node_id=%s enrolled by=%s",
            node_id,
            "this machine's user" if join_key is None else f"join line of {join_key.created_by}",
        )


def join_user(key: JoinKey) -> str:
    """Return the name of a join key on the link."""
    return f"{JOIN_USER}{key.public_key}"


def may_only_enrol(user_id: str) -> bool:
    """Tell whether a connection may only enrol."""
    return user_id == ENROL_USER or user_id.startswith(JOIN_USER)


def refusal_of(incoming: Incoming) -> tuple[str, str]:
    """Return code and sentence for a frame whose key was removed from the list after it connected."""
    return "join-refused" if may_only_enrol(incoming.user_id) else REVOKED, _sentence(incoming.refusal)


def _sentence(why: str) -> str:
    return f"{why[:1].upper()}{why[1:]}: {_ASK_AGAIN}."
