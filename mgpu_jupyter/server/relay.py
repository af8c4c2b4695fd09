"""Passes requests and WebSockets of this server on to the master elsewhere, with the user's credential in place of the asker's.

Who may ask was decided before. Answers pass unaltered, errors too; only what belongs to one connection stays behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from urllib.parse import urlsplit

from tornado.http1connection import HTTP1Connection
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httputil import HTTPHeaders
from tornado.iostream import IOStream, StreamClosedError
from tornado.web import RequestHandler
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketError, websocket_connect

from mgpu_jupyter.api.routes import PREFIX
from mgpu_jupyter.server.upstream import WAITS, Asked, Receiver, Upstream, host_of, resolver_of, target_of, tls_of, unreachable

REQUEST_HEADERS = ("Accept", "Content-Type", "Idempotency-Key", "Last-Event-ID", "If-None-Match")
OWN_HEADERS = frozenset(
    (
        "connection",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
        "server",
        "date",
        "set-cookie",
        "content-security-policy",
        "location",
        "trailer",
    )
)
WS_PING_S = 10.0
MAX_MESSAGE_BYTES = 16 * 1024 * 1024


async def relay_request(handler: RequestHandler, upstream: Upstream) -> None:
    """Answer `handler` with what the master answers."""
    request = handler.request
    headers = {name: request.headers[name] for name in REQUEST_HEADERS if name in request.headers}
    asked = Asked(method=request.method or "GET", target=target_below(request.uri or ""), headers=headers, body=bytes(request.body))
    receiver = _ToHandler(handler)
    handler.relayed = receiver  # type: ignore[attr-defined]  # closed when the asker goes away
    with contextlib.suppress(StreamClosedError):  # the asker left
        await upstream.request(asked, receiver)
    if not handler._finished:  # noqa: SLF001 - tornado's own word for it
        with contextlib.suppress(StreamClosedError):
            await handler.finish()


def target_below(uri: str) -> str:
    """Return path and query below the API's prefix, without a token of this server's own."""
    path, mark, query = uri.partition("?")
    below = path.partition(f"/{PREFIX}/")[2]
    kept = "&".join(pair for pair in query.split("&") if pair and pair.partition("=")[0] != "token")
    return f"{below}{mark}{kept}" if kept else below


class _ToHandler(Receiver):
    """Writes an answer to the asker; the next chunk is read when this one is out."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._stream: IOStream | None = None

    def opened(self, stream: IOStream) -> None:
        self._stream = stream

    async def begin(self, status: int, headers: HTTPHeaders) -> None:
        handler = self._handler
        if isinstance(handler.request.connection, HTTP1Connection):
            # Small frames must not wait for the acknowledgement of the one before.
            handler.request.connection.stream.set_nodelay(True)
        handler.set_status(status)
        for name in {name for name in headers if name.lower() not in OWN_HEADERS}:
            handler.set_header(name, headers[name])
        if location := headers.get("Location"):
            below = urlsplit(location).path.partition(f"/{PREFIX}/")[2]
            handler.set_header("Location", f"{handler.settings['base_url']}{PREFIX}/{below}" if below else location)
        await handler.flush()

    async def data(self, chunk: bytes) -> None:
        self._handler.write(chunk)
        await self._handler.flush()

    def broke(self) -> None:
        """Break the asker's connection too: an end would say that the answer is whole."""
        self._handler.request.connection.stream.close()  # type: ignore[union-attr]

    def close(self) -> None:
        """Stop: nobody waits for the answer any more."""
        if self._stream is not None:
            self._stream.close()


class Refused(Exception):
    """The master answered a WebSocket with an HTTP status."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


async def open_socket(uri: str, upstream: Upstream) -> WebSocketClientConnection:
    """Return a WebSocket to the master; raises `Refused` with what it answered instead."""
    address = upstream.address()
    base = f"{'wss' if address.url.startswith('https:') else 'ws'}://{host_of(address)}"
    request = HTTPRequest(
        base + target_of(address, target_below(uri)),
        headers={"Authorization": f"mgpu {address.token}"},
        ssl_options=tls_of(address),
        connect_timeout=WAITS.connect_s,
        request_timeout=WAITS.connect_s * 2,
        follow_redirects=False,
    )
    try:
        return await websocket_connect(request, ping_interval=WS_PING_S, max_message_size=MAX_MESSAGE_BYTES, resolver=resolver_of(address))
    except HTTPClientError as error:
        if error.response is not None and error.code < 599:
            raise Refused(error.code, error.response.body or b"") from error
        raise unreachable(address, error) from error
    except (OSError, StreamClosedError, WebSocketError, TimeoutError) as error:
        raise unreachable(address, error) from error


async def pump(socket: WebSocketClientConnection, handler: Any) -> None:
    """Pass on what the master says until one side closes; the next message is read when this one is out."""
    try:
        while (message := await socket.read_message()) is not None:
            await handler.write_message(message, binary=isinstance(message, bytes))
        handler.close(_close_code(socket.close_code), socket.close_reason)
    except (WebSocketClosedError, asyncio.CancelledError):
        return
    finally:
        socket.close()


def _close_code(code: int | None) -> int:
    # Without a code the connection broke: "try again later" makes viewers come back.
    return code if code is not None and (1000 <= code < 1004 or 1007 <= code < 1015 or 3000 <= code < 5000) else 1013
