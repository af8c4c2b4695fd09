"""What a launcher on the first node asks of the other nodes, and how these answer. Values only.

An order is repeated until it is over, under one number; the other side starts it once and tells how it stands.
"""

from __future__ import annotations

import msgspec


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Run this under a shell, as ssh would, unless it was done already; how is it?"""

    number: str
    text: str


class End(msgspec.Struct, frozen=True, tag="end"):
    """Whoever ordered this is gone: end it."""

    number: str


class Standing(msgspec.Struct, frozen=True, tag="standing"):
    """How an order is; no code while it runs."""

    number: str
    code: int | None = None


Message = Run | End | Standing
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def pack(message: Message) -> bytes:
    """Return a message as bytes."""
    return msgspec.msgpack.encode(message)


def unpack(data: bytes) -> Message | None:
    """Return bytes as a message, or None for what is none."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None
