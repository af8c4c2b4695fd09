"""Which Python a cell gets on this node. Asks an interpreter for its version once and remembers the answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import msgspec

from mgpu_agent.process.accounts import run_as
from mgpu_agent.protocol.model import PythonWish
from mgpu_agent.run_as.account import Account

_ASK_S = 5.0
_OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_QUESTION = "import sys; print('%d.%d' % sys.version_info[:2])"


class NoPython(msgspec.Struct, frozen=True):
    """The interpreter that was asked for by name is not here."""

    message: str


class Interpreters:
    """The interpreters of this node, as far as cells asked for them."""

    def __init__(self) -> None:
        self._versions: dict[tuple[str, int, int], str] = {}

    def choose(self, wish: PythonWish, account: Account | None = None) -> str | NoPython:
        """Return the one asked for, else the kernel's own if it is the same here, else the agent's."""
        if wish.path is not None:
            found = shutil.which(wish.path)
            if found is None:
                return NoPython(f"{wish.path}: there is no such Python on this node; leave --python out or name one that is there.")
            return found
        if wish.kernel_path and wish.kernel_version and self.version(wish.kernel_path, account) == wish.kernel_version:
            return wish.kernel_path
        return sys.executable

    def version(self, path: str, account: Account | None = None) -> str:
        """Return `major.minor` of an interpreter, or nothing when it does not answer."""
        if path == sys.executable:
            return _OWN_VERSION
        try:
            stamp = (path, os.stat(path).st_mtime_ns, -1 if account is None else account.uid)
        except OSError:
            return ""
        if stamp not in self._versions:
            self._versions[stamp] = _ask(path, account)
        return self._versions[stamp]


def _ask(path: str, account: Account | None) -> str:
    # The path is the user's: what is there runs as that user, never as more.
    words, own = [path, "-I", "-S", "-c", _QUESTION], run_as(account)
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=_ASK_S, check=False, stdin=subprocess.DEVNULL, **own)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
