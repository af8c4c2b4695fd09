"""Ways to find the address by which others reach this machine: in order, and the first that leads somewhere
is named.
"""

from __future__ import annotations

import socket

import pytest

from mgpu_agent.protocol import addresses
from mgpu_agent.protocol.addresses import FOUND_BY_WORDS, FoundAddress, FoundBy, find_address

MASTER = "tcp://192.0.2.9:8790"


def ways(
    monkeypatch: pytest.MonkeyPatch, master: str | None, route: str | None, names: list[str] | OSError
) -> None:
    """Set what the kernel and the name service would say."""
    monkeypatch.setattr(
        addresses, "local_end", lambda host, port: master if (host, port) == ("192.0.2.9", 8790) else None
    )
    monkeypatch.setattr(addresses, "default_route_address", lambda: route)

    def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
        if isinstance(names, OSError):
            raise names
        return [(0, 0, 0, "", (name, 0)) for name in names]

    monkeypatch.setattr("mgpu_agent.protocol.addresses.socket.getaddrinfo", resolve)


@pytest.mark.parametrize(
    ("given", "master", "route", "names", "found"),
    [
        ("10.9.9.9", "10.0.0.1", "10.0.0.2", ["10.0.0.3"], FoundAddress("10.9.9.9", FoundBy.GIVEN)),
        (None, "10.0.0.1", "10.0.0.2", ["10.0.0.3"], FoundAddress("10.0.0.1", FoundBy.WAY_TO_MASTER)),
        (None, None, "10.0.0.2", ["10.0.0.3"], FoundAddress("10.0.0.2", FoundBy.DEFAULT_ROUTE)),
        (None, None, None, ["127.0.1.1", "fe80::1%eth0"], FoundAddress("fe80::1%eth0", FoundBy.HOST_NAME)),
        (None, None, None, ["127.0.1.1", "::1"], FoundAddress("127.0.0.1", FoundBy.NONE)),
        (None, None, None, OSError("no name service"), FoundAddress("127.0.0.1", FoundBy.NONE)),
    ],
)
def test_the_first_way_that_leads_somewhere_is_taken(
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    master: str | None,
    route: str | None,
    names: list[str] | OSError,
    found: FoundAddress,
) -> None:
    ways(monkeypatch, master, route, names)
    assert find_address(given, MASTER) == found


def test_a_link_without_host_or_port_is_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ways(monkeypatch, "10.0.0.1", "10.0.0.2", [])
    assert find_address(None, "tcp:") == FoundAddress("10.0.0.2", FoundBy.DEFAULT_ROUTE)


def test_the_kernel_is_asked_for_real() -> None:
    assert addresses.local_end("127.0.0.1", 9) == "127.0.0.1"
    assert addresses.local_end("no such host", 9) is None


@pytest.mark.parametrize(
    ("ends", "found"),
    [(["10.0.0.2"], "10.0.0.2"), ([None, "2001:db8::5"], "2001:db8::5"), ([None, None], None)],
    ids=str,
)
def test_the_default_route_of_either_family(
    monkeypatch: pytest.MonkeyPatch, ends: list[str | None], found: str | None
) -> None:
    left = list(ends)
    monkeypatch.setattr(addresses, "local_end", lambda *_: left.pop(0))
    assert addresses.default_route_address() == found


def test_how_addresses_are_written_and_named() -> None:
    assert addresses.link_address("10.0.0.1", 1) == "tcp://10.0.0.1:1"
    assert addresses.link_address("::1", 1) == "tcp://[::1]:1"
    assert [addresses.is_wildcard(host) for host in ("0.0.0.0", "::", "127.0.0.1")] == [True, True, False]
    assert set(FOUND_BY_WORDS) == set(FoundBy)
    assert socket.gethostname()
