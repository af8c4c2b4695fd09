"""Ports reserved for rank 0 of attempts, so that no two attempts on one machine get the same.

A port is tried by binding it, and reserved by a name in the machine's table of abstract Unix sockets, which
all agents of a network namespace share. The port itself stays unbound: rank 0 must be able to bind it in any
way it likes.
"""

from __future__ import annotations

import errno
import socket
import zlib

from mgpu_agent.protocol.ids import AttemptKey

FIRST, LAST = 20_000, 32_000  # below the ports that Linux uses for outgoing connections
TRIES = 2_000


class KeptPorts:
    """The ports that this agent reserves, by attempt. Owns their sockets."""

    def __init__(self) -> None:
        self._kept: dict[AttemptKey, tuple[int, socket.socket]] = {}

    def keep(self, key: AttemptKey) -> int:
        """Return a free port that no other agent here hands out; the same one when asked again."""
        if key in self._kept:
            return self._kept[key][0]
        # Each attempt starts its search elsewhere, so that two that start together seldom try the same.
        begin = zlib.crc32(str(key).encode())
        for number in range(TRIES):
            port = FIRST + (begin + number * 7) % (LAST - FIRST)
            if (mark := _mark(port)) is None:
                continue
            if _is_free(port):
                self._kept[key] = (port, mark)
                return port
            mark.close()
        raise OSError(errno.EADDRINUSE, f"of {TRIES} ports from {FIRST} to {LAST} none is free")

    def release(self, key: AttemptKey) -> None:
        """Release the port of this attempt."""
        if (kept := self._kept.pop(key, None)) is not None:
            kept[1].close()

    def close(self) -> None:
        """Release all ports."""
        for key in list(self._kept):
            self.release(key)


def _mark(port: int) -> socket.socket | None:
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mark.bind(f"\0mgpu-port-{port}")
    except OSError:
        mark.close()
        return None
    return mark


def _is_free(port: int) -> bool:
    for family, anywhere in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 - tried and closed, never listened on
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # a machine without IPv6
            continue
        with probe:
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((anywhere, port))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    return False
    return True
