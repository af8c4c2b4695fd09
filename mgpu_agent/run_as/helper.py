"""The helper of one account: started by root, it gives up all other rights, and then starts processes and
works on files for that account.

It knows no job and no attempt, keeps no record and decides nothing. It ends when the other side of its socket
does; the keeper then adopts what it started. Users may end or stop it, since it is one of their processes:
only they wait for it then.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time

from mgpu_agent.channel import Channel
from mgpu_agent.protocol.errors import reason_of
from mgpu_agent.run_as.drop import become, close_inherited
from mgpu_agent.run_as.file_work import carry_out
from mgpu_agent.run_as.requests import (
    Become,
    Ended,
    FileWork,
    HelperPing,
    HelperPong,
    HelperReady,
    NotSpawned,
    Request,
    Spawn,
    Spawned,
    Working,
    request_decoder,
)
from mgpu_agent.run_as.spawn import SpawnFailure, Stdin, ignored_signals, spawn

TELL_S = 0.25
_SKIPPED = SpawnFailure("skipped", "A process of the same job could not be started.", "job")


class Helper:
    """Serves after all other rights were given up."""

    def __init__(self, channel: Channel[Request]) -> None:
        self._channel = channel
        self._reset_signals = ignored_signals()
        self._failed_group = -1
        self._told_at = 0.0

    def handle(self, request: Request) -> None:
        """Carry out one request."""
        match request:
            case Spawn():
                self._spawn(request)
            case HelperPing(number=number):
                self._channel.put(HelperPong(number=number))
            case FileWork(task=task):
                self._channel.put(carry_out(task, self._tell))
            case Become():
                raise PermissionError("It is somebody already.")

    def _tell(self) -> None:
        """Report, not too often, that the work goes on."""
        if time.monotonic() - self._told_at >= TELL_S:
            self._told_at = time.monotonic()
            self._channel.put(Working())
            if not self._channel.flush():
                os._exit(0)

    def reap(self) -> None:
        """Report every process that ended."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._channel.put(Ended(pid=pid, status=status))

    def _spawn(self, request: Spawn) -> None:
        files = [self._channel.descriptors.popleft() for _ in range(request.descriptors)]
        try:
            result = _SKIPPED if request.group == self._failed_group else self._start(request, files)
        finally:
            for descriptor in files:
                os.close(descriptor)
            os.chdir("/")
        if isinstance(result, SpawnFailure):
            self._failed_group = request.group
            # Failures by a user's own limits, directories and links say nothing about the node.
            fault = "request" if result.fault == "request" else "job"
            self._channel.put(
                NotSpawned(
                    number=request.number,
                    code=result.code,
                    message=result.message,
                    fault=fault,
                    exit_code=result.exit_code,
                )
            )
        else:
            self._channel.put(Spawned(number=request.number, pid=result))

    def _start(self, request: Spawn, files: list[int]) -> int | SpawnFailure:
        groups = files[len(files) - 2 * request.groups :]
        try:
            for descriptor in groups[::2]:
                os.write(descriptor, b"0")
            return self._start_here(request, files)
        except OSError as error:
            return SpawnFailure(
                "no-cgroup",
                f"The node could not bind the job's processes to what it asked for: {error.strerror}.",
                "node",
            )
        finally:
            for descriptor in groups[1::2]:
                os.write(descriptor, b"0")  # a helper that cannot go back must end

    def _start_here(self, request: Spawn, files: list[int]) -> int | SpawnFailure:
        try:
            os.chdir(request.cwd)
        except (OSError, ValueError) as error:
            if not request.or_root:
                why = reason_of(error)
                return SpawnFailure("no-directory", f"{request.cwd} cannot be entered: {why}.", "job")
        if request.terminal:
            return spawn(
                request.argv, request.env, -1, -1, self._reset_signals, stdin=Stdin(request.terminal, -1)
            )
        stdin = Stdin("", files[2]) if request.pipe else None
        return spawn(request.argv, request.env, files[0], files[1], self._reset_signals, stdin=stdin)


def main() -> None:
    """Become the account that the first message names, and serve until the other side is gone."""
    close_inherited()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=os.dup(0))
    os.dup2(
        1, 0
    )  # its children have their own descriptors; no number that a child could inherit is the socket
    channel: Channel[Request] = Channel(connection, request_decoder, takes_descriptors=True)
    wake, wake_writer = socket.socketpair()
    for end in (wake, wake_writer):
        end.setblocking(False)
    signal.set_wakeup_fd(wake_writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    helper: Helper | None = None
    while True:
        poll.register(channel, select.POLLIN | (select.POLLOUT if channel.has_outgoing else 0))
        ready = dict(poll.poll())
        if wake.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                wake.recv(4096)
        requests = channel.receive() if ready.get(channel.fileno(), 0) & ~select.POLLOUT else []
        if requests is None:
            os._exit(0)
        for request in requests:
            if helper is None:
                if not isinstance(request, Become):
                    os._exit(1)
                become(request.account, request.confinement)
                helper = Helper(channel)
                channel.put(HelperReady())
            else:
                helper.handle(request)
        if helper is not None:
            helper.reap()
        if not channel.flush():
            os._exit(0)
