"""HTTP over a UNIX socket: how its URL is written and how it is connected to. Knows nothing of requests."""

from __future__ import annotations

import http.client
import socket
from urllib.parse import quote, unquote, urlsplit

SCHEME = "http+unix"


def unix_url(path: str, base: str = "/") -> str:
    """Return the URL of a server that listens on this socket; `base` begins and ends with a slash."""
    return f"{SCHEME}://{quote(path, safe='')}{base}"


def socket_path(url: str) -> str | None:
    """Return the socket that a URL names, or None for one of a network address."""
    parts = urlsplit(url)
    return unquote(parts.netloc) if parts.scheme == SCHEME else None


class UnixConnection(http.client.HTTPConnection):
    """A connection over a UNIX socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self._limit_s = timeout

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._limit_s)
        self.sock.connect(self._path)
