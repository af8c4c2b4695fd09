"""A master that answers whatever a test tells it to, byte by byte, for tests of what may pass a relay."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import struct

SCRIPT = b"<!doctype html><script>fetch('/api/contents')</script>"
GUARD = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
}
SENTENCE = "The master answered something that is not mgpu's: check where you are logged in (`mgpu login`)."
NOT_OURS = {"code": "not-mgpu", "message": SENTENCE, "details": {}}
JSON = "Content-Type: application/json"
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
NASTY = (
    "Set-Cookie: _xsrf=theirs",
    "Access-Control-Allow-Origin: *",
    "Access-Control-Allow-Credentials: true",
    "Refresh: 0; url=https://evil.example/",
    "Link: <https://evil.example/x.js>; rel=preload; as=script",
    "Service-Worker-Allowed: /",
    'Clear-Site-Data: "*"',
    "Content-Security-Policy: default-src *",
    "Content-Security-Policy-Report-Only: default-src *",
    "Strict-Transport-Security: max-age=99999999",
    "Public-Key-Pins: x",
    "X-Content-Type-Options: sniff",
    "Content-Disposition: inline; filename=x.html",
    "Cache-Control: public, max-age=31536000, immutable",
    "Last-Modified: Mon, 01 Jan 2001 00:00:00 GMT",
    "SourceMap: https://evil.example/",
    'NEL: {"report_to":"x"}',
    'Report-To: {"group":"x"}',
    "Alt-Svc: h2=evil.example:443",
    "WWW-Authenticate: Basic realm=x",
    "Server: evil",
    "Retry-After: Mon, 01 Jan 2035 00:00:00 GMT",
    'Etag: "a b"',
    "X-Mgpu-Odd: <script>",
    "X-Mgpu-Next-Offset: 7",
)


def answer(status: str, *headers: str, body: bytes = b"", length: str | None = None) -> bytes:
    head = [
        f"HTTP/1.1 {status}",
        *headers,
        f"Content-Length: {len(body) if length is None else length}",
        "",
        "",
    ]
    return "\r\n".join(head).encode() + body


def frame(kind: int, data: bytes) -> bytes:
    assert len(data) < 1 << 16
    return bytes([0x80 | kind, 126]) + struct.pack(">H", len(data)) + data


class Hostile:
    """Answers each connection with the bytes that a test wants; `said` follow a WebSocket's handshake."""

    def __init__(self):
        self.bytes = b""
        self.said: list[bytes] = []
        self.wrote = 0
        self.writers = []

    async def end(self):
        for writer in self.writers:
            writer.transport.abort()
        for writer in self.writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def serve(self, reader, writer):
        self.writers.append(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if self.said:
                (sent,) = (
                    line[19:] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key: ")
                )
                key = base64.b64encode(hashlib.sha1(sent.encode() + MAGIC).digest()).decode()
                head = (
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
                    "Upgrade\r\nSec-WebSocket-Accept: "
                )
                writer.write(f"{head}{key}\r\n\r\n".encode())
                for one in self.said:
                    writer.write(one)
                await reader.read()
            else:
                for start in range(0, len(self.bytes), 1 << 20):
                    writer.write(self.bytes[start : start + (1 << 20)])
                    await writer.drain()
                    if writer.is_closing():
                        break
                    self.wrote += 1 << 20
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
