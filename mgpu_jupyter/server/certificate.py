"""The self-signed certificate of a shared master, made once, since logins pin it."""

from __future__ import annotations

import datetime
import ipaddress
import socket
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mgpu_agent.protocol.places import host_name, make_private_dir, read_private_file, write_private_file

FILE = "https.pem"
VALID_DAYS = 3650
ANY_ADDRESS = ("", "*", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
MAX_COMMON_NAME = 64


def load_certificate(directory: Path, host: str) -> Path:
    """Return the file with key and certificate, which the first call makes for all names of `host`."""
    path = make_private_dir(directory) / FILE
    if not path.exists():
        write_private_file(path, make_certificate(served_names(host)))
    read_private_file(path)  # refuses one that others can read
    return path


def served_names(host: str) -> tuple[str, ...]:
    """Return the host names and addresses by which a server that listens on `host` is reached."""
    names = ["localhost", "127.0.0.1", "::1", host_name(), socket.getfqdn()]
    if host not in ANY_ADDRESS:
        names.insert(0, host)
    else:
        names += [
            address.address.partition("%")[0]
            for addresses in psutil.net_if_addrs().values()
            for address in addresses
            if address.family in (socket.AF_INET, socket.AF_INET6)
        ]
    return tuple(dict.fromkeys(names))


def make_certificate(names: tuple[str, ...]) -> bytes:
    """Return a new key and a certificate for `names`, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:MAX_COMMON_NAME])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A day back, for clocks that are behind.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name.encode("idna").decode())
