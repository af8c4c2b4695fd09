"""The few bytes by which two nodes of an attempt know each other: each proves to the other that it knows the attempt's secret.

    visitor:  "mgpu-meet1" + nonce (16)
    host:     nonce of its own (16) + HMAC(secret, "host" + host's name + visitor's nonce) (32)
    visitor:  HMAC(secret, "visitor" + host's name + host's nonce) (32)
    host:     "ok"

The host's name is in what is signed, since one address may lead to several machines: `172.17.0.1` is everybody's own bridge.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket

HELLO = b"mgpu-meet1"
OK = b"ok"
NONCE_BYTES = 16
PROOF_BYTES = 32


class Strange(Exception):
    """Whoever answered is not the node that was meant."""


def visit(connection: socket.socket, secret: bytes, name: str) -> None:
    """Make sure that the other end is the node `name` of this attempt."""
    nonce = os.urandom(NONCE_BYTES)
    connection.sendall(HELLO + nonce)
    theirs = _receive(connection, NONCE_BYTES)
    if not hmac.compare_digest(_receive(connection, PROOF_BYTES), _proof(secret, b"host", name, nonce)):
        raise Strange(f"what answers there is not {name}")
    connection.sendall(_proof(secret, b"visitor", name, theirs))
    if _receive(connection, len(OK)) != OK:
        raise Strange("it did not agree")


def receive_visit(connection: socket.socket, secret: bytes, name: str) -> None:
    """Prove to a visitor that this is the node `name`, and make sure that it belongs to the attempt."""
    if _receive(connection, len(HELLO)) != HELLO:
        raise Strange("no visitor")
    theirs = _receive(connection, NONCE_BYTES)
    nonce = os.urandom(NONCE_BYTES)
    connection.sendall(nonce + _proof(secret, b"host", name, theirs))
    if not hmac.compare_digest(_receive(connection, PROOF_BYTES), _proof(secret, b"visitor", name, nonce)):
        raise Strange("a visitor without the secret")
    connection.sendall(OK)


def _proof(secret: bytes, role: bytes, name: str, nonce: bytes) -> bytes:
    return hmac.new(secret, b"\0".join((role, name.encode(), nonce)), hashlib.sha256).digest()


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise Strange("it hung up")
        data += more
    return data
