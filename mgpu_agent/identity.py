"""What a node keeps between runs so that the master recognises it: its key pair, the master it is enrolled
with, and the largest epoch it has seen.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import zmq

from mgpu_agent.link import KeyPair, Target
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.join import JoinString, read_join, write_join
from mgpu_agent.protocol.places import make_private_dir, read_private_file, write_private_file


class SavedEnrolment(msgspec.Struct, frozen=True, kw_only=True):
    """The master that knows this node's key."""

    link_address: str
    link_public_key: str
    port: int | None = None
    master_epoch: int = 0
    addresses: tuple[str, ...] = ()
    """All known addresses of the master, when there are several."""
    is_joined: bool = False
    """Enrolled by a join line: a master that happens to run on this machine is another one."""

    @property
    def target(self) -> Target:
        """Return where to connect to."""
        return Target(self.link_address, self.link_public_key)


class Identity:
    """Files in the node's directory that only its owner can read."""

    def __init__(self, node_directory: Path) -> None:
        self._keys_path = make_private_dir(node_directory / "keys") / "node.json"
        self._enrolment_path = node_directory / "enrolment.json"
        self._join_path = node_directory / "keys" / "join"
        self.keys = self._load_keys()
        self.enrolment = self._load_enrolment()
        self.join = (
            read_join(read_private_file(self._join_path).decode()) if self._join_path.exists() else None
        )

    def save(self, enrolment: SavedEnrolment) -> None:
        """Save the master, durably: a smaller epoch must never be obeyed again."""
        if enrolment != self.enrolment:
            reach("agent.enrolment.before")
            write_private_file(self._enrolment_path, msgspec.json.encode(enrolment))
            reach("agent.enrolment.after")
            self.enrolment = enrolment

    def save_join(self, join: JoinString) -> None:
        """Keep a join line until it is used."""
        write_private_file(self._join_path, write_join(join).encode())
        self.join = join

    def forget_join(self) -> None:
        """Delete a join line that was used or is of no use."""
        self._join_path.unlink(missing_ok=True)
        self.join = None

    def _load_keys(self) -> KeyPair:
        if self._keys_path.exists():
            return msgspec.json.decode(read_private_file(self._keys_path), type=KeyPair)
        public, secret = zmq.curve_keypair()
        keys = KeyPair(public.decode(), secret.decode())
        write_private_file(self._keys_path, msgspec.json.encode(keys))
        return keys

    def _load_enrolment(self) -> SavedEnrolment | None:
        if not self._enrolment_path.exists():
            return None
        try:
            return msgspec.json.decode(read_private_file(self._enrolment_path), type=SavedEnrolment)
        except msgspec.DecodeError:
            return None
