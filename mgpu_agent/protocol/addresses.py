"""Finds the address by which others reach this machine, in several ways. Asks the kernel for routes only."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from mgpu_agent.protocol.places import host_name

LOOPBACK = "127.0.0.1"
_ELSEWHERE = ("192.0.2.1", "2001:db8::1")  # reserved for documentation: only the default route leads there
_ANY_PORT = 9


class FoundBy(StrEnum):
    """How an address was found."""

    GIVEN = "given"
    WAY_TO_MASTER = "way-to-master"
    DEFAULT_ROUTE = "default-route"
    HOST_NAME = "host-name"
    NONE = "none"


FOUND_BY_WORDS: dict[str, str] = {
    FoundBy.GIVEN: "given with --host",
    FoundBy.WAY_TO_MASTER: "its end of the way to the master",
    FoundBy.DEFAULT_ROUTE: "the interface of the default route",
    FoundBy.HOST_NAME: "what the host name stands for",
    FoundBy.NONE: "nothing better was found",
}


class FoundAddress(msgspec.Struct, frozen=True):
    """An address of this machine and how it was found."""

    address: str
    by: FoundBy


def find_address(given: str | None, master: str) -> FoundAddress:
    """Return by which address master and peers reach this machine; `master` is its link as
    `tcp://host:port`.
    """
    if given:
        return FoundAddress(given, FoundBy.GIVEN)
    parts = urlsplit(master)
    ways: tuple[tuple[FoundBy, Callable[[], str | None]], ...] = (
        (FoundBy.WAY_TO_MASTER, lambda: local_end(parts.hostname or "", parts.port or _ANY_PORT)),
        (FoundBy.DEFAULT_ROUTE, default_route_address),
        (FoundBy.HOST_NAME, _host_name_address),
    )
    for by, find in ways:
        if (address := find()) is not None:
            return FoundAddress(address, by)
    return FoundAddress(LOOPBACK, FoundBy.NONE)


def local_end(host: str, port: int) -> str | None:
    """Return this machine's address on the route to `host`, or None when there is no route."""
    try:
        family, kind, _, _, there = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)  # a datagram socket: the kernel looks up the route, and nothing is sent
            return str(probe.getsockname()[0])
    except OSError:
        return None


def default_route_address() -> str | None:
    """Return the address of the interface with the default route, or None when there is none."""
    return next(
        (address for there in _ELSEWHERE if (address := local_end(there, _ANY_PORT)) is not None), None
    )


def link_address(host: str, port: int) -> str:
    """Return an address as ZeroMQ writes it."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def is_wildcard(host: str) -> bool:
    """Tell whether `host` stands for all addresses."""
    return ipaddress.ip_address(host).is_unspecified


def _host_name_address() -> str | None:
    try:
        found = socket.getaddrinfo(host_name(), None, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    addresses = [str(entry[4][0]) for entry in found]
    return next(
        (address for address in addresses if not ipaddress.ip_address(address.partition("%")[0]).is_loopback),
        None,
    )
