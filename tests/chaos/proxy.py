"""A network that can be cut: a TCP proxy with a gate for each node, which holds what goes one way or both.
Runs in a thread of its own.

What a cut holds is not lost, as with TCP: when it heals, each connection gets the rest after a delay of its
own, or is broken, as by a router that forgot it. A connection that is made meanwhile comes about when both
ways are open again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

CHUNK_BYTES = 64 * 1024
MOST_DELAY_S = 0.3
TO_MASTER, TO_AGENT = "to-master", "to-agent"
BOTH = (TO_MASTER, TO_AGENT)


class Gate:
    """The way of one node to the master. Its coroutines belong to the proxy's loop."""

    def __init__(self, upstream_port: int, rng: random.Random) -> None:
        self.port = 0
        self._upstream_port = upstream_port
        self._rng = rng
        self._open = {way: asyncio.Event() for way in BOTH}
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._heal()

    async def listen(self) -> None:
        """Let the node connect."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self, ways: tuple[str, ...]) -> None:
        """Let nothing through these ways."""
        for way in ways:
            self._open[way].clear()

    async def heal(self, *, broken: bool) -> None:
        """Let all through; `broken` ends the connections that there were."""
        if broken:
            for writer in list(self._writers):
                writer.transport.abort()
        self._heal()

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _heal(self) -> None:
        for way in self._open.values():
            way.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            for way in BOTH:
                await self._open[way].wait()
            with contextlib.suppress(OSError):
                there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
                self._writers.add(there_writer)
                try:
                    pumps = (
                        self._pump(TO_MASTER, reader, there_writer),
                        self._pump(TO_AGENT, there_reader, writer),
                    )
                    await asyncio.gather(*pumps)
                finally:
                    self._writers.discard(there_writer)
                    there_writer.transport.abort()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pump(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on bytes and the end of them, in order, while the way is open."""
        data = b"-"
        while data:
            try:
                data = await reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            if not self._open[way].is_set():
                await self._open[way].wait()
                await asyncio.sleep(self._rng.uniform(0.0, MOST_DELAY_S))
            try:
                if data:
                    writer.write(data)
                    await writer.drain()
            except OSError:
                data = b""
        # A program that ends a connection ends both ways of it.
        writer.close()


class Proxy:
    """All gates, and the thread that serves them."""

    def __init__(self, upstream_port: int, rng: random.Random) -> None:
        self._upstream_port = upstream_port
        self._rng = random.Random(rng.random())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._gates: list[Gate] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for gate in self._gates:
            self._do(gate.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def gate(self) -> Gate:
        """Make a way for one more node."""
        gate = Gate(self._upstream_port, self._rng)
        self._do(gate.listen())
        self._gates.append(gate)
        return gate

    def cut(self, gate: Gate, ways: tuple[str, ...]) -> None:
        """Let nothing through these ways of a gate."""
        self._do(gate.cut(ways))

    def heal(self, gate: Gate, *, broken: bool = False) -> None:
        """Let all through again."""
        self._do(gate.heal(broken=broken))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)
