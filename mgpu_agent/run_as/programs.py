"""Programs of mgpu itself and of the site, started as the agent's own user: the keeper, helpers, the site's
hooks and checks.

They get nothing of any job's: a clean environment, the directory `/`, and no descriptor but the three that
are named here.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from mgpu_agent.run_as.account import DEFAULT_PATH

_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def start_program(
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: int | None = None,
    output: int | None = None,
    errors: int | None = None,
) -> int:
    """Start a program in a session of its own and return its pid; streams not given are /dev/null."""
    null = (
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
    )
    actions: list[tuple[Any, ...]] = [null[0] if stdin is None else (os.POSIX_SPAWN_DUP2, stdin, 0)]
    actions.append(null[1] if output is None else (os.POSIX_SPAWN_DUP2, output, 1))
    actions.append((os.POSIX_SPAWN_DUP2, 1, 2) if errors is None else (os.POSIX_SPAWN_DUP2, errors, 2))
    plain = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE)
    return os.posix_spawn(
        words[0], tuple(words), dict(env), file_actions=actions, setsid=True, setsigmask=(), setsigdef=plain
    )


def run_program(
    words: Sequence[str], env: Mapping[str, str], output: IO[bytes], limit_s: float
) -> int | None:
    """Run a program of the site; return its exit code, or None when its time was over and it was ended."""
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=dict(env),
        cwd="/",
        start_new_session=True,
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def own_module(module: str, function: str = "main") -> tuple[str, ...]:
    """Return the command that runs a function of ours with this very Python and its packages."""
    places = [_PACKAGE_ROOT, *(place for place in sys.path if place and place != _PACKAGE_ROOT)]
    return (
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path[:] = {places!r}; from {module} import {function}; {function}()",
    )


def start_helper(name: str) -> tuple[int, socket.socket]:
    """Start a helper, which still has to be told its account; return its pid and our end of its socket."""
    ours, theirs = socket.socketpair()
    try:
        words = (*own_module("mgpu_agent.run_as.helper"), "mgpu_helper", name)
        pid = start_program(
            words, {"PATH": os.fsdecode(DEFAULT_PATH), "LANG": "C.UTF-8"}, stdin=theirs.fileno()
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return pid, ours
