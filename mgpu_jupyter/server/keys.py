"""Keys and secrets of the master: made once, kept 0600 in a directory 0700."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq

from mgpu_agent.protocol.places import make_private_dir, read_private_file, write_private_file


class KeyPair(msgspec.Struct, frozen=True):
    """A CURVE key pair, Z85."""

    public: str
    secret: str


def load_keys(directory: Path, name: str) -> KeyPair:
    """Return the key pair of this name; made at the first call."""

    def make() -> str:
        public, secret = zmq.curve_keypair()
        return f"{public.decode()} {secret.decode()}"

    public, _, secret = load_secret(directory, f"{name}.key", make).partition(" ")
    return KeyPair(public, secret)


def load_secret(directory: Path, name: str, make: Callable[[], str]) -> str:
    """Return the secret of this name; made at the first call."""
    path = make_private_dir(directory) / name
    if not path.exists():
        write_private_file(path, make().encode())
    return read_private_file(path).decode().strip()
