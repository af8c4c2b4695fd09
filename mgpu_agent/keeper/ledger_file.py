"""The ledger's file: appended to, or replaced as a whole by a shorter one. Does not interpret its content."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.sealing import load_key


class LedgerNotes(Protocol):
    """What a ledger needs of its file."""

    size: int

    def read(self) -> bytes:
        """Return the whole content."""

    def append(self, data: bytes | bytearray) -> bool:
        """Append all of this or nothing; tell which."""

    def replace(self, data: bytes) -> None:
        """Replace the whole content; an OSError leaves it as it was."""

    def keep(self, size: int) -> None:
        """Continue with the file as it is, up to this size."""

    def key(self) -> bytes:
        """Return the key that encrypts secrets in it."""

    def close(self) -> None:
        """Close the file."""


class LedgerFile:
    """The file of one node directory. Owns its handle, which is opened by `replace` or `keep`."""

    def __init__(self, path: Path) -> None:
        self.size = 0
        self._path = path
        self._descriptor = -1

    def read(self) -> bytes:
        """Return the whole content."""
        return self._path.read_bytes() if self._path.exists() else b""

    def append(self, data: bytes | bytearray) -> bool:
        """Append all of this or nothing; tell which."""
        try:
            written = os.write(self._descriptor, data)
        except OSError:
            written = 0
        if written != len(data):
            os.ftruncate(self._descriptor, self.size)
            return False
        self.size += written
        return True

    def replace(self, data: bytes) -> None:
        """Replace the whole content; an OSError leaves it as it was."""
        temporary = self._path.with_name(f".{self._path.name}.new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            with open(descriptor, "wb", closefd=False, buffering=0) as file:
                position = 0
                while position < len(data):
                    position += file.write(data[position:])
            reach("keeper.compact.before")
            os.rename(temporary, self._path)
        except OSError:
            os.close(descriptor)
            temporary.unlink()
            raise
        reach("keeper.compact.after")
        self.close()
        self._descriptor = descriptor
        self.size = len(data)

    def keep(self, size: int) -> None:
        """Continue with the file as it is, up to this size."""
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.ftruncate(self._descriptor, size)
        self.size = size

    def key(self) -> bytes:
        """Return the key that encrypts secrets in it: a file beside it."""
        return load_key(self._path.with_name(f"{self._path.name}.key"))

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
