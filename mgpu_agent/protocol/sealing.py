"""Secrets at rest, under a key in a file of its own: encrypted and authenticated, so that they can neither be
read nor changed without it.

Encrypt, then authenticate, with what the standard library has: the stream is SHAKE-256 of a key and a fresh
nonce, the tag is HMAC-SHA-256 under a second key over the purpose, the nonce and the content. Knows nothing
of what is sealed. Must not be used where two sides talk: that is what CURVE is for.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.places import read_private_file, write_private_file

KEY_BYTES = 32
_KIND = b"\x01"
_NONCE_BYTES = 24
_TAG_BYTES = 32
_HEAD_BYTES = len(_KIND) + _NONCE_BYTES + _TAG_BYTES


class Unsealable(MgpuError):
    """This was sealed under another key, or has been changed."""


def load_key(path: Path) -> bytes:
    """Return the key of this file, which the first call makes; readable by its owner alone."""
    if not path.exists():
        write_private_file(path, os.urandom(KEY_BYTES).hex().encode())
    try:
        key = bytes.fromhex(read_private_file(path).decode().strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise Unsealable("bad-key", f"{path} holds no key: put back the one that was there.")
    return key


def seal(key: bytes, data: bytes, about: bytes = b"") -> bytes:
    """Return the data so that only the key opens it, and only for the purpose `about`."""
    nonce = os.urandom(_NONCE_BYTES)
    body = _mix(key, nonce, data)
    return _KIND + nonce + _tag(key, nonce, body, about) + body


def unseal(key: bytes, sealed: bytes, about: bytes = b"") -> bytes:
    """Return what was sealed, or refuse it."""
    nonce, tag, body = (
        sealed[1 : 1 + _NONCE_BYTES],
        sealed[1 + _NONCE_BYTES : _HEAD_BYTES],
        sealed[_HEAD_BYTES:],
    )
    if (
        len(sealed) < _HEAD_BYTES
        or sealed[:1] != _KIND
        or not hmac.compare_digest(tag, _tag(key, nonce, body, about))
    ):
        raise Unsealable("unsealable", "This was sealed under another key, or is not what it was.")
    return _mix(key, nonce, body)


def _mix(key: bytes, nonce: bytes, data: bytes) -> bytes:
    """Return the data XORed with the stream of this nonce; a second time returns the data."""
    stream = hashlib.shake_256(_derived(key, b"mgpu stream") + nonce).digest(len(data))
    return (int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")).to_bytes(len(data), "little")


def _tag(key: bytes, nonce: bytes, body: bytes, about: bytes) -> bytes:
    return hmac.digest(
        _derived(key, b"mgpu tag"), len(about).to_bytes(8, "big") + about + nonce + body, "sha256"
    )


def _derived(key: bytes, label: bytes) -> bytes:
    return hmac.digest(key, label, "sha256")
