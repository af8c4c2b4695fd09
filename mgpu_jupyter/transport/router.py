"""The master's end of the link: a ROUTER with CURVE and an allow-list of keys. Carries frames, decides
nothing about them.

Theory of operation. The ROUTER numbers its connections; no agent names its own. ZAP accepts a known key, and
every frame of that connection carries the key (User-Id), whatever the frame says; the name that the key is
bound to is looked up for each message, so that a key that was removed from the list belongs to nobody from
its very next frame. The ZAP socket is up before the link is bound, so that no connection is accepted
unchecked. All sockets belong to the master's thread; `wake` may be called from any.

The monitor reports at once that a connection ended, by the number of its descriptor, which frames carry, too.
The system gives that number to the next connection. This thread accepts connections, and it reads the monitor
before it answers: so the end of the earlier connection is known by then.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import threading
import time

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from mgpu_agent.protocol.addresses import link_address
from mgpu_agent.protocol.codec import MAX_FRAME_BYTES
from mgpu_agent.protocol.errors import InvalidRequest, Unavailable
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.text import printable
from mgpu_jupyter.master.node_link import Incoming

log = logging.getLogger("mgpu.link")

ZAP_ADDRESS = "inproc://zeromq.zap.01"
ZAP_DOMAIN = b"mgpu"
HEARTBEAT_MS = 2_000
HEARTBEAT_TIMEOUT_MS = 10_000
LINGER_MS = 500
HANDSHAKE_MS = 10_000  # a connection that says nothing for this long is dropped
BACKLOG = 1_024
RECEIVE_AHEAD = 32
"""Messages of one connection that wait to be read; more stay with their node."""
RECEIVE_BYTES = 64 * 1024 * 1024
"""Read at once: more waits for the next turn."""
# Logged once each: an attacker must not fill the log. Past this many keys only a counter goes on.
REFUSALS_REMEMBERED = 1_000
NOT_ENROLLED = "its key is not enrolled"
REFUSALS_SHOWN_S = 600.0
ADDRESSES_SHOWN = 8
JOIN_AGAIN = "start its mgpu_node with a line of `mgpu join-token`"
KEY_BYTES = 32
_WRONG_SERVER_KEY = 0x11000001  # ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC


class Router:
    """Owns the ZeroMQ context and sockets of the link."""

    def __init__(self, *, public_key: str, secret_key: str) -> None:
        self._context = zmq.Context(io_threads=1)
        self._names: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._former: dict[str, tuple[str, str]] = {}
        """Keys that were removed from the list: whose they were, and why they are refused."""
        self._told: set[str] = set()
        self._turned_away: dict[str, tuple[float, str]] = {}
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind(ZAP_ADDRESS)
        self._socket = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.CURVE_SERVER, 1),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, RECEIVE_AHEAD),
            (zmq.MAXMSGSIZE, MAX_FRAME_BYTES),
            (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS),
            (zmq.LINGER, LINGER_MS),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
            (zmq.BACKLOG, BACKLOG),
            (zmq.TCP_KEEPALIVE, 1),
        ):
            self._socket.setsockopt(option, value)
        self._socket.curve_publickey = public_key.encode()
        self._socket.curve_secretkey = secret_key.encode()
        self._socket.zap_domain = ZAP_DOMAIN
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
            | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            | zmq.EVENT_DISCONNECTED
        )
        self._routes: dict[int, bytes] = {}
        """The connection of each descriptor, and the reverse."""
        self._descriptors: dict[bytes, int] = {}
        self._ended: list[bytes] = []
        self._over: set[bytes] = set()
        """Connections that ended and may have left something to read."""
        # Held by `wake` and `close`, so that no late call writes into a descriptor that has been reused.
        self._wake_lock = threading.Lock()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller = zmq.Poller()
        for source in (self._socket, self._zap, self._monitor, self._wake_fd):
            self._poller.register(source, zmq.POLLIN)

    def bind(self, host: str, port: int) -> int:
        """Listen on this address and return the port (a free one for 0)."""
        try:
            self._socket.setsockopt(zmq.IPV6, ":" in host)
            if port == 0:
                return int(self._socket.bind_to_random_port(f"tcp://{host}"))
            self._socket.bind(link_address(host, port))
        except zmq.ZMQError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV):
                raise InvalidRequest(
                    "no-such-address",
                    f"{host} is no address of this machine: see `ip address` for those it has.",
                ) from error
            raise Unavailable(
                "link-port", f"The link port {port} on {host} cannot be used ({error}): end what uses it."
            ) from error
        return port

    def wait(self, timeout_s: float) -> None:
        """Return when something arrives, when woken, or after the timeout; answers new connections."""
        ready = dict(self._poller.poll(max(0, round(timeout_s * 1_000))))
        if self._wake_fd in ready:
            os.eventfd_read(self._wake_fd)
        if self._monitor in ready or self._zap in ready:
            self._read_monitor()
        if self._zap in ready:
            self._answer_zap()

    def wake(self) -> None:
        """End a `wait`; may be called from any thread."""
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def receive(self, limit: int) -> list[Incoming]:
        """Return what has arrived, at most `limit` messages, without waiting."""
        messages: list[Incoming] = []
        size = 0
        while len(messages) < limit and size < RECEIVE_BYTES:
            try:
                route, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._over.clear()
                break
            if not frames:
                continue
            size += sum(map(len, frames))
            key = str(frames[0].get("User-Id"))
            name = self._names.get(key)
            # Routes that the ROUTER assigns begin with a zero byte, which an agent cannot choose.
            if route.bytes[:1] != b"\0":
                self._tell_once(
                    f"route {name}", f"Frames of {name} are dropped: it chose its own routing id."
                )
                continue
            if route.bytes not in self._descriptors and route.bytes not in self._over:
                self._know(route.bytes, int(frames[0].get(zmq.SRCFD)))
            whose, refusal = (name, "") if name is not None else self._former.get(key, ("", NOT_ENROLLED))
            messages.append(Incoming(whose, route.bytes, [frame.buffer for frame in frames], refusal))
        return messages

    def send(self, route: bytes, frames: list[bytes]) -> bool:
        """Send to a connection; False when it is gone."""
        reach("link.send.before")
        try:
            self._socket.send_multipart(
                [route, *frames], zmq.NOBLOCK, copy=False
            )  # small ones are copied in any case
        except zmq.ZMQError as error:
            if error.errno in (errno.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        reach("link.send.after")
        return True

    def take_ended(self) -> list[bytes]:
        """Return the connections that ended since the last call; what they sent before may still come."""
        ended, self._ended = self._ended, []
        return ended

    def _know(self, route: bytes, descriptor: int) -> None:
        self._descriptors.pop(self._routes.get(descriptor, b""), None)
        self._routes[descriptor] = route
        self._descriptors[route] = descriptor

    def allow(self, public_key: str, user_id: str) -> None:
        """Accept this key under this name, in place of the key that had the name before."""
        key = _checked(public_key)
        if self._keys.get(user_id) not in (None, key):
            self.forbid(user_id, f"the name {user_id} has another key by now")
        self._former.pop(key, None)
        self._keys[user_id] = key
        self._names[key] = user_id

    def forbid(self, user_id: str, why: str) -> None:
        """Remove the key of this name from the list; its connections are refused from their next frame on."""
        key = self._keys.pop(user_id, None)
        if key is not None:
            del self._names[key]
            self._former[key] = (user_id, why)

    def remember(self, public_key: str, user_id: str, why: str) -> None:
        """Note why a key that is not on the list is refused, so that the log can say so."""
        self._former[_checked(public_key)] = (user_id, why)

    def holder(self, public_key: str) -> str | None:
        """Return the name that this key is bound to; raises ValueError if it is not a key."""
        return self._names.get(_checked(public_key))

    def knows(self, user_id: str) -> bool:
        """Tell whether a key is bound to this name."""
        return user_id in self._keys

    def turned_away(self) -> tuple[str, ...]:
        """Return who was refused recently, as sentences; may be called from any thread."""
        since = time.monotonic() - REFUSALS_SHOWN_S
        return tuple(sentence for at, sentence in self._turned_away.copy().values() if at >= since)

    def _turn_away(self, address: str, why: str) -> None:
        self._turned_away.pop(address, None)
        while len(self._turned_away) >= ADDRESSES_SHOWN:
            del self._turned_away[next(iter(self._turned_away))]
        sentence = (
            f"A program at {address} was turned away from the link, since {why}: if it is a node of "
            f"yours, {JOIN_AGAIN}."
        )
        self._turned_away[address] = (time.monotonic(), sentence)

    def close(self) -> None:
        """Send what is left, then close."""
        self._poller = zmq.Poller()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close()
        self._zap.close(0)
        self._context.term()
        with self._wake_lock:
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _answer_zap(self) -> None:
        while True:
            try:
                version, request_id, domain, address, _, mechanism, *credentials = self._zap.recv_multipart(
                    zmq.NOBLOCK
                )
            except zmq.Again:
                return
            raw = credentials[0] if mechanism == b"CURVE" and domain == ZAP_DOMAIN and credentials else b""
            key = z85.encode(raw).decode() if len(raw) == KEY_BYTES else ""
            if key not in self._names:
                _, why = self._former.get(key, ("", NOT_ENROLLED))
                self._turn_away(address.decode(), why)
                self._tell_once(
                    f"key {key}",
                    f"A connection from {address.decode()} was refused: {why} (key {key or 'missing'}).",
                )
                self._zap.send_multipart([version, request_id, b"400", b"unknown key", b"", b""])
            else:
                self._zap.send_multipart([version, request_id, b"200", b"OK", key.encode(), b""])

    def _read_monitor(self) -> None:
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor, zmq.NOBLOCK)
            if event["event"] == zmq.EVENT_DISCONNECTED:
                if (route := self._routes.pop(int(event["value"]), None)) is not None:
                    del self._descriptors[route]
                    self._ended.append(route)
                    self._over.add(route)
                continue
            wrong_key = (
                event["event"] == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
                and int(event["value"]) == _WRONG_SERVER_KEY
            )
            # One without CURVE appears as a mismatch or as a broken connection, depending on which side
            # notices first.
            why = (
                "it was encrypted for another server key"
                if wrong_key
                else "it did not use CURVE, or broke off its handshake"
            )
            self._tell_once(f"handshake {why}", f"A connection to the link was refused: {why}.")

    def _tell_once(self, what: str, sentence: str) -> None:
        if what not in self._told and len(self._told) < REFUSALS_REMEMBERED:
            self._told.add(what)
            log.warning("%s Further ones like it are not logged.", printable(sentence))


def _checked(public_key: str) -> str:
    """Return a key in Z85 as ZAP shows it; raises ValueError if it is not one."""
    try:
        key = z85.decode(public_key.encode())
    except (KeyError, struct.error) as error:
        raise ValueError(public_key) from error
    if len(key) != KEY_BYTES:
        raise ValueError(public_key)
    return z85.encode(key).decode()
