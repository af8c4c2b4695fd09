"""The client's side of a WebSocket (RFC 6455) over an open connection. Knows nothing of jobs."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import select
import socket
import ssl
import struct

from mgpu_agent.protocol.errors import Unavailable

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_HEAD_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
SWITCHED = 101
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x1, 0x2, 0x8, 0x9, 0xA
_FINAL = 0x80


class ConnectionLost(Unavailable):
    """No answer, or a partial one: the same request may be sent again."""


def new_key() -> str:
    """Return a key for the handshake."""
    return base64.b64encode(os.urandom(16)).decode()


def shake_hands(connection: socket.socket, head: bytes, key: str) -> tuple[int, bytes, WebSocket | None]:
    """Ask for an upgrade; return the status, and the socket or the body of another answer."""
    connection.sendall(head)
    received = bytearray()
    while (end := received.find(b"\r\n\r\n")) < 0:
        data = connection.recv(READ_BYTES)
        if not data or len(received) > MAX_HEAD_BYTES:
            raise ConnectionLost("no-answer", "The mgpu server broke off a WebSocket's handshake.")
        received += data
    lines = bytes(received[:end]).split(b"\r\n")
    fields = dict(line.lower().split(b":", 1) for line in lines[1:] if b":" in line)
    status = int(lines[0].split(b" ", 2)[1])
    rest = bytes(received[end + 4 :])
    if status != SWITCHED:
        length = min(int(fields.get(b"content-length", b"0")), MAX_MESSAGE_BYTES)
        while len(rest) < length and (data := connection.recv(READ_BYTES)):
            rest += data
        return status, rest, None
    wanted = base64.b64encode(hashlib.sha1(key.encode() + _MAGIC, usedforsecurity=False).digest()).lower()
    if not hmac.compare_digest(fields.get(b"sec-websocket-accept", b"").strip(), wanted):
        raise ConnectionLost("no-answer", "The mgpu server answered the handshake of another WebSocket.")
    return status, b"", WebSocket(connection, rest)


class WebSocket:
    """Messages over one connection. Used by one thread; owns the connection."""

    def __init__(self, connection: socket.socket, received: bytes = b"") -> None:
        self._socket = connection
        self._received = bytearray(received)
        self._message = bytearray()

    def fileno(self) -> int:
        """Return the descriptor to wait for; see `has_data`."""
        return self._socket.fileno()

    @property
    def has_data(self) -> bool:
        """Tell whether data has been read already, so that waiting for the descriptor would miss it."""
        return self._frame() is not None or self._is_held_back()

    def send(self, text: bytes) -> None:
        """Send one text message."""
        self._send(_TEXT, text)

    def receive(self) -> list[bytes] | None:
        """Return the messages that are here, None after a close; call it when there is something to read."""
        try:
            if self._frame() is None or self._is_held_back() or select.select([self._socket], [], [], 0)[0]:
                self._read()
        except (OSError, ValueError) as error:
            raise ConnectionLost("no-answer", "The connection to the mgpu server broke.") from error
        messages: list[bytes] = []
        while (frame := self._cut()) is not None:
            is_final, kind, data = frame
            if kind == _CLOSE:
                return None
            if kind == _PING:
                self._send(_PONG, data)
            elif kind in (0, _TEXT, _BINARY):
                self._message += data
                if len(self._message) > MAX_MESSAGE_BYTES:
                    return None
                if is_final:
                    messages.append(bytes(self._message))
                    self._message.clear()
        return messages

    def close(self) -> None:
        """Close the WebSocket and its connection."""
        with contextlib.suppress(ConnectionLost):
            self._send(_CLOSE, struct.pack(">H", 1000))
        self._socket.close()

    def _read(self) -> None:
        while True:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise OSError("closed")
            self._received += data
            if not self._is_held_back():
                return

    def _is_held_back(self) -> bool:
        """Tell whether TLS has buffered data."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _frame(self) -> tuple[int, int] | None:
        """Return where the content of the first frame begins and ends; None while the frame is incomplete."""
        buffer = self._received
        if len(buffer) < 2:
            return None
        length, start = buffer[1] & 0x7F, 2
        if length == 126:
            if len(buffer) < 4:
                return None
            (length,), start = struct.unpack_from(">H", buffer, 2), 4
        elif length == 127:
            if len(buffer) < 10:
                return None
            (length,), start = struct.unpack_from(">Q", buffer, 2), 10
        if length > MAX_MESSAGE_BYTES or buffer[1] & 0x80:  # a server never masks
            raise ConnectionLost("no-answer", "The mgpu server sent a frame that is none.")
        return None if len(buffer) < start + length else (start, start + length)

    def _cut(self) -> tuple[bool, int, bytes] | None:
        """Remove one whole frame from the buffer and return it."""
        place = self._frame()
        if place is None:
            return None
        first, data = self._received[0], bytes(self._received[slice(*place)])
        del self._received[: place[1]]
        return bool(first & _FINAL), first & 0x0F, data

    def _send(self, kind: int, data: bytes) -> None:
        head = bytearray([_FINAL | kind])
        if len(data) < 126:
            head.append(0x80 | len(data))
        elif len(data) < 1 << 16:
            head += struct.pack(">BH", 0x80 | 126, len(data))
        else:
            head += struct.pack(">BQ", 0x80 | 127, len(data))
        mask = os.urandom(4)
        head += mask
        repeated = mask * (len(data) // 4 + 1)
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(repeated[: len(data)], "big")).to_bytes(
            len(data), "big"
        )
        try:
            self._socket.sendall(head + masked)
        except OSError as error:
            raise ConnectionLost("no-answer", "The connection to the mgpu server broke.") from error
