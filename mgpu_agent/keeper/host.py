"""The machine under a keeper: directories, processes, sizes of files. Decides nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mgpu_agent.keeper.disguise import disguised
from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.messages import Account, TaskRecord
from mgpu_agent.keeper.place import has_room
from mgpu_agent.keeper.recovery import kill_all
from mgpu_agent.keeper.spawn import SpawnFailure, ignored_signals, spawn


class ThisMachine:
    """The real one; `spool` is where output goes."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._reset_signals = ignored_signals()

    @property
    def pid(self) -> int:
        """The keeper's own."""
        return os.getpid()

    def enter(self, cwd: str, account: Account | None = None) -> str:
        """Go to this directory, with the rights of this account if one is given; return why not, or nothing."""
        try:
            with disguised(account):
                os.chdir(cwd)
        except OSError as error:
            return error.strerror or str(error)
        except ValueError as error:
            return str(error)
        return ""

    def leave(self) -> None:
        """Hold no directory of a job."""
        os.chdir("/")

    def spawn(self, argv: tuple[bytes, ...], env: dict[bytes, bytes], stem: str, account: Account | None = None) -> int | SpawnFailure:
        """Start a process where we are, with its output in the spool files of this name; return its pid."""
        return spawn(argv, env, f"{self._spool}/{stem}.out", f"{self._spool}/{stem}.err", self._reset_signals, account=account)

    def complain(self, sentence: str) -> None:
        """Say something that only an administrator can mend, in the keeper's log."""
        print(sentence, file=sys.stderr)  # noqa: T201 - its log

    def has_room(self) -> bool:
        """Tell whether the disk takes the output of one more job."""
        return has_room(self._spool)

    def sizes(self, stem: str) -> tuple[int, int]:
        """Return how long the two spool files of this name are."""
        return (_size(f"{self._spool}/{stem}.out"), _size(f"{self._spool}/{stem}.err"))

    def end_all(self, ledger: Ledger, lost: list[TaskRecord]) -> None:
        """Kill all that an earlier keeper left of these tasks, or of others with this ledger's mark."""
        kill_all(ledger, lost)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
