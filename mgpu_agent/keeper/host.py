"""The machine under a keeper: directories, processes, sizes of files. Decides nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.messages import TaskRecord
from mgpu_agent.keeper.place import has_room
from mgpu_agent.keeper.recovery import kill_all
from mgpu_agent.protocol.text import tell
from mgpu_agent.run_as.account import Account
from mgpu_agent.run_as.cgroups import NO_SHARE, Cgroups, Share
from mgpu_agent.run_as.helper_pool import Helpers
from mgpu_agent.run_as.requests import Spawn
from mgpu_agent.run_as.spawn import SpawnFailure, Stdin, ignored_signals, spawn

_OUTPUT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class ThisMachine:
    """The real one; `spool` is where output goes."""

    def __init__(self, spool: Path, helpers: Helpers | None = None) -> None:
        self._spool = spool
        self._helpers = helpers
        self.cgroups: Cgroups | None = None
        """What binds jobs to what they asked for, where that is wanted."""
        self._reset_signals = ignored_signals()

    @property
    def pid(self) -> int:
        """The keeper's own."""
        return os.getpid()

    def enter(self, cwd: str) -> str:
        """Go to this directory; return why not, or nothing."""
        try:
            os.chdir(cwd)
        except OSError as error:
            return error.strerror or str(error)
        except ValueError as error:
            return str(error)
        return ""

    def leave(self) -> None:
        """Hold no directory of a job."""
        os.chdir("/")

    def spawn(self, argv: tuple[bytes, ...], env: dict[bytes, bytes], stem: str, stdin: Stdin | None = None) -> int | SpawnFailure:
        """Start a process of our own user where we are, with its output in the spool files of this name; return its pid."""
        return spawn(argv, env, f"{self._spool}/{stem}.out", f"{self._spool}/{stem}.err", self._reset_signals, stdin=stdin)

    def new_group(self) -> int:
        """Return a number for processes of which none is started after one could not be."""
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
        """Have the helper of an account start a process, with its output in the spool files of this name; `then` is told of it."""
        assert self._helpers is not None
        try:
            descriptors = self._descriptors(account, stem, stdin)
        except OSError as error:
            then(SpawnFailure("spool", f"The node could not open the job's output files: {error.strerror}.", "node"))
            return
        try:
            groups = self.cgroups.enter(attempt, share) if self.cgroups is not None and share != NO_SHARE else []
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            then(SpawnFailure("no-cgroup", f"The node could not bind the job to what it asked for: {error.strerror}.", "node"))
            return
        request = replace(request, groups=len(groups) // 2)
        self._helpers.spawn(account, request, (*descriptors, *groups), then, may_gain=may_gain)

    def release(self, attempt: str) -> None:
        """Let go of what bound an attempt of which nothing is left."""
        if self.cgroups is not None:
            self.cgroups.leave(attempt)

    def complain(self, sentence: str) -> None:
        """Say something that only an administrator can mend, in the keeper's log."""
        tell(sentence, file=sys.stderr)

    def has_room(self) -> bool:
        """Tell whether the disk takes the output of one more job."""
        return has_room(self._spool)

    def sizes(self, stem: str) -> tuple[int, int]:
        """Return how long the two spool files of this name are."""
        return (_size(f"{self._spool}/{stem}.out"), _size(f"{self._spool}/{stem}.err"))

    def end_all(self, ledger: Ledger, lost: list[TaskRecord]) -> None:
        """Kill all that an earlier keeper left of these tasks, or of others with this ledger's mark."""
        kill_all(ledger, lost)

    def _descriptors(self, account: Account, stem: str, stdin: Stdin | None) -> Sequence[int]:
        """Open what a process of this account writes to and reads from; the files become its own."""
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
