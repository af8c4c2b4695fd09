"""Bytes to message and back, with protocol version, master epoch and a size cap. The only encoder of the
wire.

A ZeroMQ message is one or more frames; every frame is one encoded message, so that a sender may batch.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from mgpu_agent.protocol.bounds import clipped
from mgpu_agent.protocol.errors import RemoteProtocolError
from mgpu_agent.protocol.file_messages import FoundResults, ResultChunk
from mgpu_agent.protocol.messages import Hello, Output, ToAgent, ToMaster

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 32 * 1024 * 1024  # a Hello that names 50,000 tasks is about 12 MB
MAX_OUTPUT_CHUNK_BYTES = 256 * 1024
MAX_USUAL_BYTES = 8 * 1024 * 1024
"""For every frame that is not a list of all tasks or files."""
OVER_BOUNDS = "over-bounds"


class _Envelope(msgspec.Struct, array_like=True):
    version: int
    master_epoch: int
    body: msgspec.Raw


_T = TypeVar("_T")
_encoder = msgspec.msgpack.Encoder()
_envelope_decoder = msgspec.msgpack.Decoder(_Envelope)
_to_agent_decoder: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)
_to_master_decoder: msgspec.msgpack.Decoder[ToMaster] = msgspec.msgpack.Decoder(ToMaster)


def encode(message: ToAgent | ToMaster, master_epoch: int) -> bytes:
    """Return the frame for `message`; an agent that has met no master yet uses epoch 0."""
    return _encoder.encode((PROTOCOL_VERSION, master_epoch, message))


def encode_to_master(message: ToMaster, master_epoch: int) -> bytes:
    """Return the frame for an agent's message, cut to what a master accepts: names may be of any length."""
    frame = encode(message, master_epoch)
    if isinstance(message, Output | ResultChunk):
        return frame
    try:
        decode_to_master(frame)
    except RemoteProtocolError:
        return encode(clipped(message, msgspec.inspect.type_info(type(message))), master_epoch)
    return frame


def decode_to_agent(frame: bytes | memoryview) -> tuple[int, ToAgent]:
    """Return the master epoch and the message of a frame that a master sent."""
    return _decode(frame, _to_agent_decoder)


def decode_to_master(frame: bytes | memoryview) -> tuple[int, ToMaster]:
    """Return the master epoch and the message of a frame that an agent sent."""
    epoch, message = _decode(frame, _to_master_decoder)
    if len(frame) > MAX_USUAL_BYTES and not isinstance(message, Hello | FoundResults):
        raise RemoteProtocolError(
            OVER_BOUNDS,
            f"A {type(message).__name__} of {len(frame)} bytes is over the limit of {MAX_USUAL_BYTES}.",
        )
    return epoch, message


def _decode(frame: bytes | memoryview, decoder: msgspec.msgpack.Decoder[_T]) -> tuple[int, _T]:
    if len(frame) > MAX_FRAME_BYTES:
        raise RemoteProtocolError(
            "frame-too-large", f"A frame of {len(frame)} bytes is over the limit of {MAX_FRAME_BYTES}."
        )
    try:
        envelope = _envelope_decoder.decode(frame)
        if envelope.version != PROTOCOL_VERSION:
            raise RemoteProtocolError(
                "protocol-version",
                f"The other side speaks protocol {envelope.version}, this one {PROTOCOL_VERSION}: install "
                f"the same mgpu-jupyter on both.",
            )
        return envelope.master_epoch, decoder.decode(envelope.body)
    except msgspec.ValidationError as error:
        if " of length <= " in str(error):
            text = (
                f"This tells more than is taken ({error}): tell less of it, or install the same "
                f"mgpu-jupyter on both."
            )
            raise RemoteProtocolError(OVER_BOUNDS, text) from error
        raise RemoteProtocolError("bad-frame", f"A frame could not be read: {error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError("bad-frame", f"A frame could not be read: {error}.") from error
