"""The agent's socket for processes of its jobs: accepts their parcels, delivers those for their attempt.
Decides nothing.

To whom a connection belongs follows from the secret in its first frame and from the user that the kernel
names; nothing else that a peer says of itself counts. The socket has a path in a directory that others can at
most pass through. What one attempt may do in a turn and in an interval is bounded, so that no job holds up
the agent's loop or the other jobs.

A secret consists of the attempt, the account that it runs as, and a code (HMAC-SHA256) over both under the
node's key: so it outlives the agent, and nobody else can make one. It is never logged, never written to the
ledger and never an argument of a command.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import resource
import secrets
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Container
from pathlib import Path

import msgspec

from mgpu_agent.mpi.parcels import MAX_BYTES, SECRET_VARIABLE, SOCKET_VARIABLE, Delivered, Parcel
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import Post
from mgpu_agent.protocol.places import make_private_dir, read_private_file, write_private_file
from mgpu_agent.run_as.account import Account

KEY_BYTES = 32


class JobSecrets:
    """Makes and checks the secrets of one node."""

    def __init__(self, node_directory: Path) -> None:
        path = make_private_dir(node_directory / "keys") / "jobs"
        key = read_private_file(path) if path.exists() else b""
        if len(key) != KEY_BYTES:
            key = secrets.token_bytes(KEY_BYTES)
            write_private_file(path, key)
        self._key = key

    def make(self, key: AttemptKey, uid: int) -> bytes:
        """Return the secret of an attempt whose processes run as this user."""
        about = f"{key}.{uid}"
        return f"{about}.{hmac.digest(self._key, about.encode(), 'sha256').hex()}".encode()

    def read(self, secret: bytes) -> tuple[AttemptKey, int] | None:
        """Return the attempt of a secret, and the user that it runs as; None if this node did not make it."""
        try:
            job_id, attempt, epoch, uid, _ = secret.decode("ascii").split(".")
            key, user = AttemptKey(JobId(job_id), int(attempt), int(epoch)), int(uid)
        except ValueError:
            return None
        return (key, user) if hmac.compare_digest(self.make(key, user), secret) else None


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
    """One connected process."""

    def __init__(self, opened: socket.socket, uid: int, at: float) -> None:
        self.socket = opened
        self.uid = uid
        self.since = at
        self.key: AttemptKey | None = None
        """Its attempt, once its secret was checked."""


class JobSocket:
    """One listening socket and its connections. Owns the descriptors."""

    def __init__(self, directory: Path, secrets: JobSecrets, *, for_all_users: bool = False) -> None:
        """`directory` is the agent's own; `for_all_users` where jobs run as users who can only pass through
        it.
        """
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
        """Return the environment by which the processes of an attempt reach this socket; it is secret."""
        uid = os.geteuid() if account is None else account.uid
        path = os.fsencode(self._directory / SOCKET_NAME)
        return {SOCKET_VARIABLE.encode(): path, SECRET_VARIABLE.encode(): self._secrets.make(key, uid)}

    def listen(self) -> None:
        """Listen, in place of an earlier agent."""
        if self._listener is not None:
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._bind(listener)
            listener.listen(128)
        except OSError:  # a full disk, for example: the next attach tries again
            listener.close()
            return
        listener.setblocking(False)
        self._listener = listener
        self._epoll.register(listener, select.EPOLLIN)

    def serve(self, known: Container[AttemptKey]) -> list[Post]:
        """Accept connections and return what they sent; only processes of `known` attempts are accepted."""
        now = time.monotonic()
        if now >= self._pace_until:
            self._begin_pace(now, known)
        parcels: list[Post] = []
        # The kernel reports ready descriptors in turn, so that none starves.
        for descriptor, _ in self._epoll.poll(0, EVENTS_PER_TURN):
            if self._listener is not None and descriptor == self._listener.fileno():
                self._accept(self._listener, now, known)
            elif descriptor in self._nameless:
                self._admit(descriptor, known)
            elif (parcel := self._read(descriptor)) is not None:
                parcels.append(parcel)
        return parcels

    def deliver(self, key: AttemptKey, sender: str, data: bytes) -> None:
        """Send this to all connected processes of the attempt; one that does not read misses it."""
        frame = msgspec.msgpack.encode(Delivered(sender, data))
        for connection in list(self._open.values()):
            if connection.key == key:
                with contextlib.suppress(OSError):
                    connection.socket.send(frame)

    def close(self) -> None:
        """Close everything. The socket file stays: the next agent may have put its own there."""
        if self._listener is not None:
            self._listener.close()
        for descriptor in [*self._open, *self._nameless]:
            self._drop(descriptor)
        self._epoll.close()

    def _bind(self, listener: socket.socket) -> None:
        """Put the socket into its directory in one step, by the directory's descriptor: a Unix socket's path
        has at most 108 bytes.
        """
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
        """Reset all shares, and drop connections without a secret or whose attempt is over."""
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
        """Do not read from this one until the next share; a process that sends more has to wait."""
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
            _, uid, _ = struct.unpack(
                "3i", opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            )
            self._nameless[opened.fileno()] = _Connection(opened, uid, now)
            self._epoll.register(opened, select.EPOLLIN)
            self._admit(opened.fileno(), known)  # its secret has usually arrived already

    def _drop_nameless(self) -> None:
        """Make room by dropping one of the user who has most connections without a secret."""
        greediest, _ = Counter(connection.uid for connection in self._nameless.values()).most_common(1)[0]
        self._drop(next(one for one, connection in self._nameless.items() if connection.uid == greediest))

    def _admit(self, descriptor: int, known: Container[AttemptKey]) -> None:
        """Read the secret; accept the connection if attempt and user fit it."""
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
