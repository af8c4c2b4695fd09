"""Connections of other kinds than plain TCP: TLS to a certificate known by its fingerprint, and UNIX sockets.

Pinned TLS trusts nothing else and sends nothing before the certificate is compared. Knows no requests.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
import socket
import ssl
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from mgpu_agent.protocol.errors import Unauthorised

PIN = re.compile(r"^[0-9a-f]{64}$")


class WrongCertificate(ssl.SSLError):
    """The other side has another certificate than the one that was pinned."""

    def __init__(self) -> None:
        super().__init__(ssl.SSL_ERROR_SSL, "another certificate than the pinned one")


def pinned_context(pin: str) -> ssl.SSLContext:
    """Return a context whose handshake succeeds only with the certificate of this fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Names and dates prove less than the fingerprint of the certificate itself.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslsocket_class = type("PinnedSocket", (_PinnedSocket,), {"pin": pin})
    return context


class _PinnedSocket(ssl.SSLSocket):
    """Compares the certificate as part of the handshake, which must finish before the first write."""

    pin = ""

    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        certificate = self.getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(fingerprint(certificate), self.pin):
            raise WrongCertificate


def fingerprint(certificate: bytes) -> str:
    """Return the pin of a certificate in DER."""
    return hashlib.sha256(certificate).hexdigest()


def pin_of_file(path: Path) -> str:
    """Return the pin of the first certificate in a PEM file, which is the one that a server shows."""
    block = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", path.read_text(), re.DOTALL)
    return fingerprint(ssl.PEM_cert_to_DER_cert(block.group())) if block else ""


def wrong_certificate(url: str) -> Unauthorised:
    """Return an error that says in one sentence what to do about a different certificate."""
    return Unauthorised(
        "wrong-certificate",
        f"The server at {url} shows another certificate than your login names, so nothing was sent: ask its "
        f"administrator for a new login.",
    )


SCHEME = "http+unix"


def unix_url(path: str, base: str = "/") -> str:
    """Return the URL of a server that listens on this socket; `base` begins and ends with a slash."""
    return f"{SCHEME}://{quote(path, safe='')}{base}"


def socket_path(url: str) -> str | None:
    """Return the path of the socket in a URL, or None for a network address."""
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
