"""The client's side of a WebSocket, byte by byte: what is sent and taken, and what no honest server sends."""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
from collections.abc import Iterator

import pytest

from mgpu_jupyter.client import websocket
from mgpu_jupyter.client.websocket import ConnectionLost, WebSocket, shake_hands

MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
HEAD = b"GET / HTTP/1.1\r\n\r\n"
TEXT, CONTINUED, CLOSE, PING, PONG = 0x1, 0x0, 0x8, 0x9, 0xA
FINAL, MASKED = 0x80, 0x80


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(60)
        yield ours, theirs


def frame(kind: int, data: bytes, *, final: bool = True) -> bytes:
    first = bytes([(FINAL if final else 0) | kind])
    if len(data) < 126:
        return first + bytes([len(data)]) + data
    if len(data) < 1 << 16:
        return first + struct.pack(">BH", 126, len(data)) + data
    return first + struct.pack(">BQ", 127, len(data)) + data


def taken(theirs: socket.socket) -> tuple[int, bytes]:
    """Return kind and content of the one frame that the client sent; it is masked, as it must be."""
    data = theirs.recv(1 << 20)
    size, start = data[1] & 0x7F, 2
    assert data[1] & MASKED
    if size == 126:
        (size,), start = struct.unpack_from(">H", data, 2), 4
    elif size == 127:
        (size,), start = struct.unpack_from(">Q", data, 2), 10
    mask, body = data[start : start + 4], data[start + 4 :]
    while len(body) < size:
        body += theirs.recv(1 << 20)
    return data[0] & 0x0F, bytes(byte ^ mask[index % 4] for index, byte in enumerate(body))


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_a_message_is_one_masked_frame_of_any_length(
    ends: tuple[socket.socket, socket.socket], size: int
) -> None:
    ours, theirs = ends
    WebSocket(ours).send(b"x" * size)
    assert taken(theirs) == (TEXT, b"x" * size)


@pytest.mark.parametrize("size", [0, 125, 126, 60_000])
def test_messages_are_found_in_what_comes(ends: tuple[socket.socket, socket.socket], size: int) -> None:
    ours, theirs = ends
    theirs.sendall(frame(TEXT, b"a" * size) + frame(TEXT, b"b", final=False) + frame(CONTINUED, b"c"))
    assert WebSocket(ours).receive() == [b"a" * size, b"bc"]


def test_a_frame_that_comes_in_pieces_is_whole_in_the_end(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    taker, whole = WebSocket(ours), frame(TEXT, b"y" * 300)
    found = []
    for piece in (whole[:1], whole[1:3], whole[3:200], whole[200:]):
        theirs.sendall(piece)
        found.append(taker.receive())
    assert found == [[], [], [], [b"y" * 300]]


def test_a_part_of_a_frame_is_nothing_to_read_yet(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    taker = WebSocket(ours, frame(TEXT, b"abc")[:-1])
    before = taker.has_data
    theirs.sendall(b"c")
    assert (before, taker.receive(), taker.has_data) == (False, [b"abc"], False)


def test_a_ping_is_answered_and_a_close_is_told(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    taker = WebSocket(ours)
    theirs.sendall(frame(PING, b"are you there"))
    assert (taker.receive(), taken(theirs)) == ([], (PONG, b"are you there"))
    theirs.sendall(frame(CLOSE, b"\x03\xe8"))
    assert taker.receive() is None


def test_closing_says_goodbye(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    WebSocket(ours).close()
    assert (taken(theirs), theirs.recv(1)) == ((CLOSE, b"\x03\xe8"), b"")


@pytest.mark.parametrize(
    "data",
    [
        bytes([FINAL | TEXT, MASKED | 1, 0, 0, 0, 0, 7]),
        bytes([FINAL | TEXT, 127]) + struct.pack(">Q", websocket.MAX_MESSAGE_BYTES + 1),
    ],
    ids=["masked", "too long"],
)
def test_a_frame_that_no_server_sends_breaks_the_connection(
    ends: tuple[socket.socket, socket.socket], data: bytes
) -> None:
    ours, theirs = ends
    theirs.sendall(data)
    with pytest.raises(ConnectionLost, match="a frame that is none"):
        WebSocket(ours).receive()


def test_fragments_without_an_end_are_cut(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    monkeypatch.setattr(websocket, "MAX_MESSAGE_BYTES", 10)
    theirs.sendall(frame(TEXT, b"12345678", final=False) + frame(CONTINUED, b"12345678", final=False))
    assert WebSocket(ours).receive() is None


def test_a_connection_that_breaks_is_said(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.close()
    with pytest.raises(ConnectionLost, match="broke"):
        WebSocket(ours).receive()


# --- the handshake ------------------------------------------------------------------------------------


def accept(key: str) -> str:
    return base64.b64encode(hashlib.sha1((key + MAGIC).encode(), usedforsecurity=False).digest()).decode()


def test_a_handshake_gives_a_socket_with_what_came_behind_it(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    head = f"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: {accept(KEY)}\r\n\r\n"
    theirs.sendall(head.encode() + frame(TEXT, b"early"))
    status, body, found = shake_hands(ours, HEAD, KEY)
    assert (status, body, theirs.recv(100)) == (101, b"", HEAD)
    assert found is not None
    assert (found.has_data, found.receive()) == (True, [b"early"])


def test_an_answer_that_is_no_upgrade_is_handed_on(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
    assert shake_hands(ours, HEAD, KEY) == (404, b"{}", None)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (f"HTTP/1.1 101 x\r\nSec-WebSocket-Accept: {accept('other')}\r\n\r\n", "another WebSocket"),
        ("HTTP/1.1 101 x\r\n\r\n", "another WebSocket"),
        ("HTTP/1.1 101 x\r\nX: " + "y" * 140_000, "broke off"),
    ],
    ids=["another key", "no key", "a head without an end"],
)
def test_a_handshake_of_somebody_else_is_refused(
    ends: tuple[socket.socket, socket.socket], answer: str, sentence: str
) -> None:
    ours, theirs = ends
    theirs.sendall(answer.encode())
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLost, match=sentence):
        shake_hands(ours, HEAD, KEY)
