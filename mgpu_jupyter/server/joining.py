"""How other machines join: addresses on which the link listens, and lines with which one machine can join
once.

Knows keys and addresses; the right to ask was checked before. Changes go through the master's turns.
"""

from __future__ import annotations

import ipaddress
import shlex

import zmq

from mgpu_agent.protocol.addresses import default_route_address, is_wildcard, link_address
from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.join import JoinString, write_join
from mgpu_jupyter.api import administration
from mgpu_jupyter.master.node_link import Enrolment
from mgpu_jupyter.master.ports import JoinKey


class Listening:
    """The link's addresses apart from loopback, and those that it could not listen on."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.hosts: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses by which other machines reach the link."""
        return tuple(link_address(host, self.port) for host in self.hosts)

    def bind_kept(self, enrolment: Enrolment, hosts: tuple[str, ...]) -> None:
        """Listen on the saved addresses; one that is gone causes a warning."""
        for host in hosts:
            try:
                enrolment.listen(host)
            except MgpuError as error:
                why = error.message.rstrip(".")
                self.warnings = (
                    *self.warnings,
                    f"Nodes that joined by {host} cannot connect: {why}; bring it back and restart.",
                )
            else:
                self.hosts = (*self.hosts, host)

    def wanted(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Return the hosts that a new line needs: those asked for, those in use, or the default route's."""
        if asked:
            return tuple(_checked(host) for host in asked)
        if self.hosts:
            return self.hosts
        found = default_route_address()
        if found is None:
            raise InvalidRequest(
                "no-address",
                "This machine has no default route: name the address that others reach with --listen ADDR.",
            )
        return (found,)

    def added(self, new: tuple[str, ...]) -> str:
        """Note hosts that are bound by now; return a sentence about them."""
        self.hosts = tuple(dict.fromkeys((*self.hosts, *new)))
        if not new:
            return ""
        shown = " and ".join(link_address(host, self.port) for host in new)
        return (
            f"The link now listens on {shown} too, after every restart as well; only machines with a key "
            f"get in."
        )


def new_join_key(request: administration.JoinTokenRequest, by: str, now: float) -> tuple[JoinKey, str]:
    """Return a fresh key for one enrolment, and its secret half, which is not stored."""
    public, secret = (part.decode() for part in zmq.curve_keypair())
    node_id = None if request.node_id is None else NodeId(request.node_id)
    return JoinKey(
        public_key=public, created_by=by, created_at=now, expires_at=now + request.ttl_s, node_id=node_id
    ), secret


def token_of(
    key: JoinKey, secret: str, *, addresses: tuple[str, ...], server_key: str, cluster: str, message: str
) -> administration.JoinToken:
    """Return the line to paste."""
    join = JoinString(addresses, server_key, key.public_key, secret, key.expires_at, cluster, key.node_id)
    words = ["mgpu_node", "--join", write_join(join), *(("--node-id", key.node_id) if key.node_id else ())]
    return administration.JoinToken(
        command=shlex.join(words),
        line=words[2],
        expires_at=key.expires_at,
        addresses=addresses,
        node_id=key.node_id,
        message=message,
    )


def _checked(host: str) -> str:
    try:
        if is_wildcard(host):
            raise InvalidRequest(
                "bad-address", f"{host} stands for all addresses: name the one that the other machines reach."
            )
        return str(ipaddress.ip_address(host))
    except ValueError as error:
        raise InvalidRequest(
            "bad-address", f"{host[:50]!r} is no address: write one of this machine's, like 192.168.1.10."
        ) from error
