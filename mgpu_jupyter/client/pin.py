"""TLS to a server whose certificate is known by its fingerprint. Trusts nothing else and sends nothing before it was compared."""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from pathlib import Path

from mgpu_agent.protocol.errors import Unauthorised

PIN = re.compile(r"^[0-9a-f]{64}$")


class WrongCertificate(ssl.SSLError):
    """The other side has another certificate than the one that was pinned."""

    def __init__(self) -> None:
        super().__init__(ssl.SSL_ERROR_SSL, "another certificate than the pinned one")


def pinned_context(pin: str) -> ssl.SSLContext:
    """Return a context whose handshake ends well only with the certificate of this fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Names and dates say less than the fingerprint of the very certificate.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslsocket_class = type("PinnedSocket", (_PinnedSocket,), {"pin": pin})
    return context


class _PinnedSocket(ssl.SSLSocket):
    """Compares as part of the handshake: whoever is to write first has to finish that."""

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
    """Say in one sentence what to do about another certificate."""
    return Unauthorised(
        "wrong-certificate",
        f"The server at {url} shows another certificate than your login names, so nothing was sent: ask its administrator for a new login.",
    )
