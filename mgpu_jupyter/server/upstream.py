"""The master elsewhere that a relay speaks to: its present address, and one request to it with back-pressure.

Holds at most one chunk of an answer. The credential is sent only after the certificate was compared with its
pin.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace
from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.httputil import (
    HTTPHeaders,
    HTTPInputError,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import IOStream, StreamClosedError
from tornado.netutil import Resolver
from tornado.tcpclient import TCPClient

from mgpu_agent import __version__
from mgpu_agent.protocol.errors import MgpuError, Unavailable
from mgpu_agent.protocol.places import find_runtime_file
from mgpu_jupyter.api.models import ErrorBody, Health
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.client.connecting import WrongCertificate, pinned_context, socket_path, wrong_certificate
from mgpu_jupyter.client.discovery import Address
from mgpu_jupyter.client.login import load_login
from mgpu_jupyter.server.foreign import MAX_HEADER_BYTES, not_mgpu

CHUNK_BYTES = 64 * 1024
MAX_SHORT_BYTES = 1024 * 1024
NO_LIMIT = 1 << 62
KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


class RelayWaits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a server that relays waits for the master elsewhere, in seconds."""

    connect_s: float = 5.0
    answer_s: float = 60.0
    health_s: float = 5.0


class Upstream:
    """Knows where the master is; looked up for every request, since it may move or the login may end."""

    def __init__(self, find: Callable[[], Address], waits: RelayWaits) -> None:
        self._find = find
        self.waits = waits

    @classmethod
    def of_login(cls, env: Mapping[str, str], waits: RelayWaits) -> Upstream:
        """Return the master of the stored login."""

        def find() -> Address:
            login = load_login(env)
            if login is None:
                raise Unavailable(
                    "logged-out",
                    "You are logged out: `mgpu login` with your line, or restart the server to have a "
                    "master here.",
                )
            return Address(login.url, login.token, login.pin)

        return cls(find, waits)

    @classmethod
    def of_other_server(cls, state: Path, problem: str, waits: RelayWaits) -> Upstream:
        """Return this user's other server, which holds the state; `problem` is reported while it is away."""

        def find() -> Address:
            runtime = find_runtime_file(state)
            if runtime is None:
                raise Unavailable("second-master", problem)
            return Address(runtime.url, runtime.token, runtime.certificate_pin)

        return cls(find, waits)

    def address(self) -> Address:
        """Return where the master is now."""
        return self._find()

    async def request(self, asked: RelayedRequest, receiver: Receiver) -> None:
        """Send one request and pass its answer on as it comes."""
        address = self.address()
        try:
            stream = await connect(address, self.waits)
        except (OSError, TimeoutError, StreamClosedError) as error:
            raise unreachable(address, error) from error
        receiver.opened(stream)
        try:
            await _exchange(stream, address, asked, receiver, self.waits)
        except (StreamClosedError, HTTPInputError, TimeoutError) as error:
            if not receiver.has_begun:
                raise unreachable(address, error) from error
            receiver.broke()
        finally:
            stream.close()

    async def health_through(self) -> Health:
        """Return that this server relays, to where, and the health of the master there."""
        try:
            url = self.address().url
        except MgpuError as error:
            return Health(status="failed", version=__version__, message=error.message)
        try:
            return replace(await self._health(), version=__version__, relays_to=url)
        except MgpuError as error:
            return Health(status="degraded", version=__version__, message=error.message, relays_to=url)

    async def _health(self) -> Health:
        receiver = _Collected()
        try:
            await asyncio.wait_for(
                self.request(RelayedRequest(method="GET", target="health"), receiver), self.waits.health_s
            )
            if receiver.status != 200:
                told = msgspec.json.decode(receiver.body, type=ErrorBody)
                raise Unavailable(told.code, told.message)
            return msgspec.json.decode(receiver.body, type=Health)
        except TimeoutError as error:
            raise unreachable(self.address(), error) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unavailable(
                "not-mgpu", f"What answers at {self.address().url} is not an mgpu master: check the login."
            ) from error


class RelayedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to pass on; `target` is path and query below the API's prefix."""

    method: str
    target: str
    headers: dict[str, str] = {}
    body: bytes = b""


class Receiver:
    """Receives an answer as it comes."""

    has_begun = False

    def opened(self, stream: IOStream) -> None:
        """Receive the connection, to close it when nobody waits for the answer any more."""

    async def begin(self, status: int, headers: HTTPHeaders) -> None:
        """Receive status and headers."""

    async def data(self, chunk: bytes) -> None:
        """Receive some bytes; the next ones are read when this returns."""

    def broke(self) -> None:
        """Note that the rest will not come."""


class _Collected(Receiver):
    """A short answer in memory."""

    status = 0
    body = b""

    async def begin(self, status: int, headers: HTTPHeaders) -> None:  # noqa: ARG002 - a short answer needs none
        self.status = status

    async def data(self, chunk: bytes) -> None:
        if len(self.body) + len(chunk) > MAX_SHORT_BYTES:
            raise not_mgpu()
        self.body += chunk


class _Delegate(HTTPMessageDelegate):
    """Passes on what tornado parses; an error of the receiver closes the connection and is raised later."""

    def __init__(self, receiver: Receiver, connection: HTTP1Connection) -> None:
        self._receiver = receiver
        self._connection = connection
        self.error: Exception | None = None
        self.is_complete = False
        self.began = asyncio.Event()

    async def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> None:
        assert isinstance(start_line, ResponseStartLine)
        self._receiver.has_begun = True
        self.began.set()
        await self._guarded(self._receiver.begin(start_line.code, headers))

    async def data_received(self, chunk: bytes) -> None:
        await self._guarded(self._receiver.data(chunk))

    def finish(self) -> None:
        self.is_complete = True

    async def _guarded(self, step: Coroutine[Any, Any, None]) -> None:
        if self.error is not None:
            step.close()
            return
        try:
            await step
        except Exception as error:  # noqa: BLE001 - raised again by `_exchange`; tornado would only log it
            self.error = error
            self._connection.close()


async def connect(address: Address, waits: RelayWaits) -> IOStream:
    """Return a connection whose certificate matches the pin."""
    parts = urlsplit(address.url)
    if (resolver := resolver_of(address)) is not None:
        return await TCPClient(resolver=resolver).connect("localhost", 80, timeout=waits.connect_s)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    stream = await TCPClient().connect(
        parts.hostname or "", port, ssl_options=tls_of(address), timeout=waits.connect_s
    )
    stream.set_nodelay(True)
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        stream.socket.setsockopt(socket.IPPROTO_TCP, option, value)
    return stream


class _ToSocket(Resolver):
    """Resolves every name to one UNIX socket."""

    def initialize(self, path: str) -> None:
        self._path = path

    async def resolve(self, *_host_port_family: object) -> list[tuple[int, Any]]:
        return [(socket.AF_UNIX, self._path)]


def resolver_of(address: Address) -> Resolver | None:
    """Return the resolver for the UNIX socket of this address, or None for one on a network."""
    path = socket_path(address.url)
    return None if path is None else _ToSocket(path=path)


def host_of(address: Address) -> str:
    """Return the Host header."""
    return urlsplit(address.url).netloc if socket_path(address.url) is None else "localhost"


def tls_of(address: Address) -> ssl.SSLContext | None:
    """Return the TLS context for this address, or None for plain HTTP."""
    if not address.url.startswith("https:"):
        return None
    return pinned_context(address.pin) if address.pin else ssl.create_default_context()


def target_of(address: Address, target: str) -> str:
    """Return the path of a request line."""
    return f"{urlsplit(address.url).path}{PREFIX}/{target}"


def unreachable(address: Address, error: Exception) -> MgpuError:
    """Return an error that says in one sentence why there is no answer."""
    cause: BaseException = (error.real_error if isinstance(error, StreamClosedError) else None) or error
    if isinstance(cause, WrongCertificate):
        return Unavailable("wrong-certificate", wrong_certificate(address.url).message)
    why = (
        "no answer in time"
        if isinstance(cause, TimeoutError)
        else "connection refused"
        if isinstance(cause, ConnectionRefusedError)
        else (cause.strerror if isinstance(cause, OSError) else None) or "connection closed"
    )
    return Unavailable(
        "master-unreachable",
        f"The master at {address.url} does not answer ({why}): this server tries again with every request.",
    )


async def _exchange(
    stream: IOStream, address: Address, asked: RelayedRequest, receiver: Receiver, waits: RelayWaits
) -> None:
    # Chunks are read one by one, and a follow has no end: no limit on the whole.
    connection = HTTP1Connection(
        stream,
        is_client=True,
        params=HTTP1ConnectionParameters(
            no_keep_alive=True,
            chunk_size=CHUNK_BYTES,
            max_header_size=MAX_HEADER_BYTES,
            max_body_size=NO_LIMIT,
        ),
    )
    headers = HTTPHeaders(
        {
            **asked.headers,
            "Host": host_of(address),
            "Authorization": f"mgpu {address.token}",
            "Connection": "close",
        }
    )
    if asked.body or asked.method in ("POST", "PUT", "PATCH"):
        headers["Content-Length"] = str(len(asked.body))
    await connection.write_headers(
        RequestStartLine(asked.method, target_of(address, asked.target), "HTTP/1.1"),
        headers,
        asked.body or None,
    )
    connection.finish()
    delegate = _Delegate(receiver, connection)
    reading = asyncio.ensure_future(connection.read_response(delegate))
    try:
        beginning = asyncio.ensure_future(delegate.began.wait())
        await asyncio.wait({reading, beginning}, timeout=waits.answer_s, return_when=asyncio.FIRST_COMPLETED)
        beginning.cancel()
        if not delegate.began.is_set() and not reading.done():
            raise TimeoutError
        await reading
    except StreamClosedError:
        if delegate.error is None:  # otherwise it was closed because of that
            raise
    finally:
        if not reading.done():
            stream.close()
            await asyncio.wait({reading}, timeout=waits.connect_s)
    if delegate.error is not None:
        raise delegate.error
    if not delegate.is_complete:
        raise StreamClosedError
