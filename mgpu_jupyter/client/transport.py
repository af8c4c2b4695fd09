"""Requests and answers over HTTP/1.1 with persistent connections. Knows nothing of jobs and decides nothing
about retries.

    Transport.send   one request, one whole answer
    Transport.open   one request, an answer that is read as it comes

A connection that was closed while idle is replaced at once; every other failure is `ConnectionLost`.
"""

from __future__ import annotations

import http.client
import os
import threading
import weakref
from typing import Protocol
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.client.connecting import (
    UnixConnection,
    WrongCertificate,
    pinned_context,
    socket_path,
    wrong_certificate,
)
from mgpu_jupyter.client.discovery import Address, Locator
from mgpu_jupyter.client.websocket import ConnectionLost, WebSocket, new_key, shake_hands

MAX_IDLE_CONNECTIONS = 4
READ_BYTES = 256 * 1024
UNAUTHORISED = 401
MAX_RETRY_AFTER_S = 60.0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask for; `path` is below the API's prefix."""

    method: str = "GET"
    path: str
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: bytes | memoryview | None = None
    into: memoryview | None = None
    """Where the body of a successful answer goes, if the transport can do that; the answer is empty then."""

    @property
    def target(self) -> str:
        """Return path and query for the request line."""
        return quote(self.path) + ("?" + urlencode(self.query) if self.query else "")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    status: int
    body: bytes = b""
    location: str = ""
    """The server that sent it, for error messages."""
    retry_after_s: float = 0.0
    """When the server wants to be asked again, if it says so."""


class Stream(Protocol):
    """An answer that is read as it comes."""

    @property
    def status(self) -> int:
        """Return the HTTP status."""

    def read(self, timeout_s: float) -> bytes:
        """Return the next bytes, or none at the end; raise `ConnectionLost` or `TimeoutError`."""

    def close(self) -> None:
        """Close the connection; a second time is no error."""


class Transport(Protocol):
    """The whole interface between the client and a server."""

    def send(self, request: Request) -> Answer:
        """Send `request` and return the whole answer."""

    def open(self, request: Request) -> Stream:
        """Send `request` and return the answer to be read as it comes."""

    def upgrade(self, request: Request) -> tuple[int, bytes, WebSocket | None]:
        """Ask for a WebSocket; return the status, and the socket or the body of another answer."""

    def close(self) -> None:
        """Close all connections; later use opens new ones."""


class HttpTransport:
    """Speaks to the server that `locator` finds; safe to use from several threads."""

    def __init__(self, locator: Locator, timeouts: Timeouts) -> None:
        self._locator = locator
        self.timeouts = timeouts
        self._pool = _Pool()
        # Notebooks drop clients without closing them: sockets must not stay until the interpreter ends.
        self._finalizer = weakref.finalize(self, self._pool.close)

    @property
    def place(self) -> str:
        """Return the server and user that it speaks to and as; for comparisons."""
        address = self._locator.address()
        return f"{address.url} {address.token}"

    def send(self, request: Request) -> Answer:
        """Send `request` and return the whole answer."""
        answer = self._send(request)
        if answer.status == UNAUTHORISED and self._locator.renew_token():
            return self._send(request)
        return answer

    def _send(self, request: Request) -> Answer:
        connection, response = self._exchange(request)
        try:
            body = _read(response, request.into)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._lost(error) from error
        except BaseException:  # an interrupt: the rest of the answer would be taken for the next one
            connection.close()
            raise
        self._pool.give_back(connection, response)
        after = response.headers.get("Retry-After", "")
        after_s = min(float(after), MAX_RETRY_AFTER_S) if after.isascii() and after.isdecimal() else 0.0
        return Answer(
            status=response.status, body=body, location=self._locator.address().url, retry_after_s=after_s
        )

    def open(self, request: Request) -> Stream:
        """Send `request` and return the answer to be read as it comes."""
        connection, response = self._exchange(request)
        if response.status == UNAUTHORISED and self._locator.renew_token():
            connection.close()
            connection, response = self._exchange(request)
        return _HttpStream(connection, response)

    def upgrade(self, request: Request) -> tuple[int, bytes, WebSocket | None]:
        """Ask for a WebSocket; return the status, and the socket or the body of another answer."""
        answer = self._upgrade(request)
        if answer[0] == UNAUTHORISED and self._locator.renew_token():
            return self._upgrade(request)
        return answer

    def _upgrade(self, request: Request) -> tuple[int, bytes, WebSocket | None]:
        address = self._locator.address()
        try:
            connection = self._connect(address)
        except WrongCertificate as error:
            raise wrong_certificate(address.url) from error
        except OSError as error:
            self._locator.look_again()
            raise self._lost(error) from error
        key, parts = new_key(), urlsplit(address.url)
        host = "localhost" if socket_path(address.url) is not None else parts.netloc.rpartition("@")[2]
        head = [
            f"GET {parts.path}{PREFIX}/{request.target} HTTP/1.1",
            f"Host: {host}",
            "Connection: Upgrade",
            "Upgrade: websocket",
        ]
        head += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
        if address.token:
            head.append(f"Authorization: mgpu {address.token}")
        try:
            status, body, socket = shake_hands(connection.sock, "\r\n".join((*head, "", "")).encode(), key)
        except (OSError, ValueError, IndexError) as error:
            connection.close()
            raise self._lost(error) from error
        except BaseException:
            connection.close()
            raise
        if socket is None:
            connection.close()
        return status, body, socket

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def _exchange(self, request: Request) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        while True:
            address = self._locator.address()
            connection = self._pool.take(address)
            reused = connection is not None
            if connection is None:
                try:
                    connection = self._connect(address)
                except WrongCertificate as error:
                    raise wrong_certificate(address.url) from error
                except OSError as error:
                    # The server may be back on another port; then the runtime file has it.
                    if self._locator.look_again():
                        continue
                    raise self._lost(error) from error
            try:
                return connection, self._ask(connection, address, request)
            except TimeoutError as error:
                connection.close()
                raise self._lost(error) from error
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if reused:
                    continue
                raise self._lost(error) from error
            except BaseException:
                connection.close()
                raise

    def _connect(self, address: Address) -> http.client.HTTPConnection:
        parts = urlsplit(address.url)
        where = (parts.hostname or "localhost", parts.port)
        path = socket_path(address.url)
        connection = (
            UnixConnection(path, timeout=self.timeouts.connect_s)
            if path is not None
            # The pin is compared at the end of the handshake, before the request with its token is sent.
            else http.client.HTTPSConnection(
                *where,
                timeout=self.timeouts.connect_s,
                context=pinned_context(address.pin) if address.pin else None,
            )
            if parts.scheme == "https"
            else http.client.HTTPConnection(*where, timeout=self.timeouts.connect_s)
        )
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        connection.sock.settimeout(self.timeouts.request_s)
        return connection

    def _ask(
        self, connection: http.client.HTTPConnection, address: Address, request: Request
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json", **request.headers}
        if address.token:
            headers["Authorization"] = f"mgpu {address.token}"
        if request.body is not None:
            headers.setdefault("Content-Type", "application/json")
        connection.request(
            request.method,
            f"{urlsplit(address.url).path}{PREFIX}/{request.target}",
            body=request.body,
            headers=headers,
        )
        return connection.getresponse()

    def _lost(self, error: Exception) -> ConnectionLost:
        why = _in_words(error)
        return ConnectionLost(
            "no-answer",
            f"The mgpu server at {self._locator.address().url} does not answer ({why}): "
            "start JupyterLab with mgpu-jupyter, or `mgpu_master`, and try again.",
        )


def _read(response: http.client.HTTPResponse, into: memoryview | None) -> bytes:
    """Read as much of a successful answer into the given memory as fits, and return the rest."""
    if into is not None and response.status < 300:
        while into and (read := response.readinto(into)):
            into = into[read:]
    return response.read()


class _HttpStream:
    """Owns one connection until it is closed."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self._socket = connection.sock  # http.client forgets it when the server says `Connection: close`

    @property
    def status(self) -> int:
        return self._response.status

    def read(self, timeout_s: float) -> bytes:
        if self._socket is not None:
            self._socket.settimeout(max(timeout_s, 0.001))
        try:
            return self._response.read1(READ_BYTES)
        except TimeoutError:
            raise
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ConnectionLost(
                "no-answer", f"The connection to the mgpu server broke ({_in_words(error)})."
            ) from error

    def close(self) -> None:
        self._response.close()
        self._connection.close()


class _Pool:
    """Idle connections to one address. After a fork the child has none: the parent still uses them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._address: Address | None = None
        self._pid = os.getpid()

    def take(self, address: Address) -> http.client.HTTPConnection | None:
        if self._pid != os.getpid():
            self._lock, self._idle, self._pid = threading.Lock(), [], os.getpid()
        with self._lock:
            if address != self._address:
                self._address, stale, self._idle = address, self._idle, []
                for connection in stale:
                    connection.close()
            return self._idle.pop() if self._idle else None

    def give_back(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        with self._lock:
            if not response.will_close and len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _in_words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, http.client.IncompleteRead | http.client.RemoteDisconnected):
        return "connection closed"
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long the client waits for what."""

    connect_s: float = 5.0
    request_s: float = 60.0
    """For one answer; a submit is answered after its commit, which takes milliseconds."""
    retry_s: float = 30.0
    """A server that restarts is back within this; until then a request is sent again, with the same key."""
    slowed_s: float = 300.0
    """How long a request waits in all because the server limits the rate."""
    stream_idle_s: float = 30.0
    """The server sends something every 10 s, so a silence of three times that means a dead connection."""
    resume_s: float = 300.0
    """How long a stream waits for the server to come back."""
    cancel_wait_s: float = 30.0
    """Twice the kill grace: how long an interrupted job is watched to its end."""
    withdraw_s: float = 2.0
    """How long to try to withdraw a submit that was interrupted before its answer came."""
    backoff_base_s: float = 0.05
    backoff_cap_s: float = 2.0
