"""Control groups that limit the processors and the memory of all processes of an attempt together. Starts
nothing, ends nothing.

Only root can make them, and not everywhere: where it cannot, that is reported and nothing is limited. A
helper enters a group, starts the process there, and goes back, by descriptors that root opens and passes to
it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
_PROCESSES = "cgroup.procs"


class Share(msgspec.Struct, frozen=True, array_like=True):
    """What an attempt asked for on this node; 0 for what it did not ask for."""

    cpus: int = 0
    mem_bytes: int = 0


NO_SHARE = Share()


def why_none() -> str:
    """Return why this process cannot make control groups here, or an empty string; leaves none behind."""
    trial = Cgroups(f"trial-{os.getpid()}")
    problem = trial.problem()
    trial.close()
    return problem


class Cgroups:
    """The groups of one keeper, by the name of the attempt."""

    def __init__(self, name: str, root: Path = ROOT, own: str | None = None) -> None:
        """`own` is the content of /proc/self/cgroup."""
        lines = (Path("/proc/self/cgroup").read_text() if own is None else own).splitlines()
        paths = {
            controller: path
            for _, names, path in (line.split(":", 2) for line in lines)
            for controller in names.split(",")
        }
        self._is_unified = (root / "cgroup.controllers").exists()
        trees = (
            {root: ""}
            if self._is_unified
            else {root / name: name for name in ("memory", "cpu") if (root / name).is_dir()}
        )
        self._places = {
            tree / f"mgpu-{name}": tree / paths[key].lstrip("/")
            for tree, key in trees.items()
            if key in paths
        }
        """Where groups are made, and the present group of this process there."""
        self._left: set[Path] = set()

    def problem(self) -> str:
        """Make the parent of the groups, without what an earlier keeper left; return why not, or nothing."""
        try:
            for place in self._places:
                place.mkdir(exist_ok=True)
                for stray in [entry for entry in place.iterdir() if entry.is_dir()]:
                    with contextlib.suppress(OSError):  # a process in it has not ended yet: harmless
                        stray.rmdir()
                for one in (place.parent, place) if self._is_unified else ():
                    (one / "cgroup.subtree_control").write_text("+cpu +memory")
        except OSError as error:
            return f"{error.strerror} ({error.filename})"
        return "" if self._places else "the system has no control groups for memory or processors"

    def enter(self, attempt: str, share: Share) -> list[int]:
        """Make the groups of an attempt; return descriptors of its group and of ours; raises `OSError`."""
        opened: list[int] = []
        try:
            for place, home in self._places.items():
                group = place / attempt
                if not group.exists():
                    group.mkdir()
                    _bind(group, share)
                opened += [os.open(one / _PROCESSES, os.O_WRONLY | os.O_CLOEXEC) for one in (group, home)]
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        return opened

    def leave(self, attempt: str) -> None:
        """Remove the groups of an attempt of which nothing is left; a failure is retried by the next call."""
        self._left |= {place / attempt for place in self._places}
        for group in list(self._left):
            with contextlib.suppress(OSError):
                if group.exists():
                    group.rmdir()
                self._left.discard(group)

    def close(self) -> None:
        """Remove the parent of the groups, if it is empty."""
        for place in self._places:
            with contextlib.suppress(OSError):
                place.rmdir()


def _bind(group: Path, share: Share) -> None:
    """Write the limits of a group; files that this kernel does not have are left out."""
    quota, memory = share.cpus * PERIOD_US, share.mem_bytes
    values: dict[str, str | int] = {}
    if share.cpus:
        values |= {
            "cpu.max": f"{quota} {PERIOD_US}",
            "cpu.cfs_period_us": PERIOD_US,
            "cpu.cfs_quota_us": quota,
        }
    if memory:
        values |= {"memory.max": memory, "memory.swap.max": 0, "memory.oom.group": 1}
        values |= {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory}
    for name, value in values.items():
        if (group / name).exists():
            (group / name).write_text(str(value))
