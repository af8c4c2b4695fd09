"""The agent's socket for processes of its jobs: takes their parcels, hands out what came for their attempt. Decides nothing.

Whose a connection is follows from the secret that is its first frame (`job_secrets.py`) and from the user whom the kernel names;
nothing that a peer says of itself beyond that counts. The socket has a path in a directory that others can at most pass through.
What one attempt may do in a turn and in a while is bounded, so that no job holds up the agent's loop or the other jobs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Container
from pathlib import Path

import msgspec

from mgpu_agent.mpi.parcels import MAX_BYTES, SECRET_VARIABLE, SOCKET_VARIABLE, Delivered, Parcel
from mgpu_agent.process.job_secrets import JobSecrets
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.messages import Post
from mgpu_agent.run_as.account import Account

SOCKET_NAME = "jobs.sock"
MAX_CONNECTIONS = 4_096  # of all; one attempt may have half of them
MAX_NAMELESS = 64  # connections that have not shown their secret yet
NAMELESS_S = 2.0
EVENTS_PER_TURN = 64
ACCEPTED_PER_TURN = 16
PACE_S = 0.25
ACCEPTED_PER_PACE = 512
FRAMES_PER_PACE = 256  # of one attempt
BYTES_PER_PACE = 1024 * 1024


class _Connection:
    """A process that came."""

    def __init__(self, opened: socket.socket, uid: int, at: float) -> None:
        self.socket = opened
        self.uid = uid
        self.since = at
        self.key: AttemptKey | None = None
        """Whose it is, once its secret was right."""


class JobSocket:
    """One listening socket and the processes that came. Owns the descriptors."""

    def __init__(self, directory: Path, secrets: JobSecrets, *, for_all_users: bool = False) -> None:
        """`directory` must be the agent's own; `for_all_users` where jobs run as their users, who can pass through it."""
        self._directory = directory
        self._secrets = secrets
        self._mode = 0o666 if for_all_users else 0o600
        self._epoll = select.epoll()
        self._listener: socket.socket | None = None
        self._open: dict[int, _Connection] = {}
        self._nameless: dict[int, _Connection] = {}
        self._counts: Counter[AttemptKey] = Counter()
        self._most = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._pace_until = 0.0
        self._accepted = 0
        self._frames: Counter[AttemptKey] = Counter()
        self._bytes: Counter[AttemptKey] = Counter()
        self._paused: set[int] = set()

    def fileno(self) -> int:
        """Return the descriptor to poll for everything."""
        return self._epoll.fileno()

    def environment(self, key: AttemptKey, account: Account | None) -> dict[bytes, bytes]:
        """Return what the processes of an attempt need to come here, for their eyes only."""
        uid = os.geteuid() if account is None else account.uid
        path = os.fsencode(self._directory / SOCKET_NAME)
        return {SOCKET_VARIABLE.encode(): path, SECRET_VARIABLE.encode(): self._secrets.make(key, uid)}

    def listen(self) -> None:
        """Be there, in place of an agent that was there before."""
        if self._listener is not None:
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._bind(listener)
            listener.listen(128)
        except OSError:  # no room on the disk, say: the next attach tries again
            listener.close()
            return
        listener.setblocking(False)
        self._listener = listener
        self._epoll.register(listener, select.EPOLLIN)

    def serve(self, known: Container[AttemptKey]) -> list[Post]:
        """Take in who came and what they sent; only processes of `known` attempts are let in."""
        now = time.monotonic()
        if now >= self._pace_until:
            self._begin_pace(now, known)
        parcels: list[Post] = []
        # The kernel hands out what is ready in turns, so that nobody is passed over for ever.
        for descriptor, _ in self._epoll.poll(0, EVENTS_PER_TURN):
            if self._listener is not None and descriptor == self._listener.fileno():
                self._accept(self._listener, now, known)
            elif descriptor in self._nameless:
                self._admit(descriptor, known)
            elif (parcel := self._read(descriptor)) is not None:
                parcels.append(parcel)
        return parcels

    def deliver(self, key: AttemptKey, sender: str, data: bytes) -> None:
        """Hand this to all processes of the attempt that are here; one that does not read misses it."""
        frame = msgspec.msgpack.encode(Delivered(sender, data))
        for connection in list(self._open.values()):
            if connection.key == key:
                with contextlib.suppress(OSError):
                    connection.socket.send(frame)

    def close(self) -> None:
        """Let go of everything. The socket stays in its directory, for the next agent may have put its own there."""
        if self._listener is not None:
            self._listener.close()
        for descriptor in [*self._open, *self._nameless]:
            self._drop(descriptor)
        self._epoll.close()

    def _bind(self, listener: socket.socket) -> None:
        """Put the socket into its directory in one step, by the directory's descriptor: a Unix socket's path may have 108 bytes only."""
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        temporary = f".{SOCKET_NAME}.{os.getpid()}"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
            listener.bind(f"/proc/self/fd/{directory}/{temporary}")
            os.chmod(temporary, self._mode, dir_fd=directory)
            os.rename(temporary, SOCKET_NAME, src_dir_fd=directory, dst_dir_fd=directory)
        finally:
            os.close(directory)

    def _begin_pace(self, now: float, known: Container[AttemptKey]) -> None:
        """Give everybody a new share, and cut off those who came and say nothing or whose attempt is over."""
        self._pace_until = now + PACE_S
        self._accepted = 0
        self._frames.clear()
        self._bytes.clear()
        for descriptor in self._paused:
            self._epoll.register(descriptor, select.EPOLLIN)
        self._paused.clear()
        silent = [one for one, connection in self._nameless.items() if now >= connection.since + NAMELESS_S]
        over = {key for key in self._counts if key not in known}
        for descriptor in silent + [one for one, connection in self._open.items() if connection.key in over]:
            self._drop(descriptor)

    def _pause(self, descriptor: int) -> None:
        """Do not hear this one until the next share; a process that sends on has to wait."""
        self._epoll.unregister(descriptor)
        self._paused.add(descriptor)

    def _accept(self, listener: socket.socket, now: float, known: Container[AttemptKey]) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            if self._accepted >= ACCEPTED_PER_PACE:
                self._pause(listener.fileno())
                return
            try:
                opened, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    self._pause(listener.fileno())
                return
            self._accepted += 1
            if len(self._nameless) >= MAX_NAMELESS:
                self._drop_nameless()
            opened.setblocking(False)
            _, uid, _ = struct.unpack("3i", opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
            self._nameless[opened.fileno()] = _Connection(opened, uid, now)
            self._epoll.register(opened, select.EPOLLIN)
            self._admit(opened.fileno(), known)  # mostly its secret is there already

    def _drop_nameless(self) -> None:
        """Make room at the cost of the user who has most connections without a secret."""
        greediest, _ = Counter(connection.uid for connection in self._nameless.values()).most_common(1)[0]
        self._drop(next(one for one, connection in self._nameless.items() if connection.uid == greediest))

    def _admit(self, descriptor: int, known: Container[AttemptKey]) -> None:
        """Read the secret: the attempt that it names, as the user that it names, or nobody."""
        connection = self._nameless[descriptor]
        try:
            found = self._secrets.read(connection.socket.recv(MAX_BYTES))
        except BlockingIOError:
            return
        except OSError:
            found = None
        if found is not None and found[1] == connection.uid and found[0] in known:
            key = found[0]
            if len(self._open) < self._most and self._counts[key] < self._most // 2:
                connection.key = key
                self._counts[key] += 1
                self._open[descriptor] = self._nameless.pop(descriptor)
                return
        self._drop(descriptor)

    def _read(self, descriptor: int) -> Post | None:
        connection = self._open.get(descriptor)
        if connection is None or connection.key is None:
            return None
        key = connection.key
        if self._frames[key] >= FRAMES_PER_PACE or self._bytes[key] >= BYTES_PER_PACE:
            self._pause(descriptor)
            return None
        try:
            frame = connection.socket.recv(2 * MAX_BYTES)
            parcel = msgspec.msgpack.decode(frame, type=Parcel) if frame else None
        except BlockingIOError:
            return None
        except (OSError, msgspec.DecodeError):
            parcel = None
        if parcel is None or len(parcel.data) > MAX_BYTES:
            self._drop(descriptor)
            return None
        self._frames[key] += 1
        self._bytes[key] += len(frame)
        return Post(key=key, to=NodeId(parcel.to), data=parcel.data)

    def _drop(self, descriptor: int) -> None:
        connection = self._open.pop(descriptor, None) or self._nameless.pop(descriptor)
        if connection.key is not None:
            self._counts[connection.key] -= 1
            if not self._counts[connection.key]:
                del self._counts[connection.key]
        self._paused.discard(descriptor)
        with contextlib.suppress(OSError):
            self._epoll.unregister(connection.socket)
        connection.socket.close()
