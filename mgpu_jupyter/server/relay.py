"""Relays requests and WebSockets to a master elsewhere, with the user's credential in place of the client's.

The right to ask was checked before, and `foreign.py` decides which answers may pass; the body of one that may
passes unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

from tornado.http1connection import HTTP1Connection
from tornado.httpclient import HTTPClientError, HTTPRequest, _RequestProxy
from tornado.httputil import HTTPHeaders
from tornado.iostream import IOStream, StreamClosedError
from tornado.web import RequestHandler
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketError

from mgpu_jupyter.api.models import ErrorBody
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.server.foreign import (
    JSON,
    MAX_JSON_BYTES,
    MAX_REFUSAL_BYTES,
    close_of,
    is_frame,
    not_mgpu,
    passed_headers,
    refusal,
)
from mgpu_jupyter.server.upstream import (
    Receiver,
    RelayedRequest,
    Upstream,
    host_of,
    resolver_of,
    target_of,
    tls_of,
    unreachable,
)

REQUEST_HEADERS = ("Accept", "Content-Type", "Idempotency-Key", "Last-Event-ID", "If-None-Match")
WS_PING_S = 10.0
CLOSE_INTERNAL = 1011
MAX_MESSAGE_BYTES = 16 * 1024 * 1024


async def relay_request(handler: RequestHandler, upstream: Upstream) -> None:
    """Answer `handler` with the master's answer."""
    request = handler.request
    headers = {name: request.headers[name] for name in REQUEST_HEADERS if name in request.headers}
    asked = RelayedRequest(
        method=request.method or "GET",
        target=target_below(request.uri or ""),
        headers=headers,
        body=bytes(request.body),
    )
    receiver = _ToHandler(handler)
    handler.relayed = receiver  # type: ignore[attr-defined]  # closed when the asker goes away
    with contextlib.suppress(StreamClosedError):  # the client left
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
    """Writes an answer to the client; the next chunk is read when this one is sent."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._stream: IOStream | None = None
        self._room: int | None = None

    def opened(self, stream: IOStream) -> None:
        self._stream = stream

    async def begin(self, status: int, headers: HTTPHeaders) -> None:
        handler = self._handler
        if isinstance(handler.request.connection, HTTP1Connection):
            # Small frames must not wait for the acknowledgement of the one before.
            handler.request.connection.stream.set_nodelay(True)
        unchanged = "If-None-Match" in handler.request.headers and handler.request.method in ("GET", "HEAD")
        told = passed_headers(status, headers, handler.settings["base_url"], may_be_unchanged=unchanged)
        self._room = MAX_JSON_BYTES if told.get("Content-Type") == JSON else None
        handler.set_status(status)
        handler.clear_header("Content-Type")
        for name, value in told.items():
            handler.set_header(name, value)
        await handler.flush()

    async def data(self, chunk: bytes) -> None:
        if self._room is not None:
            self._room -= len(chunk)
            if self._room < 0:
                self.broke()
                raise StreamClosedError
        self._handler.write(chunk)
        await self._handler.flush()

    def broke(self) -> None:
        """Break the client's connection, too: an end would mean that the answer is complete."""
        self._handler.request.connection.stream.close()  # type: ignore[union-attr]

    def close(self) -> None:
        """Stop: nobody waits for the answer any more."""
        if self._stream is not None:
            self._stream.close()


class RelayRefused(Exception):
    """The master answered a WebSocket with an error."""

    def __init__(self, status: int, body: ErrorBody, retry_after: str = "") -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.retry_after = retry_after


class _Far(WebSocketClientConnection):
    """A WebSocket to the master; of an answer without one only the size of an error is kept."""

    _kept = 0

    def data_received(self, chunk: bytes) -> None:
        self._kept += len(chunk)
        if self._kept <= MAX_REFUSAL_BYTES:
            super().data_received(chunk)


async def open_socket(uri: str, upstream: Upstream) -> WebSocketClientConnection:
    """Return a WebSocket to the master; raises `RelayRefused` with what it answered instead."""
    address = upstream.address()
    base = f"{'wss' if address.url.startswith('https:') else 'ws'}://{host_of(address)}"
    request = HTTPRequest(
        base + target_of(address, target_below(uri)),
        headers=HTTPHeaders({"Authorization": f"mgpu {address.token}"}),
        ssl_options=tls_of(address),
        connect_timeout=upstream.waits.connect_s,
        request_timeout=upstream.waits.connect_s * 2,
        follow_redirects=False,
        decompress_response=False,
    )
    try:
        # tornado's `websocket_connect` does the same with a class that keeps answers of any size.
        asked = cast("HTTPRequest", _RequestProxy(request, HTTPRequest._DEFAULTS))  # noqa: SLF001
        far = _Far(
            asked, ping_interval=WS_PING_S, max_message_size=MAX_MESSAGE_BYTES, resolver=resolver_of(address)
        )
        return await far.connect_future
    except HTTPClientError as error:
        if error.response is not None and error.code < 599:
            told = refusal(error.code, error.response.body or b"")
            after = error.response.headers.get("Retry-After", "")
            raise RelayRefused(error.code, told, after if after.isdecimal() else "") from error
        raise unreachable(address, error) from error
    except WebSocketError as error:  # a success status that is no WebSocket
        raise not_mgpu() from error
    except (OSError, StreamClosedError, TimeoutError) as error:
        raise unreachable(address, error) from error


async def pump(socket: WebSocketClientConnection, handler: Any) -> None:
    """Pass on the master's messages until one side closes; the next is read when this one is sent."""
    try:
        while (message := await socket.read_message()) is not None:
            if not is_frame(message):
                handler.refuse(not_mgpu(), CLOSE_INTERNAL)
                return
            await handler.write_message(message)
        handler.close(*close_of(socket.close_code, socket.close_reason))
    except (WebSocketClosedError, asyncio.CancelledError):
        return
    finally:
        socket.close()
