"""The node's spool and scratch directories: makes files and directories of jobs, deletes them late and in
bulk. Starts nothing.

Where jobs run as their users, cells and scratch are in a directory that others can pass through, and each
file and scratch directory belongs to its user; the spool itself stays the agent's. The agent then only makes
a user's directory and removes it when it is empty; everything inside is done as that user.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from mgpu_agent.keeper.messages import LEAST_ROOM_BYTES
from mgpu_agent.process.environment import script_suffix
from mgpu_agent.process.passage import open_passage, own_directory, own_file
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.places import make_private_dir
from mgpu_agent.run_as.account import Account
from mgpu_agent.run_as.file_work import carry_out
from mgpu_agent.run_as.requests import ClearFolder
from mgpu_agent.run_as.user_files import Ask, UserFiles, account_of

LATE_S = 1.0
VALUES = ".values"
SCRATCH_DAYS = 7
WHOLE = "/"
"""Follows the name of a scratch directory that is deleted with all its content."""
_TOO_MANY = 10_000  # attempts whose files wait; beyond this they are deleted although jobs are being started
_GLANCE_S = 0.2


class Spool:
    """Files of jobs on this node. Owns the thread that deletes them."""

    def __init__(
        self, node_directory: Path, passage: Path | None = None, users: UserFiles | None = None
    ) -> None:
        """`passage` is the directory for other accounts, if jobs run as their users; `users` works on files
        as one of them.
        """
        self.path = make_private_dir(node_directory / "spool")
        self._scratch = (
            make_private_dir(node_directory / "scratch") if passage is None else passage / "scratch"
        )
        self._cells = self.path if passage is None else passage / "cells"
        self._users = users or UserFiles()
        self._descriptors: list[int] = (
            [] if passage is None else [open_passage(self._scratch), open_passage(self._cells)]
        )
        self._doomed: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._busy_until = 0.0
        self._thread = threading.Thread(target=self._delete_late, name="mgpu-spool", daemon=True)
        self._thread.start()

    def write_script(self, key: AttemptKey, source: str, account: Account | None = None) -> str:
        """Write the source of a cell for its owner alone and return its path; for an account only an empty
        file, which its helper fills.
        """
        reach("agent.script")
        name = f"{key}{script_suffix(source)}"
        path = f"{self._cells}/{name}"
        if account is not None:
            own_file(self._descriptors[1], name, account)
            return path
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(source)
        return path

    def try_output(self, key: AttemptKey) -> None:
        """Make a file where the output of an attempt will go, with the room that it needs to start, and
        remove it; raises OSError where that fails.
        """
        path = f"{self.path}/{key}.try"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, LEAST_ROOM_BYTES)
        finally:
            os.close(descriptor)
            os.unlink(path)

    def scratch_of(self, name: str, account: Account | None = None) -> Path:
        """Return a directory for the files of one job, which nobody else can enter."""
        path = self._scratch / name
        if account is None:
            return make_private_dir(path, durable=False)  # a power cut ends the job with it
        own_directory(self._descriptors[0], name, account)
        return path

    def folder_of(self, key: AttemptKey) -> Path:
        """Return where the folder of an attempt is laid out; it is deleted with the attempt."""
        return self._scratch / str(key)

    def values_of(self, key: AttemptKey, account: Account | None = None) -> Path:
        """Return the directory for variables of an attempt, which is its user's alone; deleted with it."""
        return self.scratch_of(f"{key}{VALUES}", account)

    def note_busy(self) -> None:
        """Postpone deletions: a job is being started, and both need the disk."""
        self._busy_until = time.monotonic() + LATE_S

    def delete_attempts(self, keys: Iterable[AttemptKey]) -> None:
        """Delete cells and empty scratch directories of these attempts, later."""
        for key in keys:
            self._doomed.put(str(key))

    def delete_files(self, stems: Iterable[str]) -> None:
        """Delete the spool files of these names, later."""
        for stem in stems:
            self._doomed.put(stem)

    def delete_unknown(self, known: Iterable[AttemptKey], stems: Iterable[str]) -> None:
        """Delete cells and spool files that no attempt needs, and old scratch directories."""
        keep = {str(key) for key in known}
        files = (entry.name for place in {self.path, self._cells} for entry in os.scandir(place))
        for name in {_stem(name) for name in files}.difference(keep, stems):
            self._doomed.put(name)
        oldest = time.time() - SCRATCH_DAYS * 86_400
        jobs = {name.partition(".")[0] for name in keep}
        for entry in os.scandir(self._scratch):
            is_folder = "." in entry.name and entry.name.removesuffix(VALUES) not in keep
            if is_folder or (
                entry.name.partition(".")[0] not in jobs
                and entry.stat(follow_symlinks=False).st_mtime < oldest
            ):
                self._doomed.put(f"{entry.name}{WHOLE}")

    def close(self) -> None:
        """Delete what is due and end the thread."""
        self._doomed.put(None)
        self._thread.join(timeout=10.0)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def _delete_late(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._gather()
            if batch:
                self._delete(batch)

    def _gather(self) -> tuple[set[str], bool]:
        """Wait for something to delete, and then until no job is being started."""
        first = self._doomed.get()
        if first is None:
            return set(), False
        batch = {first}
        ready_at = time.monotonic() + LATE_S
        while len(batch) < _TOO_MANY and time.monotonic() < max(ready_at, self._busy_until):
            with contextlib.suppress(queue.Empty):
                name = self._doomed.get(timeout=_GLANCE_S)
                if name is None:
                    return batch, False
                batch.add(name)
        return batch, True

    def _delete(self, doomed: set[str]) -> None:
        """Delete by one reading of the directory; scratch directories only when empty, else later."""
        for entry in [entry for place in {self.path, self._cells} for entry in _entries(place)]:
            if _stem(entry.name) in doomed:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
        jobs = {attempt.partition(".")[0] for attempt in doomed if not attempt.endswith(WHOLE)}
        for entry in _entries(self._scratch):
            if entry.name.removesuffix(VALUES) in doomed or f"{entry.name}{WHOLE}" in doomed:
                self._remove(entry)
            elif entry.name in jobs:
                with contextlib.suppress(OSError):
                    os.rmdir(entry.path)

    def _remove(self, entry: os.DirEntry[str]) -> None:
        """Have a directory emptied as its owner, and then remove it."""
        clear = ClearFolder(place=entry.path)
        if not self._descriptors:
            carry_out(clear, lambda: None)
            with contextlib.suppress(OSError):
                os.rmdir(entry.path)
            return

        def remove(ask: Ask) -> None:
            with contextlib.suppress(OSError):
                ask(account_of(entry.stat(follow_symlinks=False).st_uid), clear)
                os.rmdir(entry.path)

        with contextlib.suppress(OSError):
            self._users.submit(f"{entry.stat(follow_symlinks=False).st_uid} leaves", remove)


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a directory; none while it cannot be read."""
    with contextlib.suppress(OSError):
        return list(os.scandir(directory))
    return []


def _stem(file_name: str) -> str:
    """Return a file's name without `.out`, `.err`, `.cell` or `.cell.py`."""
    return file_name.removesuffix(".py").rpartition(".")[0]
