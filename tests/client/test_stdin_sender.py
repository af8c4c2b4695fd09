"""What is typed into a job, over a real WebSocket: no further ahead than the window, no question without
need.
"""

from __future__ import annotations

import base64
import hashlib
import os
import queue
import struct
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import msgspec
import pytest

from mgpu_jupyter.api.frames import INPUT_WINDOW_BYTES, ResizeFrame, StdinAckFrame, StdinFrame
from mgpu_jupyter.api.models import ErrorBody
from mgpu_jupyter.client import Client, stdin_sender
from mgpu_jupyter.client.keyboard import Stdin
from mgpu_jupyter.client.stdin_sender import CHUNK_BYTES, StdinSender
from mgpu_jupyter.client.transport import Request
from tests.client.conftest import QUICK, Scripted, answer

Start = Callable[..., Scripted]
WAIT_S = 30.0
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Other:
    """The server's end: each connection in turn, read and written frame by frame."""

    def __init__(self) -> None:
        self.connections: queue.Queue[BaseHTTPRequestHandler] = queue.Queue()
        self._over: queue.Queue[None] = queue.Queue()

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        key = handler.headers["Sec-WebSocket-Key"].encode()
        handler.send_response(101)
        handler.send_header("Upgrade", "websocket")
        handler.send_header("Connection", "Upgrade")
        accept = base64.b64encode(hashlib.sha1(key + MAGIC).digest()).decode()
        handler.send_header("Sec-WebSocket-Accept", accept)
        handler.end_headers()
        self.connections.put(handler)
        handler.close_connection = True
        self._over.get(timeout=WAIT_S)

    def hang_up(self) -> None:
        """Let go of the connection."""
        self._over.put(None)


class Line:
    """One connection."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler

    def say(self, ack: StdinAckFrame) -> None:
        data = msgspec.json.encode(ack)
        self._handler.wfile.write(bytes([0x81, len(data)]) + data)
        self._handler.wfile.flush()

    def hear(self) -> StdinFrame | ResizeFrame:
        """Return the next frame."""
        first, length = self._handler.rfile.read(2)
        assert (first, length & 0x80) == (0x81, 0x80), "one masked text message"
        length &= 0x7F
        if length >= 126:
            form = ">H" if length == 126 else ">Q"
            (length,) = struct.unpack(form, self._handler.rfile.read(struct.calcsize(form)))
        mask = self._handler.rfile.read(4)
        data = self._handler.rfile.read(length)
        plain = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
        return msgspec.json.decode(plain, type=StdinFrame | ResizeFrame)


class Recorded:
    """A source that tells how much it was asked for."""

    def __init__(self, content: bytes) -> None:
        self._left = content
        self._ready, writing = os.pipe()
        os.close(writing)
        self.asked: list[int] = []

    def fileno(self) -> int:
        return self._ready

    def read(self, size: int) -> bytes:
        self.asked.append(size)
        data, self._left = self._left[:size], self._left[size:]
        return data

    def rewind(self) -> bool:
        return False


@pytest.fixture
def client(scripted: Start) -> Iterator[tuple[Client, Other]]:
    other = Other()
    server = scripted(other)
    with Client(server.url, "t", timeouts=QUICK) as client:
        yield client, other
        other.hang_up()


def test_input_goes_no_further_ahead_than_the_window_and_its_end_is_told(
    client: tuple[Client, Other],
) -> None:
    content = os.urandom(INPUT_WINDOW_BYTES + 100)
    source = Recorded(content)
    sender = StdinSender(client[0].caller, "AAAA1111", source, on_lost=lambda: None)
    sender.start()
    line = Line(client[1].connections.get(timeout=WAIT_S))
    line.say(StdinAckFrame(offset=0))
    whole = INPUT_WINDOW_BYTES // CHUNK_BYTES
    assert [line.hear() for _ in range(whole)] == [
        StdinFrame(offset=start, data=content[start : start + CHUNK_BYTES])
        for start in range(0, INPUT_WINDOW_BYTES, CHUNK_BYTES)
    ]
    assert source.asked == [CHUNK_BYTES] * whole, "no more until the job has read something"

    line.say(StdinAckFrame(offset=50))
    assert line.hear() == StdinFrame(offset=INPUT_WINDOW_BYTES, data=content[INPUT_WINDOW_BYTES:][:50])
    assert source.asked == [CHUNK_BYTES] * whole + [50]
    line.say(StdinAckFrame(offset=INPUT_WINDOW_BYTES + 50))
    assert line.hear() == StdinFrame(offset=INPUT_WINDOW_BYTES + 50, data=content[-50:])
    assert line.hear() == StdinFrame(offset=len(content), eof=True)
    sender.close()


def test_it_asks_again_only_while_something_is_on_its_way(
    client: tuple[Client, Other], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdin_sender, "ASK_AGAIN_S", 0.0)
    reading, writing = os.pipe()
    sender = StdinSender(client[0].caller, "AAAA1111", Stdin(reading), on_lost=lambda: None)
    sender.start()
    line = Line(client[1].connections.get(timeout=WAIT_S))
    line.say(StdinAckFrame(offset=0))
    for rows in (1, 2, 3):  # each is a moment to ask at
        sender.resize(rows, 80)
        assert line.hear() == ResizeFrame(rows=rows, columns=80), "nothing is on its way: nothing is asked"

    os.write(writing, b"abc")
    assert line.hear() == StdinFrame(offset=0, data=b"abc")
    sender.resize(4, 80)
    heard = [line.hear(), line.hear()]
    while ResizeFrame(rows=4, columns=80) not in heard:
        heard.append(line.hear())
    assert {type(one) for one in heard} == {ResizeFrame, StdinFrame}
    assert [one for one in heard if isinstance(one, StdinFrame)] == [StdinFrame(offset=3)] * (len(heard) - 1)
    sender.close()
    os.close(writing)
    os.close(reading)


def test_a_refusal_of_a_socket_is_an_answer_with_its_body(scripted: Start) -> None:
    said = ErrorBody(code="no-such-job", message="There is no job AAAA1111.", details={})
    server = scripted(answer(404, said))
    with Client(server.url, "t", timeouts=QUICK) as client:
        status, body, socket = client.caller.transport.upgrade(Request(path="jobs/AAAA1111/stream"))
    assert (status, msgspec.json.decode(body, type=ErrorBody), socket) == (404, said, None)
