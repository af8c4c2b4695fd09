"""Detects a launcher and a library of different MPIs, which make N worlds of one process each and exit
without an error. Reads /proc, ends nothing.
"""

from __future__ import annotations

import os
import re

_SIZES = {b"OMPI_COMM_WORLD_SIZE": "Open MPI", b"PMI_SIZE": "MPICH"}
_LIBRARY = re.compile(rb"\S*/(lib(?:mpi|mpich|mpi_cxx)\.so\.(\d+)\S*)$", re.MULTILINE)
_OPEN_MPI_SONAMES = (b"20", b"40", b"80")
_MPICH_SONAMES = (b"0", b"10", b"12")


class Mixtures:
    """Looks at the processes of one task, each until it is judged."""

    def __init__(self, marker: bytes) -> None:
        self._marker = b"\0MGPU_TASK=" + marker + b"\0"
        self._launchers: dict[int, str] = {}
        """The launcher of each process; empty for one that has none, is another user's, or is judged."""

    def look(self) -> str:
        """Return a sentence about what is wrong, or an empty string."""
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        for gone in self._launchers.keys() - pids:
            del self._launchers[gone]
        for pid in pids:
            launcher = self._launchers.get(pid)
            if launcher is None:
                environment = _read(f"/proc/{pid}/environ")
                if not environment:
                    continue  # just being started, or another user's
                is_of_task = self._marker in b"\0" + environment and _is_own(pid)
                launcher = self._launchers[pid] = launcher_of(environment) if is_of_task else ""
            if launcher:
                library, path = library_of(_read(f"/proc/{pid}/maps"))
                if library:
                    self._launchers[pid] = ""
                if library and library != launcher:
                    return (
                        f"mgpu: the launcher is {launcher}, but the program uses {library} ({path}), so "
                        f"each process is a world of one: "
                        f"start it with the mpirun of {library}, or install the program's MPI library for "
                        f"{launcher}."
                    )
        return ""


def launcher_of(environment: bytes) -> str:
    """Return which MPI's launcher started a process as one of several; empty for none."""
    values = dict(item.split(b"=", 1) for item in environment.split(b"\0") if b"=" in item)
    for name, family in _SIZES.items():
        if values.get(name, b"").isdigit():
            return family if int(values[name]) > 1 else ""
    return ""


def library_of(maps: bytes) -> tuple[str, str]:
    """Return which MPI a process has loaded, and its path."""
    for found in _LIBRARY.finditer(maps):
        path = found[0].decode(errors="replace").strip()
        if found[2] in _OPEN_MPI_SONAMES:
            return "Open MPI", path
        if found[2] in _MPICH_SONAMES:
            return "MPICH", path
    return "", ""


def _is_own(pid: int) -> bool:
    """Tell whether a process is this user's: root can read everybody's environment, and anybody can write a
    marker there.
    """
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
