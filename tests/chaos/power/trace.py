"""The trace of the recorder: what was written, synced, renamed and sent, in order. Reads; judges nothing."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("recorder.c")
_HEAD = struct.Struct("=4I2Qq")

WRITE, SYNC, RENAME, SEND = "WFRS"


@dataclass(frozen=True)
class Deed:
    """One thing that a program did."""

    op: str
    pid: int
    at: float
    """Seconds since boot."""
    inode: int
    offset: int
    """Where a write begins, or the size after a cut."""
    path: str
    """Below the directory that is watched."""
    data: bytes
    """What was written, the new name, or the answer that was sent."""


def can_record() -> bool:
    """Tell whether the recorder can be built."""
    return shutil.which("gcc") is not None


def build(directory: Path) -> Path:
    """Build the recorder and return the library."""
    library = directory / "recorder.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"], check=True
    )
    return library


def read_trace(path: Path) -> list[Deed]:
    """Return all that was recorded."""
    return list(_deeds(path.read_bytes()))


def _deeds(text: bytes) -> Iterator[Deed]:
    position = 0
    while position < len(text):
        op, pid, path_bytes, data_bytes, at_ns, inode, offset = _HEAD.unpack_from(text, position)
        position += _HEAD.size
        path = text[position : position + path_bytes].decode()
        position += path_bytes
        yield Deed(chr(op), pid, at_ns / 1e9, inode, offset, path, text[position : position + data_bytes])
        position += data_bytes
