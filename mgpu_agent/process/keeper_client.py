"""The agent's side of the keeper: finds or starts it and exchanges messages. Knows nothing of the master."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from pathlib import Path

from mgpu_agent.channel import Channel
from mgpu_agent.keeper.messages import (
    SOCKET_NAME,
    Attach,
    FromKeeper,
    Snapshot,
    ToKeeper,
    from_keeper_decoder,
)
from mgpu_agent.protocol.errors import EngineError
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.run_as.account import Confinement
from mgpu_agent.run_as.programs import start_program

ATTACH_S = 60.0  # a new keeper first ends what an earlier one left, which may take a kill grace
_LOG_LIMIT_BYTES = 1024 * 1024
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


class KeeperClient:
    """A connection to the keeper of one node directory. Owns the socket, and the exit status of a keeper it
    started.
    """

    def __init__(
        self,
        directory: Path,
        environment: dict[bytes, bytes],
        idle_s: float = 30.0,
        confinement: Confinement | None = None,
        again: tuple[str, ...] = (),
    ) -> None:
        self._again = again
        self._directory = directory
        self._environment = environment
        self._confinement = confinement or Confinement()
        self._idle_s = idle_s
        self._started_pids: set[int] = set()
        self._channel: Channel[FromKeeper] | None = None
        self._early: list[FromKeeper] = []
        """Messages that arrived together with the snapshot."""

    def attach(self, lost_reason: str) -> Snapshot:
        """Connect to the keeper, start one if there is none, and return what it knows."""
        give_up_at = time.monotonic() + ATTACH_S
        starting: int | None = None
        while time.monotonic() < give_up_at:
            if (snapshot := self._try_attach(give_up_at)) is not None:
                return snapshot
            self.reap()
            if starting not in self._started_pids:
                starting = self._start(lost_reason)
            time.sleep(0.01)
        raise EngineError("no-keeper", f"The keeper did not start: see {self._directory / 'keeper.log'}.")

    def fileno(self) -> int:
        """Return the descriptor to poll, or -1."""
        return -1 if self._channel is None else self._channel.fileno()

    @property
    def has_outgoing(self) -> bool:
        """Tell whether something waits to be written."""
        return self._channel is not None and self._channel.has_outgoing

    def put(self, message: ToKeeper) -> None:
        """Queue a message; without a keeper it is dropped, and the next keeper is told again."""
        if self._channel is not None:
            self._channel.put(message)

    def flush(self) -> bool:
        """Write what the keeper accepts; tell whether it is there."""
        if self._channel is None:
            return False
        reach("agent.order.before")
        is_there = self._channel.flush()
        reach("agent.order.after")
        return is_there

    def receive(self) -> list[FromKeeper] | None:
        """Return the messages that arrived, or None when the keeper is gone."""
        if self._channel is None:
            return None
        early, self._early = self._early, []
        messages = self._channel.receive()
        return None if messages is None else [*early, *messages]

    def detach(self) -> None:
        """Close the connection; the keeper goes on."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def reap(self) -> None:
        """Collect the exit status of a keeper that this process started."""
        for pid in tuple(self._started_pids):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._started_pids.discard(pid)

    def _try_attach(self, give_up_at: float) -> Snapshot | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Through the directory's descriptor, because a Unix socket's path has at most 108 bytes.
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                connection.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
            finally:
                os.close(directory)
        except OSError:
            connection.close()
            return None
        channel: Channel[FromKeeper] = Channel(connection, from_keeper_decoder)
        channel.put(Attach(environment=self._environment, confinement=self._confinement, again=self._again))
        while channel.flush() and time.monotonic() < give_up_at:
            select.select([channel], [channel] if channel.has_outgoing else [], [], 1.0)
            messages = channel.receive()
            if messages is None:
                break
            if messages:
                first = messages[0]
                assert isinstance(first, Snapshot)
                self._channel = channel
                self._early = messages[1:]
                return first
        channel.close()
        return None

    def _start(self, lost_reason: str) -> int:
        reach("agent.keeper")
        log = self._directory / "keeper.log"
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_size > _LOG_LIMIT_BYTES:
                log.unlink()
        python_path = os.pathsep.join(filter(None, (_PACKAGE_ROOT, os.environ.get("PYTHONPATH", ""))))
        # -P: a module in the user's present directory must not replace one of the standard library.
        words = [sys.executable, "-P", "-m", "mgpu_agent.keeper", "--dir", str(self._directory)]
        words += ["--idle", str(self._idle_s), "--lost-reason", lost_reason]
        descriptor = os.open(
            log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            pid = start_program(words, {**os.environ, "PYTHONPATH": python_path}, errors=descriptor)
        finally:
            os.close(descriptor)
        self._started_pids.add(pid)
        return pid
