"""One ZeroMQ connection to the master, CURVE on: frames out, frames and rises and falls in. Decides nothing.

A DEALER reconnects without a word, and a master that restarted must be greeted again. So a connection that falls is reported and
thrown away; the next one is a new socket. Until it is up for the first time, libzmq itself keeps trying.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from mgpu_agent.protocol.failpoints import reach

_HEARTBEAT_MS = 2_000
_HEARTBEAT_TIMEOUT_MS = 10_000
_RECONNECT_MS = (100, 2_000)
_HANDSHAKE_MS = 10_000
_FAREWELL_MS = 200
_RECEIVE_AT_ONCE = 256
_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_DISCONNECTED
)


class Target(msgspec.Struct, frozen=True):
    """Where the master listens and the key that proves it is the one."""

    address: str
    server_key: str


class KeyPair(msgspec.Struct, frozen=True):
    """A CURVE key pair in Z85."""

    public: str
    secret: str


class LinkEvent(msgspec.Struct, frozen=True):
    """The connection rose, or fell and is of no more use."""

    is_up: bool
    keys_refused: bool = False
    hung_up: bool = False
    """It was never up: broken in the middle of the handshake, by the network or by a master under another key."""


class Link:
    """The present connection, if there is one. Owns the ZeroMQ context and its sockets."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None

    @property
    def sockets(self) -> tuple[zmq.Socket[bytes], ...]:
        """Return what is to be polled for input."""
        return () if self._socket is None or self._monitor is None else (self._socket, self._monitor)

    def open(self, target: Target, keys: KeyPair) -> None:
        """Begin to connect; an older connection and all that it had not sent yet is dropped."""
        self.drop()
        connection: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        connection.set(zmq.LINGER, 0)
        connection.set(zmq.SNDHWM, 0)  # what may be under way is bounded by the output window and the number of tasks
        connection.set(zmq.RCVHWM, 0)
        connection.set(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        connection.set(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS)
        connection.set(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        connection.set(zmq.RECONNECT_IVL, _RECONNECT_MS[0])
        connection.set(zmq.RECONNECT_IVL_MAX, _RECONNECT_MS[1])
        connection.set(zmq.IPV6, "[" in target.address)
        connection.curve_publickey = keys.public.encode()
        connection.curve_secretkey = keys.secret.encode()
        connection.curve_serverkey = target.server_key.encode()
        self._monitor = connection.get_monitor_socket(_EVENTS)
        self._socket = connection
        connection.connect(target.address)

    def drop(self) -> None:
        """Close the present connection at once."""
        self._close_sockets(linger_ms=0)

    def close(self) -> None:
        """Close connection and context, giving the last words a moment to leave."""
        self._close_sockets(linger_ms=_FAREWELL_MS)
        self._context.term()

    def _close_sockets(self, linger_ms: int) -> None:
        if self._socket is None or self._monitor is None:
            return
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)
        self._socket = self._monitor = None

    def events(self) -> Iterator[LinkEvent]:
        """Yield what happened to the connection since the last call."""
        monitor = self._monitor
        while monitor is not None and monitor is self._monitor and monitor.poll(0):
            event = recv_monitor_message(monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                yield LinkEvent(is_up=True)
            else:
                hung_up = event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
                yield LinkEvent(is_up=False, keys_refused=not hung_up and event != zmq.EVENT_DISCONNECTED, hung_up=hung_up)

    def receive(self) -> list[memoryview]:
        """Return the frames that have arrived, up to a bound, in the memory in which they arrived."""
        frames: list[memoryview] = []
        connection = self._socket
        if connection is None:
            return frames
        for _ in range(_RECEIVE_AT_ONCE):
            try:
                frames += [frame.buffer for frame in connection.recv_multipart(zmq.NOBLOCK, copy=False)]
            except zmq.Again:
                break
        if frames:
            reach("agent.receive")
        return frames

    def send(self, frames: list[bytes]) -> None:
        """Send frames as one message; without a connection they are dropped, and told anew on the next one."""
        if self._socket is not None:
            reach("agent.send.before")
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
            reach("agent.send.after")
