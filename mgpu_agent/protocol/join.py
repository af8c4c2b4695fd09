"""The join string: one line that lets one machine enrol once. Text to value and back; connects to nothing and
keeps nothing.

`mgpu1.` and base64url of a MessagePack array and six bytes of its SHA-256, so that a line that lost a
character is recognised.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from datetime import UTC, datetime

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import NODE_ID_PATTERN, NodeId

PREFIX = "mgpu1."
CLOCK_MARGIN_S = 600.0  # clocks of two machines differ; the master decides in the end
_ANY_FORMAT = re.compile(r"mgpu(\d+)\.")
_ADDRESS = re.compile(r"tcp://(\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]+):\d{1,5}")
_CHECK_BYTES = 6
_KEY_CHARS = 40
_ASK_AGAIN = "run `mgpu join-token` on the master's machine for a new one"


class JoinString(msgspec.Struct, frozen=True, array_like=True):
    """Where the master is, the key that proves it, and the key pair under which one node may enrol."""

    addresses: tuple[str, ...]
    server_key: str
    public_key: str
    secret_key: str
    expires_at: float
    cluster: str = ""
    node_id: NodeId | None = None

    def __repr__(self) -> str:
        return f"JoinString({', '.join(self.addresses)}, keys hidden)"

    def check_not_expired(self, now: float) -> None:
        """Refuse a line that has expired by any clock."""
        if now > self.expires_at + CLOCK_MARGIN_S:
            over = datetime.fromtimestamp(self.expires_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
            raise InvalidRequest("join-expired", f"This join line expired on {over}: {_ASK_AGAIN}.")


def write_join(join: JoinString) -> str:
    """Return the line to paste."""
    payload = msgspec.msgpack.encode(join)
    return PREFIX + base64.urlsafe_b64encode(payload + _check(payload)).decode().rstrip("=")


def read_join(text: str) -> JoinString:
    """Return the content of a pasted line, or raise an error that says what is wrong with it."""
    text = text.strip()
    kind = _ANY_FORMAT.match(text)
    if kind is not None and kind[0] != PREFIX:
        raise InvalidRequest(
            "join-too-new",
            f"This join line is of format {kind[1]}, newer than this mgpu: install the master's version "
            f"here.",
        )
    if kind is None:
        raise InvalidRequest(
            "join-damaged", f"A join line begins with {PREFIX}: paste all of it, or {_ASK_AGAIN}."
        )
    damaged = InvalidRequest(
        "join-damaged", f"This join line is damaged or cut short: paste all of it, or {_ASK_AGAIN}."
    )
    body = text.removeprefix(PREFIX)
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise damaged from error
    payload, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
    if not payload or check != _check(payload):
        raise damaged
    try:
        join = msgspec.msgpack.decode(payload, type=JoinString)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged from error
    if not _is_sound(join):
        raise damaged
    return join


def _check(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()[:_CHECK_BYTES]


def _is_sound(join: JoinString) -> bool:
    keys = (join.server_key, join.public_key, join.secret_key)
    return (
        bool(join.addresses)
        and all(_ADDRESS.fullmatch(address) for address in join.addresses)
        and all(len(key) == _KEY_CHARS and key.isascii() for key in keys)
        and (join.node_id is None or re.match(NODE_ID_PATTERN, join.node_id) is not None)
    )
