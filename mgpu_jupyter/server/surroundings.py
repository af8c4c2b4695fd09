"""What a server publishes for kernels, terminals and other machines: its URL, `mgpu_srun`, variables."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

from mgpu_jupyter.client.connecting import unix_url

ANY_ADDRESS = ("", "0.0.0.0", "::", "*")  # noqa: S104 - compared, not bound


def own_srun() -> str:
    """Return the path of this installation's `mgpu_srun`: the PATH of terminals may lack it."""
    beside = Path(sys.executable).with_name("mgpu_srun")
    return str(beside) if beside.exists() else "mgpu_srun"


def server_url(serverapp: Any, *, others: bool = False, named: str = "") -> str:
    """Return the URL by which programs here (or `others`) reach the server, ending in `/`; `named` is its
    name.
    """
    if serverapp.sock:
        return unix_url(serverapp.sock, serverapp.base_url)
    host = (
        named or serverapp.ip
        if named or serverapp.ip not in ANY_ADDRESS
        else (socket.getfqdn() if others else "127.0.0.1")
    )
    scheme = "https" if serverapp.certfile else "http"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{serverapp.port}{serverapp.base_url}"


def path_to_programs() -> str:
    """Return the PATH by which kernels and terminals find mgpu's programs: what it is, and this installation
    last where it has none of them.
    """
    path, beside = os.environ.get("PATH", os.defpath), Path(sys.executable).with_name("mgpu_queue")
    found = shutil.which("mgpu_queue") is not None
    return path if found or not beside.exists() else f"{path}{os.pathsep}{beside.parent}"


class KernelVariables:
    """The environment that kernels and terminals inherit, and its earlier values."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}

    def give(self, **values: str) -> None:
        """Set these; one without a value is unset."""
        for name, value in values.items():
            self._before.setdefault(name, os.environ.get(name))
            if value:
                os.environ[name] = value
            else:
                os.environ.pop(name, None)

    def take_back(self) -> None:
        """Restore the earlier values."""
        for name, before in self._before.items():
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before
