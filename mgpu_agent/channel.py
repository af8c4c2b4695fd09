"""Messages between processes of one machine over a Unix socket: framing, queueing, passing of descriptors.
Never leaves the machine.

Every message is a four-byte length and msgpack; many of them may go in one write.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

_RECEIVE_BYTES = 1024 * 1024
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_MAX_DESCRIPTORS = 64  # in one receive; a message has at most three
_T = TypeVar("_T")
_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()


class Channel(Generic[_T]):
    """One end of the socket: queues what is sent, cuts what arrives into messages. Owns the socket."""

    def __init__(
        self,
        connection: socket.socket,
        decoder: msgspec.msgpack.Decoder[_T],
        *,
        takes_descriptors: bool = False,
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._decoder = decoder
        self._takes_descriptors = takes_descriptors
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._sent = 0
        self._passed: deque[tuple[int, tuple[int, ...]]] = deque()
        """Descriptors to send, each with the position of the message that it belongs to."""
        self.descriptors: deque[int] = deque()
        """Received descriptors, in the order of their messages; the caller that takes one out owns it."""

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._socket.fileno()

    @property
    def has_outgoing(self) -> bool:
        """Tell whether something waits for the other side to read."""
        return bool(self._outgoing)

    def put(self, message: msgspec.Struct, descriptors: Sequence[int] = ()) -> None:
        """Queue one message; `flush` sends it, and then closes the descriptors passed with it."""
        if descriptors:
            self._passed.append((self._sent + len(self._outgoing), tuple(descriptors)))
        body = _encoder.encode(message)
        self._outgoing += _LENGTH.pack(len(body))
        self._outgoing += body

    def flush(self) -> bool:
        """Send what the socket takes without waiting; tell whether the other side is still there."""
        while self._outgoing:
            try:
                sent = self._send_with_descriptors() if self._passed else self._socket.send(self._outgoing)
            except (BlockingIOError, InterruptedError):
                return True
            except OSError:
                return False
            self._sent += sent
            del self._outgoing[:sent]
        return True

    def receive(self) -> list[_T] | None:
        """Return the messages that have arrived, or None when the other side is gone or sends rubbish."""
        try:
            data = (
                self._receive_with_descriptors()
                if self._takes_descriptors
                else self._socket.recv(_RECEIVE_BYTES)
            )
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        if not data:
            return None
        self._incoming += data
        return self._cut()

    def close(self) -> None:
        """Close the socket and all descriptors that were not sent or not taken."""
        self._socket.close()
        for descriptor in (*self.descriptors, *(one for _, several in self._passed for one in several)):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.descriptors.clear()
        self._passed.clear()

    def _send_with_descriptors(self) -> int:
        at, descriptors = self._passed[0]
        if at > self._sent:
            return self._socket.send(self._outgoing[: at - self._sent])
        # Not beyond the next message with descriptors: they travel with the first byte of a send.
        limit = self._passed[1][0] - self._sent if len(self._passed) > 1 else len(self._outgoing)
        sent = socket.send_fds(self._socket, [self._outgoing[:limit]], list(descriptors))
        self._passed.popleft()
        for descriptor in descriptors:
            os.close(descriptor)
        return sent

    def _receive_with_descriptors(self) -> bytes:
        numbers = array.array("i")
        data, ancillary, _, _ = self._socket.recvmsg(
            _RECEIVE_BYTES, socket.CMSG_LEN(_MAX_DESCRIPTORS * numbers.itemsize), socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
        self.descriptors.extend(numbers)
        return data

    def _cut(self) -> list[_T] | None:
        messages: list[_T] = []
        position = 0
        available = len(self._incoming)
        view = memoryview(self._incoming)
        try:
            while available - position >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(view, position)
                if length > _MAX_MESSAGE_BYTES:
                    return None
                if available - position - _LENGTH.size < length:
                    break
                start = position + _LENGTH.size
                messages.append(self._decoder.decode(view[start : start + length]))
                position = start + length
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        finally:
            view.release()
        del self._incoming[:position]
        return messages
