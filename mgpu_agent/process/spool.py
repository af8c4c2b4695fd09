"""The node's spool and scratch directories: writes cells, gives a job a place to be, deletes late and in bulk. Starts nothing.

Where jobs run as their users, cells and scratch are in a directory that others can pass through, each file and each scratch
directory its user's own; the spool itself stays the agent's.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from mgpu_agent.process.accounts import can_enter
from mgpu_agent.process.environment import script_suffix
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.places import make_private_dir
from mgpu_agent.run_as.account import Account

LATE_S = 1.0
VALUES = ".values"
SCRATCH_DAYS = 7
_TOO_MANY = 10_000  # attempts whose files wait; beyond this they go although jobs are being started
_GLANCE_S = 0.2


class Spool:
    """Files of jobs on this node. Owns the thread that deletes them."""

    def __init__(self, node_directory: Path, passage: Path | None = None) -> None:
        """`passage` is where users of their own can get to, if jobs run as these."""
        self.path = make_private_dir(node_directory / "spool")
        self._scratch = make_private_dir(node_directory / "scratch") if passage is None else make_passage(passage / "scratch")
        self._cells = self.path if passage is None else make_passage(passage / "cells")
        self._doomed: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._busy_until = 0.0
        self._thread = threading.Thread(target=self._delete_late, name="mgpu-spool", daemon=True)
        self._thread.start()

    def write_script(self, key: AttemptKey, source: str, account: Account | None = None) -> str:
        """Write the source of a cell for its owner alone and return its path."""
        reach("agent.script")
        path = f"{self._cells}/{key}{script_suffix(source)}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(source)
            if account is not None:
                os.fchown(descriptor, account.uid, account.gid)
        return path

    def directory_for(self, job_id: JobId, wanted: str | None, account: Account | None = None) -> tuple[str, str]:
        """Return where a job runs and a line about it: the directory it wants if that can be entered, else its scratch."""
        if wanted is not None and _is_open(wanted, account):
            return wanted, ""
        path = self.scratch_of(job_id, account)
        if wanted is None:
            return str(path), ""
        return str(path), f"{wanted} cannot be entered on this node: the job runs in {path}, which is kept for {SCRATCH_DAYS} days."

    def scratch_of(self, name: str, account: Account | None = None) -> Path:
        """Return a directory for the files of one job, which nobody else enters."""
        path = self._scratch / name
        if account is None:
            return make_private_dir(path)
        path.mkdir(mode=0o700, exist_ok=True)
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
        return path

    def folder_of(self, key: AttemptKey) -> Path:
        """Return where the folder that came with an attempt is laid out; it goes with the attempt."""
        return self._scratch / str(key)

    def values_of(self, key: AttemptKey, account: Account | None = None) -> Path:
        """Return the directory for variables of an attempt, which is its user's alone and goes with it."""
        return self.scratch_of(f"{key}{VALUES}", account)

    def note_busy(self) -> None:
        """Put deletions off: a job is being started, and both want the disk."""
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
        """Delete cells and spool files that belong to nothing any more, and scratch directories that are old."""
        keep = {str(key) for key in known}
        files = (entry.name for place in {self.path, self._cells} for entry in os.scandir(place))
        for name in {_stem(name) for name in files}.difference(keep, stems):
            self._doomed.put(name)
        oldest = time.time() - SCRATCH_DAYS * 86_400
        jobs = {name.partition(".")[0] for name in keep}
        for entry in os.scandir(self._scratch):
            is_folder = "." in entry.name and entry.name.removesuffix(VALUES) not in keep
            if is_folder or (entry.name.partition(".")[0] not in jobs and entry.stat(follow_symlinks=False).st_mtime < oldest):
                shutil.rmtree(entry.path, ignore_errors=True)

    def close(self) -> None:
        """Delete what waits and end the thread."""
        self._doomed.put(None)
        self._thread.join(timeout=10.0)

    def _delete_late(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._gather()
            if batch:
                self._delete(batch)

    def _gather(self) -> tuple[set[str], bool]:
        """Wait for something to delete, and then until that disturbs nobody."""
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
        """Delete by one reading of the directory; a scratch directory only if it is empty, else it is kept a while."""
        for entry in [entry for place in {self.path, self._cells} for entry in _entries(place)]:
            if _stem(entry.name) in doomed:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
        jobs = {attempt.partition(".")[0] for attempt in doomed}
        for entry in _entries(self._scratch):
            if entry.name.removesuffix(VALUES) in doomed:
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name in jobs:
                with contextlib.suppress(OSError):
                    os.rmdir(entry.path)


def _is_open(path: str, account: Account | None) -> bool:
    if account is not None:
        return can_enter(path, account)
    return os.path.isdir(path) and os.access(path, os.X_OK)


def make_passage(path: Path) -> Path:
    """Create a directory that all can pass through and only this user can list or change."""
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    for part in path.parents:
        if not part.stat().st_mode & 0o001:
            raise InvalidRequest("closed-directory", f"Users cannot enter {part}: run  chmod o+x {part}  or name another --scratch-dir.")
    info = path.lstat()
    if info.st_uid != os.getuid() or not path.is_dir() or path.is_symlink():
        raise InvalidRequest("unsafe-directory", f"{path} must be a directory of the agent's own user: name another --scratch-dir.")
    path.chmod(0o711)
    return path


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """Return what is in a directory; nothing while it cannot be read, so that the thread lives until it can."""
    with contextlib.suppress(OSError):
        return list(os.scandir(directory))
    return []


def _stem(file_name: str) -> str:
    """Return a file's name without `.out`, `.err`, `.cell` or `.cell.py`."""
    return file_name.removesuffix(".py").rpartition(".")[0]
