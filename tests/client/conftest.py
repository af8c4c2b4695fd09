"""A small real HTTP server that answers as it is told, one step a request."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from mgpu_agent.protocol.places import RuntimeFile, boot_id, host_name, write_runtime_file
from mgpu_jupyter.client import Timeouts

Step = Callable[[BaseHTTPRequestHandler], None]
QUICK = Timeouts(
    connect_s=5, request_s=5, retry_s=5, stream_idle_s=5, resume_s=5, backoff_base_s=0.001, backoff_cap_s=0.01
)


class Seen(msgspec.Struct):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer: int


class Scripted:
    """Runs `steps` in order, the last one again and again; `seen` is what was asked."""

    def __init__(self, *steps: Step, port: int = 0) -> None:
        self.steps = list(steps)
        self.seen: list[Seen] = []
        self._sockets: list[socket.socket] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10

            def setup(self) -> None:
                super().setup()
                outer._sockets.append(self.connection)

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                outer.seen.append(
                    Seen(self.command, self.path, dict(self.headers.items()), body, self.client_address[1])
                )
                step = outer.steps.pop(0) if len(outer.steps) > 1 else outer.steps[0]
                try:
                    step(self)
                except OSError:
                    self.close_connection = True

            do_GET = _serve  # noqa: N815 - the standard library calls it so
            do_POST = _serve  # noqa: N815

            def finish(self) -> None:
                with contextlib.suppress(OSError):
                    super().finish()

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = False
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._server.server_close()


def answer(status: int, body: object = b"", **headers: str) -> Step:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)

    def step(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return step


def drop(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without a word."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def frames(*items: object, finish: bool = True, tear: bytes = b"") -> Step:
    """Send frames as chunked lines; without `finish` the connection breaks afterwards, in the middle of a
    chunk after `tear`.
    """

    def step(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/x-ndjson")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for item in items:
            line = item if isinstance(item, bytes) else msgspec.json.encode(item) + b"\n"
            # Cut in two, since nobody promises that a chunk is a line.
            for part in (line[:7], line[7:]):
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            handler.wfile.flush()
        if finish:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.wfile.write(b"%x\r\n%s" % (len(tear) + 10, tear) if tear else b"")
            drop(handler)

    return step


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    """Start scripted servers that are stopped at the end."""
    servers: list[Scripted] = []

    def start(*steps: Step, port: int = 0) -> Scripted:
        servers.append(Scripted(*steps, port=port))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


def publish(state: Path, url: str, port: int, token: str, started_at: float | None = None) -> None:
    """Write the runtime file of a master of this machine."""
    content = RuntimeFile(
        url=url,
        token=token,
        link_address="",
        link_public_key="",
        enrol_public_key="",
        enrol_secret_key="",
        host=host_name(),
        boot_id=boot_id(),
        pid=os.getpid(),
        port=port,
        started_at=time.time() if started_at is None else started_at,
    )
    write_runtime_file(state, content)


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
