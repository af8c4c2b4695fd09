"""A master elsewhere, for tests of the relay: echoes, floods, tears off, and speaks over WebSockets."""

from __future__ import annotations

import asyncio

from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler
from tornado.websocket import WebSocketHandler

from mgpu_jupyter.api.route import PREFIX

TOKEN = "upstream-token"
CHUNK = b"x" * 65536
ERROR = b'{"code":"odd","message":"As the master said it.","details":{"n":1}}'


class Far:
    """The master elsewhere: what it saw, and how much it could send."""

    def __init__(self):
        self.seen = []
        self.sent = 0
        self.closed = asyncio.Event()


class Echo(RequestHandler):
    def initialize(self, far):
        self.far = far

    async def prepare(self):
        request = self.request
        self.far.seen.append(
            (
                request.method,
                request.uri,
                request.headers.get("Authorization"),
                request.body,
                dict(request.headers),
            )
        )

    def get(self, path):
        if path == "health":
            self.finish({"status": "ok", "version": "9", "cluster": "far", "master_epoch": 4})
        else:
            self.set_header("X-Mgpu-Next-Offset", "7")
            self.finish({"path": path})

    def post(self, path):
        if path == "bad":
            self.set_status(418)
            self.set_header("Content-Type", "application/json")
            self.finish(ERROR)
        else:
            self.set_status(201)
            self.set_header("Location", f"/far/{PREFIX}/jobs/AB12CD34")
            self.set_header("Set-Cookie", "theirs=1")
            self.finish({})

    delete = get


class Flood(RequestHandler):
    def initialize(self, far):
        self.far = far

    async def get(self):
        self.set_header("Content-Type", "application/octet-stream")
        try:
            while self.far.sent < 400 * len(CHUNK):
                self.write(CHUNK)
                await self.flush()
                self.far.sent += len(CHUNK)
        except StreamClosedError:
            pass

    def on_connection_close(self):
        self.far.closed.set()


class Torn(RequestHandler):
    async def get(self):
        self.set_header("Content-Type", "application/octet-stream")
        self.write(b"half")
        await self.flush()
        self.request.connection.stream.close()


class Socket(WebSocketHandler):
    def initialize(self, far):
        self.far = far

    def prepare(self):
        self.far.seen.append(
            (self.request.method, self.request.uri, self.request.headers.get("Authorization"), b"", {})
        )
        if "OTHERS00" in self.request.path:
            self.set_status(403)
            self.finish(ERROR)

    async def on_message(self, message):
        if message == "bye":
            self.close(4001, "done")
        else:
            await self.write_message({"far": message})

    def on_close(self):
        self.far.closed.set()
