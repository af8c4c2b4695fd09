"""The master's end of the link: a ROUTER with CURVE and an allow-list of keys. Carries frames, decides nothing about them.

Theory of operation. The ROUTER numbers its connections; no agent names its own. ZAP answers a known key with the name that it is
bound to, and every frame of that connection carries the name (User-Id), whatever the frame says. The ZAP socket is up before the
link is bound, so that no connection is ever let in unasked. All sockets belong to the master's thread; `wake` may come from any.
"""

from __future__ import annotations

import errno
import logging
import os
import threading

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from mgpu_agent.protocol.codec import MAX_FRAME_BYTES
from mgpu_agent.protocol.errors import Unavailable
from mgpu_jupyter.master.ports import Incoming

log = logging.getLogger("mgpu.link")

ZAP_ADDRESS = "inproc://zeromq.zap.01"
ZAP_DOMAIN = b"mgpu"
HEARTBEAT_MS = 2_000
HEARTBEAT_TIMEOUT_MS = 10_000
LINGER_MS = 500
# Told once each: an attacker must not fill the log. Past this many keys only a counter goes on.
REFUSALS_REMEMBERED = 1_000
_WRONG_SERVER_KEY = 0x11000001  # ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC


class Router:
    """Owns the ZeroMQ context and sockets of the link."""

    def __init__(self, *, public_key: str, secret_key: str) -> None:
        self._context = zmq.Context(io_threads=1)
        self._names: dict[bytes, str] = {}
        self._keys: dict[str, bytes] = {}
        self._told: set[str] = set()
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind(ZAP_ADDRESS)
        self._socket = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.CURVE_SERVER, 1),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.SNDHWM, 0),
            (zmq.MAXMSGSIZE, MAX_FRAME_BYTES),
            (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS),
            (zmq.LINGER, LINGER_MS),
            (zmq.TCP_KEEPALIVE, 1),
        ):
            self._socket.setsockopt(option, value)
        self._socket.curve_publickey = public_key.encode()
        self._socket.curve_secretkey = secret_key.encode()
        self._socket.zap_domain = ZAP_DOMAIN
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        # Taken by `wake` and `close`, so that no late call writes into a descriptor that means something else by then.
        self._wake_lock = threading.Lock()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller = zmq.Poller()
        for source in (self._socket, self._zap, self._monitor, self._wake_fd):
            self._poller.register(source, zmq.POLLIN)

    def bind(self, host: str, port: int) -> int:
        """Listen on this address and return the port (a free one for 0)."""
        try:
            if port == 0:
                return int(self._socket.bind_to_random_port(f"tcp://{host}"))
            self._socket.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            raise Unavailable("link-port", f"The link port {port} on {host} cannot be used ({error}): end what uses it.") from error
        return port

    def wait(self, timeout_s: float) -> None:
        """Return when something came, when woken, or after the time; connections that knock are answered here."""
        ready = dict(self._poller.poll(max(0, round(timeout_s * 1_000))))
        if self._wake_fd in ready:
            os.eventfd_read(self._wake_fd)
        if self._zap in ready:
            self._answer_zap()
        if self._monitor in ready:
            self._read_monitor()

    def wake(self) -> None:
        """End a `wait`; may be called from any thread."""
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def receive(self, limit: int) -> list[Incoming]:
        """Return what came, at most `limit` messages, without waiting."""
        messages: list[Incoming] = []
        while len(messages) < limit:
            try:
                route, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            if not frames:
                continue
            name = frames[0].get("User-Id")
            # Numbers that the ROUTER gives out begin with a zero byte, which an agent cannot choose.
            if route.bytes[:1] != b"\0":
                self._tell_once(f"route {name}", f"Frames of {name} are dropped: it chose its own routing id.")
                continue
            messages.append(Incoming(str(name), route.bytes, [frame.buffer for frame in frames]))
        return messages

    def send(self, route: bytes, frames: list[bytes]) -> bool:
        """Send to a connection; False when it is gone."""
        try:
            self._socket.send_multipart([route, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (errno.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def allow(self, public_key: str, user_id: str) -> None:
        """Let this key in under this name, in place of the key that had the name before."""
        key = z85.decode(public_key.encode())
        before = self._keys.get(user_id)
        if before is not None:
            self._names.pop(before, None)
        self._keys[user_id] = key
        self._names[key] = user_id

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
                version, request_id, domain, address, _, mechanism, *credentials = self._zap.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            key = credentials[0] if mechanism == b"CURVE" and domain == ZAP_DOMAIN and credentials else b""
            name = self._names.get(key)
            if name is None:
                shown = z85.encode(key).decode() if len(key) == 32 else "no key"
                self._tell_once(f"key {shown}", f"A connection from {address.decode()} was refused: its key {shown} is not enrolled.")
                self._zap.send_multipart([version, request_id, b"400", b"unknown key", b"", b""])
            else:
                self._zap.send_multipart([version, request_id, b"200", b"OK", name.encode(), b""])

    def _read_monitor(self) -> None:
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor, zmq.NOBLOCK)
            wrong_key = event["event"] == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and int(event["value"]) == _WRONG_SERVER_KEY
            # One without CURVE is seen as a mismatch or as a connection that broke off, whichever side notices first.
            why = "it was encrypted for another server key" if wrong_key else "it did not use CURVE, or broke off its handshake"
            self._tell_once(f"handshake {why}", f"A connection to the link was refused: {why}.")

    def _tell_once(self, what: str, sentence: str) -> None:
        if what not in self._told and len(self._told) < REFUSALS_REMEMBERED:
            self._told.add(what)
            log.warning("%s Further ones like it are not logged.", sentence)
