"""One agent for each node directory: its lock, and which agent gives way to which."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

TAKE_OVER_S = 15.0
AGAIN = "--again"
"""Marks an agent that was started in place of one that was killed."""
_LOCK_NAME = "agent.lock"


def take_lock(directory: Path, *, is_again: bool = False) -> int | None:
    """Take the lock of this directory and return its descriptor; None where another agent has it."""
    descriptor = os.open(directory / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    if is_again:
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def take_over(directory: Path) -> int | None:
    """Ask an agent that was restarted automatically to end, and take its lock, because somebody starts the
    node by hand. None where the agent that has it was started by hand, too.
    """
    deadline = time.monotonic() + TAKE_OVER_S
    asked: set[int] = set()
    while time.monotonic() < deadline:
        if (lock := take_lock(directory)) is not None:
            return lock
        # The process named there holds the lock, which was just seen to be held.
        holder = (directory / _LOCK_NAME).read_text()
        if not holder.isdecimal():
            return None
        if int(holder) not in asked and _is_started_again(int(holder)):
            asked.add(int(holder))
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(holder), signal.SIGTERM)
        time.sleep(0.05)
    return None


def _is_started_again(pid: int) -> bool:
    """Tell whether this process is such an agent: its number may belong to another process by now."""
    try:
        return AGAIN.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
