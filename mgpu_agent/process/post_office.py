"""The agent's door for processes of its jobs: takes their parcels, hands out what came for their attempt. Decides nothing.

A process is known by the kernel's word for its pid and by the marker that the keeper gave it. The socket has no path, so that jobs
that run as other users reach it, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct

import msgspec

from mgpu_agent.keeper.trees import read_marker
from mgpu_agent.mpi.parcels import MAX_BYTES, Delivered, Parcel, job_socket
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import Post

MAX_CONNECTIONS = 4_096


class PostOffice:
    """One listening socket and the processes that came. Owns the descriptors."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._listener: socket.socket | None = None
        self._ledger_id = ""
        self._open: dict[int, tuple[AttemptKey, socket.socket]] = {}

    def fileno(self) -> int:
        """Return the descriptor to poll for everything."""
        return self._epoll.fileno()

    def listen(self, ledger_id: str) -> None:
        """Be there for the jobs of this ledger."""
        if self._listener is not None and ledger_id == self._ledger_id:
            return
        self._drop_listener()
        self._ledger_id = ledger_id
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind("\0" + job_socket(ledger_id))
            listener.listen(128)
        except OSError:  # an agent that is about to end has it: the next attach tries again
            listener.close()
            return
        listener.setblocking(False)
        self._listener = listener
        self._epoll.register(listener, select.EPOLLIN)

    def serve(self) -> list[Post]:
        """Take in who came and what they sent."""
        parcels: list[Post] = []
        for descriptor, _ in self._epoll.poll(0):
            if self._listener is not None and descriptor == self._listener.fileno():
                self._accept(self._listener)
            elif (parcel := self._read(descriptor)) is not None:
                parcels.append(parcel)
        return parcels

    def deliver(self, key: AttemptKey, sender: str, data: bytes) -> None:
        """Hand this to all processes of the attempt that are here; one that does not read misses it."""
        frame = msgspec.msgpack.encode(Delivered(sender, data))
        for known, connection in list(self._open.values()):
            if known == key:
                with contextlib.suppress(OSError):
                    connection.send(frame)

    def close(self) -> None:
        """Let go of everything."""
        self._drop_listener()
        for descriptor in list(self._open):
            self._drop(descriptor)
        self._epoll.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, _, _ = struct.unpack("3i", credentials)
        key = key_of(read_marker(pid), self._ledger_id)
        if key is None or len(self._open) >= MAX_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        self._open[connection.fileno()] = (key, connection)
        self._epoll.register(connection, select.EPOLLIN)

    def _read(self, descriptor: int) -> Post | None:
        known = self._open.get(descriptor)
        if known is None:
            return None
        key, connection = known
        try:
            frame = connection.recv(2 * MAX_BYTES)
            parcel = msgspec.msgpack.decode(frame, type=Parcel) if frame else None
        except BlockingIOError:
            return None
        except (OSError, msgspec.DecodeError):
            parcel = None
        if parcel is None or len(parcel.data) > MAX_BYTES:
            self._drop(descriptor)
            return None
        return Post(key=key, to=NodeId(parcel.to), data=parcel.data)

    def _drop(self, descriptor: int) -> None:
        _, connection = self._open.pop(descriptor)
        with contextlib.suppress(OSError):
            self._epoll.unregister(connection)
        connection.close()

    def _drop_listener(self) -> None:
        if self._listener is not None:
            self._epoll.unregister(self._listener)
            self._listener.close()
            self._listener = None


def key_of(marker: bytes, ledger_id: str) -> AttemptKey | None:
    """Return the attempt that a marker of this ledger names."""
    try:
        ledger, key, _ = os.fsdecode(marker).split("/")
        job_id, attempt, epoch = key.split(".")
        return AttemptKey(JobId(job_id), int(attempt), int(epoch)) if ledger == ledger_id else None
    except ValueError:
        return None
