"""The machine under a keeper: its lock and socket in the node's directory, processes, sizes of files. One
keeper per directory. Decides nothing.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.messages import LEAST_ROOM_BYTES, LOCK_NAME, SOCKET_NAME, TaskRecord
from mgpu_agent.keeper.recovery import kill_all
from mgpu_agent.protocol.errors import reason_of
from mgpu_agent.protocol.text import tell
from mgpu_agent.run_as.account import Account
from mgpu_agent.run_as.cgroups import NO_SHARE, Cgroups, Share
from mgpu_agent.run_as.helper_pool import Helpers
from mgpu_agent.run_as.requests import Spawn
from mgpu_agent.run_as.spawn import SpawnFailure, Stdin, ignored_signals, spawn

LOCK_WAIT_S = 10.0


def listen(directory: Path) -> socket.socket:
    """Bind the socket through the directory's descriptor: a Unix socket's path has at most 108 bytes."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        (directory / SOCKET_NAME).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
        (directory / SOCKET_NAME).chmod(0o600)
    finally:
        os.close(descriptor)
    listener.listen(4)
    listener.setblocking(False)
    return listener


def has_room(directory: Path) -> bool:
    """Tell whether the disk of a directory has room for the output of one more job."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return True  # the start itself reports what is wrong
    return disk.f_bavail * disk.f_frsize >= LEAST_ROOM_BYTES


def take_lock(directory: Path) -> int | None:
    """Take the directory's lock, waiting a little for a keeper that is about to end."""
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    give_up_at = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                os.close(descriptor)
                return None
            time.sleep(0.02)
        else:
            return descriptor


_OUTPUT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class ThisMachine:
    """The real machine; `spool` is the directory of output files."""

    def __init__(self, spool: Path, helpers: Helpers | None = None) -> None:
        self._spool = spool
        self._helpers = helpers
        self.cgroups: Cgroups | None = None
        """The control groups that limit jobs, where the site wants them."""
        self._reset_signals = ignored_signals()

    @property
    def pid(self) -> int:
        """The keeper's own pid."""
        return os.getpid()

    def enter(self, cwd: str) -> str:
        """Change to this directory; return why that failed, or an empty string."""
        try:
            os.chdir(cwd)
        except (OSError, ValueError) as error:
            return reason_of(error)
        return ""

    def leave(self) -> None:
        """Leave the job's directory, so that it can be removed."""
        os.chdir("/")

    def spawn(
        self, argv: tuple[bytes, ...], env: dict[bytes, bytes], stem: str, stdin: Stdin | None = None
    ) -> int | SpawnFailure:
        """Start a process as the keeper's user in the present directory, with output in these spool files;
        return its pid.
        """
        return spawn(
            argv,
            env,
            f"{self._spool}/{stem}.out",
            f"{self._spool}/{stem}.err",
            self._reset_signals,
            stdin=stdin,
        )

    def new_group(self) -> int:
        """Return a number for a group of processes: once one of them fails to start, no other is started."""
        assert self._helpers is not None
        return self._helpers.new_group()

    def spawn_as(
        self,
        account: Account,
        request: Spawn,
        stem: str,
        then: Callable[[int | SpawnFailure], None],
        *,
        stdin: Stdin | None = None,
        may_gain: bool = False,
        attempt: str = "",
        share: Share = NO_SHARE,
    ) -> None:
        """Have an account's helper start a process with output in these spool files; `then` is called."""
        assert self._helpers is not None
        try:
            descriptors = self._descriptors(account, stem, stdin)
        except OSError as error:
            then(
                SpawnFailure(
                    "spool", f"The node could not open the job's output files: {error.strerror}.", "node"
                )
            )
            return
        try:
            groups = (
                self.cgroups.enter(attempt, share) if self.cgroups is not None and share != NO_SHARE else []
            )
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            then(
                SpawnFailure(
                    "no-cgroup",
                    f"The node could not bind the job to what it asked for: {error.strerror}.",
                    "node",
                )
            )
            return
        request = replace(request, groups=len(groups) // 2)
        self._helpers.spawn(account, request, (*descriptors, *groups), then, may_gain=may_gain)

    def release(self, attempt: str) -> None:
        """Remove the control group of an attempt of which nothing is left."""
        if self.cgroups is not None:
            self.cgroups.leave(attempt)

    def complain(self, sentence: str) -> None:
        """Write to the keeper's log what only an administrator can mend."""
        tell(sentence, file=sys.stderr)

    def has_room(self) -> bool:
        """Tell whether the disk has room for the output of one more job."""
        return has_room(self._spool)

    def sizes(self, stem: str) -> tuple[int, int]:
        """Return the sizes of the two spool files of this name."""
        return (_size(f"{self._spool}/{stem}.out"), _size(f"{self._spool}/{stem}.err"))

    def end_all(self, ledger: Ledger, lost: list[TaskRecord]) -> None:
        """Kill what an earlier keeper left of these tasks, or of others with this ledger's marker."""
        kill_all(ledger, lost)

    def _descriptors(self, account: Account, stem: str, stdin: Stdin | None) -> Sequence[int]:
        """Open the output files and the stdin of a process; the files belong to its account."""
        if stdin is not None and stdin.terminal:
            os.chown(stdin.terminal, account.uid, -1)
            return ()
        opened: list[int] = []
        try:
            for end in ("out", "err"):
                opened.append(os.open(f"{self._spool}/{stem}.{end}", _OUTPUT_FLAGS, 0o600))
                os.fchown(opened[-1], account.uid, account.gid)
            if stdin is not None:
                opened.append(os.dup(stdin.descriptor))
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        return opened


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
