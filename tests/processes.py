"""Find and end the processes that belong to one state directory, so that nothing that was started stays behind. Starts nothing."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")
LIMIT_S = 60.0
"""How long a condition may take. It only has to end at some time what would never end: what is green does not wait for it, and on a
machine that others keep busy everything takes ten times as long."""


class WaitedTooLong(AssertionError):
    """A condition did not come true within its limit."""


def wait_until(condition: Callable[[], T | None], what: str, limit_s: float = LIMIT_S, every_s: float = 0.05) -> T:
    """Return the first true value of `condition`; one that raises counts as not yet."""
    deadline = time.monotonic() + limit_s
    problem: Exception | None = None
    while True:
        try:
            if value := condition():
                return value
            problem = None
        except Exception as error:
            problem = error
        if time.monotonic() > deadline:
            raise WaitedTooLong(f"Waited {limit_s:.0f} s for: {what}" + (f" ({type(problem).__name__}: {problem})" if problem else ""))
        time.sleep(every_s)


def free_port() -> int:
    """Return a free TCP port of the loopback interface, below those that outgoing connections are given.

    It is this process's until it ends, whatever happens to what listens there: no other test process is given the same one.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_240, max(lowest, 20_000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _claim(port)
            return port


def _claim(port: int) -> None:
    """Take the name of a port among all test processes of this machine; raise OSError if another has it.

    A name in the abstract namespace leaves no file behind and ends with the process, also when that is killed.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0mgpu-test-port-{port}")
    except OSError:
        claim.close()
        raise
    claim.detach()  # open until this process ends


def processes_of(state: Path) -> list[psutil.Process]:
    """Return the living processes of mgpu that were started with `state`, and their jobs; ourselves excepted."""
    mark = str(state)
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [process for process in psutil.process_iter() if process.pid not in ours and _belongs(process, mark)]


def _belongs(process: psutil.Process, mark: str) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        env = process.environ()
        # An editor that shows a log of ours is not ours: only what mgpu set itself counts.
        by_env = any(mark in value for name, value in env.items() if name.startswith("MGPU_"))
        by_command = mark in (command := " ".join(process.cmdline())) and "mgpu" in command
        return by_env or by_command or ("MGPU_JOB_ID" in env and process.cwd().startswith(mark))
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
            raise WaitedTooLong(f"These would not end:\n{describe(left)}")
    return ended
