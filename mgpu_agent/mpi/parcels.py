"""How processes of one job on different nodes reach each other: small messages through their agents and the
master.

A message may be lost or come twice; whoever needs an answer asks again. The first frame of a connection is
the secret of the attempt; an agent that does not know it hangs up.

An order is what a launcher on the first node asks of the other nodes. It is repeated under one number until
it is over; the other side starts it once and reports its standing.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import Annotated

import msgspec


class RunOrder(msgspec.Struct, frozen=True, tag="run"):
    """Run this under a shell, as ssh would, unless it was done already, and report its standing."""

    number: str
    text: str


class EndOrder(msgspec.Struct, frozen=True, tag="end"):
    """End this order: its launcher is gone."""

    number: str


class Standing(msgspec.Struct, frozen=True, tag="standing"):
    """The state of an order; no code while it runs."""

    number: str
    code: int | None = None


Message = RunOrder | EndOrder | Standing
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def pack(message: Message) -> bytes:
    """Return a message as bytes."""
    return msgspec.msgpack.encode(message)


def unpack(data: bytes) -> Message | None:
    """Return bytes as a message, or None if they are none."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None


SOCKET_VARIABLE = "MGPU_JOB_SOCKET"
SECRET_VARIABLE = "MGPU_JOB_SECRET"  # noqa: S105 - a name
MAX_BYTES = 60 * 1024
CONNECT_AGAIN_S = 0.2
SEND_S = 5.0


class Parcel(msgspec.Struct, frozen=True):
    """What a process gives its agent: for all processes of the same attempt on that node."""

    to: Annotated[str, msgspec.Meta(max_length=63)]
    data: bytes


class Delivered(msgspec.Struct, frozen=True):
    """What an agent gives the processes of an attempt."""

    sender: str
    data: bytes


class Mailbox:
    """A process's connection to its agent; opened again when the agent was away."""

    def __init__(self, path: str | None = None, secret: str | None = None) -> None:
        self._path = os.environ.get(SOCKET_VARIABLE, "") if path is None else path
        self._secret = os.environ.get(SECRET_VARIABLE, "") if secret is None else secret
        self._socket: socket.socket | None = None

    def send(self, to: str, data: bytes) -> bool:
        """Send once; tell whether the agent accepted it."""
        if len(data) > MAX_BYTES or not self._connect():
            return False
        assert self._socket is not None
        try:
            self._socket.send(msgspec.msgpack.encode(Parcel(to, data)))
        except OSError:
            self.close()
            return False
        return True

    def receive(self, timeout_s: float) -> Delivered | None:
        """Return the next message, or None after the timeout."""
        give_up_at = time.monotonic() + timeout_s
        while (left_s := give_up_at - time.monotonic()) > 0:
            if not self._connect():
                time.sleep(min(left_s, CONNECT_AGAIN_S))
                continue
            assert self._socket is not None
            if not select.select([self._socket], [], [], left_s)[0]:
                return None
            try:
                frame = self._socket.recv(2 * MAX_BYTES)
                if frame:
                    return msgspec.msgpack.decode(frame, type=Delivered)
            except (OSError, msgspec.DecodeError):
                pass
            self.close()
            time.sleep(
                max(0.0, min(give_up_at - time.monotonic(), CONNECT_AGAIN_S))
            )  # the agent hung up: do not hurry
        return None

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> bool:
        if self._socket is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                _connect(connection, self._path)
                connection.settimeout(SEND_S)
                connection.send(os.fsencode(self._secret))
            except OSError:
                connection.close()
                return False
            self._socket = connection
        return True


def _connect(connection: socket.socket, path: str) -> None:
    """Connect by the directory's descriptor, because a Unix socket's path has at most 108 bytes; O_PATH
    needs no permission to list it.
    """
    directory, name = os.path.split(path)
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)
