"""Where and when a request is made: what reading one needs to know beside its words. Sends nothing."""

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
    """What relative paths are seen from; empty where nobody sits in a directory, as in a browser."""
    now: float
    host: str
    """This machine's name, as an agent on it would tell it; empty where nobody sits at a machine of the pool."""
    has_kernel: bool = True
    """Whether a cell would like this very interpreter best."""

    @classmethod
    def real(cls, cwd: str | None = None) -> Self:
        """Return this process's own."""
        return cls(cwd=os.getcwd() if cwd is None else cwd, now=time.time(), host=host_name())

    def path(self, text: str) -> str:
        """Return a path as seen from here, with `~` for the home."""
        if not self.cwd:
            if not text.startswith("/"):
                raise InvalidRequest("no-directory", f"{text}: write the whole path, from / on; this request comes from no directory.")
            return os.path.normpath(text)
        return os.path.normpath(os.path.join(self.cwd, os.path.expanduser(text)))

    @property
    def kernel_fields(self) -> dict[str, object]:
        """Return this interpreter as the one that a cell would like best."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return {"kernel_python": sys.executable, "kernel_python_version": version} if self.has_kernel and sys.executable else {}
