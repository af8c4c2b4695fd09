"""Finds and ends the processes that belong to one state directory, so that nothing that was started stays behind. Starts nothing."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import psutil

from mgpu_agent.protocol.errors import Unavailable

LIMIT_S = 60.0


def processes_of(state: Path) -> list[psutil.Process]:
    """Return the living processes of mgpu that were started with `state`, and their jobs; ourselves excepted."""
    # The path itself and what is below it: not another one that begins with the same letters.
    mark = re.compile(rf"(?<![\w./-]){re.escape(str(state))}(?![\w.-])")
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [process for process in psutil.process_iter() if process.pid not in ours and _belongs(process, state, mark)]


def _belongs(process: psutil.Process, state: Path, mark: re.Pattern[str]) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        env = process.environ()
        # An editor that shows a log of ours is not ours: only what mgpu set itself counts.
        by_env = any(mark.search(value) for name, value in env.items() if name.startswith("MGPU_"))
        by_command = "mgpu" in (command := " ".join(process.cmdline())) and mark.search(command) is not None
        return by_env or by_command or ("MGPU_JOB_ID" in env and Path(process.cwd()).is_relative_to(state))
    return False


def describe(processes: list[psutil.Process]) -> str:
    """Return one line for each process."""
    lines = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            lines.append(f"{process.pid} (parent {process.ppid()}): {' '.join(process.cmdline())[:160]}")
    return "\n".join(lines)


def wait_until_gone(state: Path, limit_s: float = LIMIT_S) -> list[psutil.Process]:
    """Wait until no process of `state` is left; return those that still live at the limit."""
    deadline = time.monotonic() + limit_s
    while (left := processes_of(state)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def end_all(state: Path, grace_s: float = 5.0) -> list[str]:
    """End every process of `state` and return what had to be ended."""
    ended: list[str] = []
    deadline = time.monotonic() + grace_s
    while left := processes_of(state):
        for process in left:
            with contextlib.suppress(psutil.Error):
                ended.append(describe([process]))
                process.terminate() if time.monotonic() < deadline else process.kill()
        psutil.wait_procs(left, timeout=1)
        if time.monotonic() > deadline + LIMIT_S:
            raise Unavailable("would-not-end", f"These processes would not end: {'; '.join(describe(left).splitlines())}.")
    return ended
