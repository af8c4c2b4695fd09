"""Runs on the other nodes of a job with `--mpi` what the launcher on the first one orders. Ends with the
job.

What it starts are its children, and so processes of the job's attempt: they have its GPUs, and end when it
does. Obeys only the first node of the job, where the launcher is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mgpu_agent.mpi.first import LOOK_S, MIXED, YOUNG_S
from mgpu_agent.mpi.mixture import Mixtures
from mgpu_agent.mpi.parcels import SECRET_VARIABLE, EndOrder, Mailbox, RunOrder, Standing, pack, unpack
from mgpu_agent.mpi.setting import DIRECTORY_PREFIX, HOSTS_VARIABLE, hosts_of, with_sessions_in

MAX_ORDERS = 1_000


class OrderTaker:
    """The orders of one node."""

    def __init__(self, post: Mailbox, first: str, directory: Path) -> None:
        self._post = post
        self._first = first
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._over: dict[str, int] = {}

    def turn(self, timeout_s: float) -> None:
        """Handle one message, and report the commands that ended."""
        news = self._post.receive(timeout_s)
        message = None if news is None or news.sender != self._first else unpack(news.data)
        if isinstance(message, RunOrder):
            self._start(message)
        elif isinstance(message, EndOrder) and message.number in self._running:
            self._running[message.number].terminate()
        for number, child in list(self._running.items()):
            if child.poll() is not None:
                del self._running[number]
                self._over[number] = child.returncode if child.returncode >= 0 else 128 - child.returncode
                self._tell(number)

    def _start(self, order: RunOrder) -> None:
        if (
            order.number not in self._running
            and order.number not in self._over
            and len(self._over) < MAX_ORDERS
        ):
            self._running[order.number] = subprocess.Popen(
                ["/bin/sh", "-c", with_sessions_in(self._directory, order.text)], stdin=subprocess.DEVNULL
            )
        self._tell(order.number)

    def _tell(self, number: str) -> None:
        self._post.send(self._first, pack(Standing(number, self._over.get(number))))


def main() -> int:
    """Serve until the job ends."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    first = next(iter(hosts_of(os.environ.get(HOSTS_VARIABLE, ""))), "")
    post, mixtures = Mailbox(), Mixtures(os.environb.get(b"MGPU_TASK", b""))
    os.environ.pop(SECRET_VARIABLE, None)  # what is started here does not need it
    with tempfile.TemporaryDirectory(prefix=DIRECTORY_PREFIX, ignore_cleanup_errors=True) as directory:
        host, began = OrderTaker(post, first, Path(directory)), time.monotonic()
        while True:
            host.turn(LOOK_S[time.monotonic() - began > YOUNG_S])
            if problem := mixtures.look():
                print(problem, file=sys.stderr, flush=True)
                return MIXED


if __name__ == "__main__":
    sys.exit(main())
