"""Waiting for conditions, free ports, and the processes of one state directory, which tests leave none of.
Starts nothing.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mgpu_jupyter.demo.program import describe, end_all, processes_of, wait_until_gone

__all__ = [
    "WaitedTooLong",
    "describe",
    "end_all",
    "free_port",
    "processes_of",
    "wait_until",
    "wait_until_gone",
]

T = TypeVar("T")
LIMIT_S = 60.0
"""How long a condition may take. It only has to end at some time what would never end: what is green does not
wait for it, and on a machine that others keep busy everything takes ten times as long.
"""


class WaitedTooLong(AssertionError):
    """A condition did not come true within its limit."""


def wait_until(
    condition: Callable[[], T | None], what: str, limit_s: float = LIMIT_S, every_s: float = 0.05
) -> T:
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
            raise WaitedTooLong(
                f"Waited {limit_s:.0f} s for: {what}"
                + (f" ({type(problem).__name__}: {problem})" if problem else "")
            )
        time.sleep(every_s)


def free_port() -> int:
    """Return a free TCP port of the loopback interface, below those that outgoing connections are given.

    It is this process's until it ends, whatever happens to what listens there: no other test process is given
    the same one.
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

    A name in the abstract namespace leaves no file behind and ends with the process, also when that is
    killed.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0mgpu-test-port-{port}")
    except OSError:
        claim.close()
        raise
    claim.detach()  # open until this process ends
