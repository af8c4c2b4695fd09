"""Meetings of the nodes of attempts: waits for the others at a port, connects to them by all their addresses,
reports which worked.

Theory of operation. `open` binds a port, so that the answer to a preparation can name it, and begins to
listen; visitors that come before the secret is known wait for it. `meet` brings the secret and the peers:
threads answer visitors until the attempt starts or is given up, and others try all ways at once, within the
limit. Then the loop is woken and `take` returns the results. Decides nothing: that is the master's part.

Each of two nodes proves to the other that it knows the attempt's secret:

    visitor:  "mgpu-meet1" + nonce (16)
    host:     nonce of its own (16) + HMAC(secret, "host" + host's name + visitor's nonce) (32)
    visitor:  HMAC(secret, "visitor" + host's name + host's nonce) (32)
    host:     "ok"

The host's name is in what is signed, since one address may lead to several machines: `172.17.0.1` is the
bridge of every machine with Docker.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import queue
import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mgpu_agent.network.interfaces import ways_here
from mgpu_agent.network.kept_ports import KeptPorts
from mgpu_agent.protocol.errors import reason_of
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.meeting import Fingerprint, MeetingPoint, Peer, Reached, Unreached, Way
from mgpu_agent.protocol.messages import Meet, Met
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_agent.run_as.requests import Versions

HELLO = b"mgpu-meet1"
OK = b"ok"
NONCE_BYTES = 16
PROOF_BYTES = 32


class Strange(Exception):
    """The other end is not the node that was meant."""


def visit(connection: socket.socket, secret: bytes, name: str) -> None:
    """Make sure that the other end is the node `name` of this attempt."""
    nonce = os.urandom(NONCE_BYTES)
    connection.sendall(HELLO + nonce)
    theirs = _receive(connection, NONCE_BYTES)
    if not hmac.compare_digest(_receive(connection, PROOF_BYTES), _proof(secret, b"host", name, nonce)):
        raise Strange(f"what answers there is not {name}")
    connection.sendall(_proof(secret, b"visitor", name, theirs))
    if _receive(connection, len(OK)) != OK:
        raise Strange("it did not agree")


def receive_visit(connection: socket.socket, secret: bytes, name: str) -> None:
    """Prove to a visitor that this is the node `name`, and make sure that it belongs to the attempt."""
    if _receive(connection, len(HELLO)) != HELLO:
        raise Strange("no visitor")
    theirs = _receive(connection, NONCE_BYTES)
    nonce = os.urandom(NONCE_BYTES)
    connection.sendall(nonce + _proof(secret, b"host", name, theirs))
    if not hmac.compare_digest(_receive(connection, PROOF_BYTES), _proof(secret, b"visitor", name, nonce)):
        raise Strange("a visitor without the secret")
    connection.sendall(OK)


def _proof(secret: bytes, role: bytes, name: str, nonce: bytes) -> bytes:
    return hmac.new(secret, b"\0".join((role, name.encode(), nonce)), hashlib.sha256).digest()


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise Strange("it hung up")
        data += more
    return data


_DRIVER = "/proc/driver/nvidia/version"
Look = Callable[[LaunchSpec], Versions | None]
"""Reads from files, as the user of a launch, what its processes will find; None when that takes too long."""


def fingerprint_of(spec: LaunchSpec, look: Look) -> Fingerprint:
    """Return what the processes of a launch will find."""
    found = look(spec) or Versions()
    return Fingerprint(python=found.python, torch=found.torch, driver=_driver())


def _driver() -> str:
    try:
        with open(_DRIVER, encoding="utf-8", errors="replace") as file:
            found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", file.readline())
    except OSError:
        return ""
    return found.group(1) if found else ""


GLANCE_S = 0.2
LAST_MOMENT_S = 0.5
AT_ONCE = 256
ANSWERED_AT_ONCE = 64
BACKLOG = 1024
SILENT = "no answer"
_T = TypeVar("_T")

log = logging.getLogger("mgpu.meeting")


class Meetings:
    """The meetings that this node takes part in. Owns their sockets and threads."""

    def __init__(
        self, node_id: NodeId, announced: str, wake: Callable[[], None], look: Look = lambda _: None
    ) -> None:
        """`look` returns what the processes of a launch will find."""
        self._node_id = node_id
        self._look = look
        self._announced = announced
        self._wake = wake
        self._ports = KeptPorts()
        self._waiting: dict[AttemptKey, _Lobby] = {}
        self._done: queue.SimpleQueue[Met] = queue.SimpleQueue()

    def open(self, spec: LaunchSpec) -> MeetingPoint:
        """Begin to wait for the other nodes of an attempt; return what they need to know, the same when asked
        again.
        """
        lobby = self._waiting.get(spec.key)
        if lobby is None:
            lobby = self._waiting[spec.key] = _Lobby(self._node_id, spec, self._look)
        has_first = any(task.rank == 0 for task in spec.tasks)
        return MeetingPoint(
            ways=ways_here(self._announced),
            port=lobby.port,
            master_port=self._ports.keep(spec.key) if has_first else 0,
        )

    def meet(self, message: Meet) -> None:
        """Visit the others; `take` returns the result."""
        lobby = self._waiting.get(message.key)
        if lobby is not None:
            lobby.begin(message, self._tell)

    def take(self) -> list[Met]:
        """Return the results since the last call, without those of meetings that have been closed."""
        found: list[Met] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._done.get_nowait())
        return [met for met in found if met.key in self._waiting]

    def leave(self, key: AttemptKey) -> None:
        """End the meeting of an attempt; the port of its rank 0 stays reserved."""
        if (lobby := self._waiting.pop(key, None)) is not None:
            lobby.close()

    def forget(self, key: AttemptKey) -> None:
        """End the meeting of an attempt, and release its port."""
        self.leave(key)
        self._ports.release(key)

    def close(self) -> None:
        """End all."""
        for key in list(self._waiting):
            self.leave(key)
        self._ports.close()

    def _tell(self, met: Met) -> None:
        self._done.put(met)
        self._wake()


class _Lobby:
    """One meeting on this node: where visitors are received, and from where the peers are visited."""

    def __init__(self, node_id: NodeId, spec: LaunchSpec, look: Look) -> None:
        self._node_id = node_id
        self._look = look
        self._spec = spec
        self._listener = _listen()
        self.port: int = self._listener.getsockname()[1]
        self._message: Meet | None = None
        self._is_over = threading.Event()

    def begin(self, message: Meet, tell: Callable[[Met], None]) -> None:
        """Answer visitors and visit the peers, in threads of their own; a second call starts over."""
        is_first, self._message = self._message is None, message
        if is_first:
            _in_thread(self._receive)
        _in_thread(lambda: self._visit_all(message, time.monotonic() + message.limit_s, tell))

    def close(self) -> None:
        """Answer nobody any more."""
        self._is_over.set()
        if self._message is None:
            self._listener.close()

    def _receive(self) -> None:
        self._listener.settimeout(GLANCE_S)
        with ThreadPoolExecutor(ANSWERED_AT_ONCE, "mgpu-meeting") as pool, self._listener:
            while not self._is_over.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = self._listener.accept()
                    pool.submit(self._answer, connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, Strange):
            assert self._message is not None
            connection.settimeout(self._message.limit_s)
            receive_visit(connection, self._message.secret, self._node_id)

    def _visit_all(self, message: Meet, until: float, tell: Callable[[Met], None]) -> None:
        """Try all ways at once; once every peer was reached by one, the rest get a last moment."""
        prints = _in_thread(lambda: fingerprint_of(self._spec, self._look))
        ways = [(peer, way) for peer in message.peers for way in peer.ways]
        todo: queue.SimpleQueue[tuple[Peer, Way]] = queue.SimpleQueue()
        for one in ways:
            todo.put(one)
        found: queue.SimpleQueue[Reached | Unreached] = queue.SimpleQueue()
        for _ in range(min(AT_ONCE, len(ways))):
            _in_thread(lambda: _go_on(todo, found, message.secret, until))
        results: list[Reached | Unreached] = []
        missing = {peer.node_id for peer in message.peers}
        enough_at = until
        while len(results) < len(ways) and (left_s := enough_at - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                one_result = found.get(timeout=left_s)
                results.append(one_result)
                if isinstance(one_result, Reached):
                    missing.discard(one_result.node_id)
                if not missing:
                    enough_at = min(enough_at, time.monotonic() + LAST_MOMENT_S)
        known = {(result.node_id, result.address) for result in results}
        late = [
            Unreached(peer.node_id, way.address, SILENT)
            for peer, way in ways
            if (peer.node_id, way.address) not in known
        ]
        fingerprint = next(iter(prints(max(0.0, until - time.monotonic()))), Fingerprint())
        if not self._is_over.is_set() and message is self._message:
            reached = tuple(result for result in results if isinstance(result, Reached))
            unreached = (*(result for result in results if isinstance(result, Unreached)), *late)
            tell(Met(key=message.key, reached=reached, unreached=unreached, fingerprint=fingerprint))


def _in_thread(work: Callable[[], _T]) -> Callable[[float], list[_T]]:
    """Start some work in a thread and return a function that waits for its result, empty if too late."""
    done: queue.SimpleQueue[_T] = queue.SimpleQueue()
    threading.Thread(target=lambda: done.put(work()), name="mgpu-meeting", daemon=True).start()

    def ask(timeout_s: float) -> list[_T]:
        try:
            return [done.get(timeout=timeout_s)]
        except queue.Empty:
            return []

    return ask


def _go_on(
    todo: queue.SimpleQueue[tuple[Peer, Way]],
    found: queue.SimpleQueue[Reached | Unreached],
    secret: bytes,
    until: float,
) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            found.put(_go(*todo.get_nowait(), secret, until))


def _go(peer: Peer, way: Way, secret: bytes, until: float) -> Reached | Unreached:
    """Try one way to a peer and tell whether it led there."""
    try:
        with socket.create_connection(
            (way.address, peer.port), timeout=max(0.05, until - time.monotonic())
        ) as connection:
            connection.settimeout(max(0.05, until - time.monotonic()))
            visit(connection, secret, peer.node_id)
    except TimeoutError:
        return Unreached(peer.node_id, way.address, SILENT)
    except (OSError, Strange) as error:
        return Unreached(peer.node_id, way.address, reason_of(error).lower())
    return Reached(peer.node_id, way.address)


def _listen() -> socket.socket:
    try:
        listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    except (OSError, ValueError):  # a machine without IPv6
        listener = socket.create_server(("", 0), backlog=BACKLOG)
    return listener
