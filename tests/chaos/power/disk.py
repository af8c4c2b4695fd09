"""A disk in memory that knows which of its changes were synced, and what may be left of it after a power cut.
Starts nothing.

The strictest reading of POSIX: a file's content is safe after a sync of the file, its name after a sync of
the directory that holds it, and nothing else is. Of what is not safe any part may survive: each write, each
cut and each change of a name by itself, and of a write any of its sectors.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.chaos.power.trace import SEND, Deed

SECTOR = 512
SHARED_MEMORY = "-shm"  # SQLite maps it, and makes it anew


@dataclass(eq=False)
class File:
    """What is safe of a file, and what was done to it since."""

    safe: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Offset and bytes of a write; a size and None."""


@dataclass(eq=False)
class Directory:
    """The names that are safe, and what was done to names since: a name and what it means, or None for
    nothing any more.
    """

    safe: dict[str, File | Directory] = field(default_factory=dict)
    pending: list[dict[str, File | Directory | None]] = field(default_factory=list)


Survives = Callable[[], bool]


class Disk:
    """The files below one directory. Deeds are carried out one by one; `image` may be asked for between any
    two.
    """

    def __init__(self) -> None:
        self._root = Directory()
        self._names: dict[str, File | Directory] = {"": self._root}
        self._inodes: dict[int, File] = {}

    def do(self, deed: Deed) -> None:
        """Carry out what a program did."""
        if deed.path.endswith(SHARED_MEMORY) or deed.op == SEND:
            return
        match deed.op:
            case "C":
                self._inodes[deed.inode] = file = File()
                self._name(deed.path, file)
            case "D":
                if deed.path:
                    self._name(deed.path, Directory())
            case "W":
                self._inodes[deed.inode].pending.append((deed.offset, deed.data))
            case "T":
                self._inodes[deed.inode].pending.append((deed.offset, None))
            case "F":
                self._sync(deed)
            case "R":
                self._rename(deed.path, deed.data.decode())
            case "U":
                self._name(deed.path, None)
            case _:
                raise ValueError(f"The trace says {deed.op!r}, which means nothing.")

    def image(self, target: Path, survives: Survives, rng: random.Random, under: str = "") -> None:
        """Write what is left below `under` into a new directory; `survives` is asked about each change that
        was not synced.
        """
        node = self._names.get(under)
        if isinstance(node, Directory):
            _write_directory(node, target, survives, rng)

    def _sync(self, deed: Deed) -> None:
        node = self._names.get(deed.path)
        if isinstance(node, Directory):
            for change in node.pending:
                _change(node.safe, change)
            node.pending.clear()
            return
        file = self._inodes[deed.inode]
        for offset, data in file.pending:
            _apply(file.safe, offset, data)
        file.pending.clear()

    def _name(self, path: str, node: File | Directory | None) -> None:
        self._parent(path).pending.append({PurePosixPath(path).name: node})
        if node is None:
            self._names.pop(path, None)
        else:
            self._names[path] = node

    def _rename(self, old: str, new: str) -> None:
        node = self._names.pop(old)
        self._names[new] = node
        before, after = self._parent(old), self._parent(new)
        names = (PurePosixPath(old).name, PurePosixPath(new).name)
        if before is after:
            after.pending.append({names[0]: None, names[1]: node})
        else:
            after.pending.append({names[1]: node})
            before.pending.append({names[0]: None})

    def _parent(self, path: str) -> Directory:
        parent = str(PurePosixPath(path).parent)
        node = self._names["" if parent == "." else parent]
        assert isinstance(node, Directory), path
        return node


def _change(names: dict[str, File | Directory], change: dict[str, File | Directory | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    size = offset + len(data or b"")
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset:size] = data


def _write_directory(node: Directory, target: Path, survives: Survives, rng: random.Random) -> None:
    target.mkdir(mode=0o700, parents=True)
    names = dict(node.safe)
    for change in node.pending:
        if survives():
            _change(names, change)
    for name, entry in names.items():
        if isinstance(entry, Directory):
            _write_directory(entry, target / name, survives, rng)
        else:
            (target / name).write_bytes(_content(entry, survives, rng))
            (target / name).chmod(0o600)


def _content(file: File, survives: Survives, rng: random.Random) -> bytes | bytearray:
    if not file.pending:
        return file.safe
    content = bytearray(file.safe)
    for offset, data in file.pending:
        if not survives():
            continue
        if data is None or len(data) <= SECTOR or rng.random() < 0.5:
            _apply(content, offset, data)
        else:
            for begin in range(0, len(data), SECTOR):
                if survives():
                    _apply(content, offset + begin, data[begin : begin + SECTOR])
    return content
