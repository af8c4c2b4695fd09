"""Which masters of this user run on this machine, wherever their state is: notes in a directory of the user.

A note names the runtime file of a master, which has address and token; it holds no secret itself. Only what
belongs to this user alone is read, and no link that another made is followed. Sends nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.places import (
    RuntimeFile,
    boot_id,
    host_name,
    make_private_dir,
    read_private_file,
    write_private_file,
)

NOTES = "running-*.json"
_UNREADABLE = (OSError, InvalidRequest, msgspec.DecodeError, msgspec.ValidationError)
_START_FIELD = 19  # of /proc/PID/stat, counted behind the name, which may have blanks


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running master's own file is, and which process it must be of."""

    runtime_file: str
    host: str
    boot_id: str
    pid: int
    born: str
    """When the process began, as the kernel counts: its number may be another's later."""


class RunningMaster(NamedTuple):
    """A master, and the directory that holds its state."""

    state: Path
    runtime: RuntimeFile


def announce(runtime_file: Path, env: Mapping[str, str]) -> Path | None:
    """Leave a note of this process's master; return it, or None where the user has no directory for it."""
    pid = os.getpid()
    note = Note(
        runtime_file=str(runtime_file), host=host_name(), boot_id=boot_id(), pid=pid, born=_born(pid) or ""
    )
    for place in _places(env):
        try:
            make_private_dir(place)
            _tidy(place)
            path = place / f"running-{note.host}-{pid}.json"
            write_private_file(path, msgspec.json.encode(note))
        except (OSError, InvalidRequest):
            continue
        return path
    return None


def running_masters(env: Mapping[str, str]) -> list[RunningMaster]:
    """Return all of this user's, the newest first."""
    found = {
        master.runtime.pid: master
        for place in _places(env)
        for _, note in _notes(place)
        if _lives(note) and (master := _master_of(note)) is not None
    }
    return sorted(found.values(), key=lambda master: -master.runtime.started_at)


def _places(env: Mapping[str, str]) -> list[Path]:
    """Return where notes may be: what the system gives a user for this, and the home."""
    places = []
    if (runtime := env.get("XDG_RUNTIME_DIR")) and _is_own(Path(runtime), others_may=0o055):
        places.append(Path(runtime) / "mgpu")
    if state := env.get("XDG_STATE_HOME") or (f"{env['HOME']}/.local/state" if env.get("HOME") else ""):
        places.append(Path(state) / "mgpu-running")
    return places


def _notes(place: Path) -> Iterator[tuple[Path, Note]]:
    if not _is_own(place):
        return
    for path in sorted(place.glob(NOTES)):
        with contextlib.suppress(*_UNREADABLE):
            yield path, msgspec.json.decode(_read(path), type=Note)


def _tidy(place: Path) -> None:
    """Remove what masters of this machine left that are gone."""
    for path, note in _notes(place):
        if note.host == host_name() and not _lives(note):
            path.unlink(missing_ok=True)


def _master_of(note: Note) -> RunningMaster | None:
    path = Path(note.runtime_file)
    with contextlib.suppress(*_UNREADABLE):
        if path.is_absolute() and _is_own(path.parent):
            runtime = msgspec.json.decode(_read(path), type=RuntimeFile)
            if (runtime.pid, runtime.boot_id) == (note.pid, note.boot_id):
                return RunningMaster(path.parent.parent, runtime)
    return None


def _lives(note: Note) -> bool:
    """Tell whether it is a process of this user on this machine that has run all the time."""
    if (note.host, note.boot_id) != (host_name(), boot_id()):
        return False
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{note.pid}").st_uid == os.getuid() and _born(note.pid) == note.born
    return False


def _born(pid: int) -> str | None:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_START_FIELD]
    return None


def _is_own(path: Path, others_may: int = 0) -> bool:
    """Tell whether this is a directory, no link, of this user, where nobody else may do more than that."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    own = stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()
    return own and not info.st_mode & 0o077 & ~others_may


def _read(path: Path) -> bytes:
    """Read a file of this user, no link, that nobody else can read."""
    if path.is_symlink():
        raise InvalidRequest("unsafe-file", f"{path} is a link: remove it.")
    return read_private_file(path)
