"""Waits on the other nodes of a job with `--mpi` for what the launcher on the first one wants run there. Ends with the job.

What it starts are its children, and so processes of the job's attempt: they have its GPUs, and end when it does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from mgpu_agent.mpi.first import LOOK_S, MIXED, YOUNG_S
from mgpu_agent.mpi.mixture import Mixtures
from mgpu_agent.mpi.orders import End, Run, Standing, pack, unpack
from mgpu_agent.mpi.parcels import Mailbox

MAX_ORDERS = 1_000


class Host:
    """The orders of one node."""

    def __init__(self, post: Mailbox) -> None:
        self._post = post
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        self._over: dict[str, int] = {}

    def turn(self, timeout_s: float) -> None:
        """Take one message, and tell of what ended."""
        news = self._post.receive(timeout_s)
        message = None if news is None else unpack(news.data)
        if news is not None and isinstance(message, Run):
            self._start(news.sender, message)
        elif isinstance(message, End) and message.number in self._running:
            self._running[message.number][1].terminate()
        for number, (sender, child) in list(self._running.items()):
            if child.poll() is not None:
                del self._running[number]
                self._over[number] = child.returncode if child.returncode >= 0 else 128 - child.returncode
                self._tell(sender, number)

    def _start(self, sender: str, order: Run) -> None:
        if order.number not in self._running and order.number not in self._over and len(self._over) < MAX_ORDERS:
            child = subprocess.Popen(["/bin/sh", "-c", order.text], stdin=subprocess.DEVNULL)
            self._running[order.number] = (sender, child)
        self._tell(sender, order.number)

    def _tell(self, sender: str, number: str) -> None:
        self._post.send(sender, pack(Standing(number, self._over.get(number))))


def main() -> int:
    """Serve until the job ends."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    host, mixtures = Host(Mailbox()), Mixtures(os.environb.get(b"MGPU_TASK", b""))
    began = time.monotonic()
    while True:
        host.turn(LOOK_S[time.monotonic() - began > YOUNG_S])
        if problem := mixtures.look():
            print(problem, file=sys.stderr, flush=True)
            return MIXED


if __name__ == "__main__":
    sys.exit(main())
