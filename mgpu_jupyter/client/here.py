"""Where and when a request is made: the context that reading it needs. Sends nothing."""

from __future__ import annotations

import os
import sys
import time
from typing import Self

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.places import host_name


class Here(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when a request is made."""

    cwd: str
    """The base of relative paths; empty where there is no directory, as in a browser."""
    now: float
    host: str
    """This machine's name as its agent reports it; empty where the user is at no machine of the pool."""
    has_kernel: bool = True
    """Whether a cell would like this very interpreter best."""
    notebook: str = ""
    """The path of the notebook whose cell asks; empty where none is known."""
    count: int = 0
    """The number of the cell's run, as stands before it; 0 where none is known."""

    @classmethod
    def real(cls, cwd: str | None = None, *, notebook: str = "", count: int = 0) -> Self:
        """Return this process's own."""
        cwd = os.getcwd() if cwd is None else cwd
        return cls(cwd=cwd, now=time.time(), host=host_name(), notebook=notebook, count=count)

    def path(self, text: str) -> str:
        """Return a path relative to this directory, with `~` for the home."""
        if not self.cwd:
            if not text.startswith("/"):
                raise InvalidRequest(
                    "no-directory",
                    f"{text}: write the whole path, from / on; this request comes from no directory.",
                )
            return os.path.normpath(text)
        return os.path.normpath(os.path.join(self.cwd, os.path.expanduser(text)))

    @property
    def kernel_fields(self) -> dict[str, object]:
        """Return this interpreter as the one that a cell prefers."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            {"kernel_python": sys.executable, "kernel_python_version": version}
            if self.has_kernel and sys.executable
            else {}
        )
