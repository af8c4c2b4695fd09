"""One ZeroMQ connection to the master, with CURVE: sends and receives frames, reports rises and falls.

Decides nothing. A DEALER reconnects silently, but a master that restarted must be greeted again. So a
connection that falls is reported and thrown away, and the next one is a new socket. Until it is up for the
first time, libzmq itself keeps trying. What is sent between two waits is gathered into few messages: output
first, then the ends that follow it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from mgpu_agent.process.output import OutputShipper
from mgpu_agent.protocol import codec
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.messages import ToMaster

_HEARTBEAT_MS = 2_000
_HEARTBEAT_TIMEOUT_MS = 10_000
_RECONNECT_MS = (100, 2_000)
_CONNECT_MS = 4_000  # the system asks again after 1, 3, 7, 15, 31 s …: after a long cut for too long
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
    """Where the master listens, and the public key that it must prove to have."""

    address: str
    server_key: str


class KeyPair(msgspec.Struct, frozen=True):
    """A CURVE key pair in Z85."""

    public: str
    secret: str


class LinkEvent(msgspec.Struct, frozen=True):
    """The connection rose, or fell and cannot be used any more."""

    is_up: bool
    keys_refused: bool = False
    hung_up: bool = False
    """It was never up: it broke during the handshake, by the network or a master under another key."""


class Link:
    """The present connection, if there is one. Owns the ZeroMQ context and its sockets."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None

    @property
    def sockets(self) -> tuple[zmq.Socket[bytes], ...]:
        """Return the sockets to poll for input."""
        return () if self._socket is None or self._monitor is None else (self._socket, self._monitor)

    def open(self, target: Target, keys: KeyPair) -> None:
        """Begin to connect; an older connection is dropped with all that it has not sent yet."""
        self.drop()
        connection: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        connection.set(zmq.LINGER, 0)
        connection.set(
            zmq.SNDHWM, 0
        )  # what may be under way is bounded by the output window and the number of tasks
        connection.set(zmq.RCVHWM, 0)
        connection.set(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        connection.set(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS)
        connection.set(zmq.CONNECT_TIMEOUT, _CONNECT_MS)
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
        """Close connection and context, after a moment for the last messages to leave."""
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
                yield LinkEvent(
                    is_up=False, keys_refused=not hung_up and event != zmq.EVENT_DISCONNECTED, hung_up=hung_up
                )

    def receive(self) -> list[memoryview]:
        """Return the frames that have arrived, up to a bound, without copying them."""
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
        """Send frames as one message; without a connection drop them: the next one reports them again."""
        if self._socket is not None:
            reach("agent.send.before")
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
            reach("agent.send.after")


_BATCH_FRAMES = 256
_BATCH_BYTES = 1024 * 1024
_SHIP_AT_ONCE_BYTES = 4 * 1024 * 1024  # then the loop attends to everything else


class Outbox:
    """Messages that wait for the end of a turn. Those that a lost connection did not send are told again
    on the next one.
    """

    def __init__(self, link: Link, shipper: OutputShipper) -> None:
        self._link = link
        self._shipper = shipper
        self._messages: list[ToMaster] = []

    def put(self, message: ToMaster) -> None:
        """Add a message."""
        self._messages.append(message)

    def clear(self) -> None:
        """Drop all messages."""
        self._messages.clear()

    def flush(self, epoch: int, *, may_ship: bool) -> None:
        """Send all messages, after as much output as fits into one turn."""
        batch: list[bytes] = []
        size = shipped = 0
        if may_ship:
            for chunk in self._shipper.chunks(time.monotonic()):
                batch.append(codec.encode(chunk, epoch))
                size += len(chunk.data)
                shipped += len(chunk.data)
                if size >= _BATCH_BYTES or len(batch) >= _BATCH_FRAMES:
                    self._link.send(batch)
                    batch, size = [], 0
                if shipped >= _SHIP_AT_ONCE_BYTES:
                    break
        for message in self._messages:
            batch.append(codec.encode_to_master(message, epoch))
            size += len(batch[-1])
            # A message arrives whole or not at all: large parts must not wait for each other.
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_FRAMES:
                self._link.send(batch)
                batch, size = [], 0
        self._messages.clear()
        if batch:
            self._link.send(batch)
