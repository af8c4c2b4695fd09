"""Replaces ssh: `launch [options] HOST words…` runs the words on that node of the job, through mgpu's
agents. Needs no keys.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import time
from pathlib import Path

from mgpu_agent.mpi.parcels import SECRET_VARIABLE, EndOrder, Mailbox, RunOrder, Standing, pack, unpack
from mgpu_agent.mpi.setting import HOSTS_VARIABLE, LAUNCHER_VARIABLE, hosts_of, with_sessions_in

ASK_S = 1.0
FAILED = 255  # as ssh has it


def main() -> int:
    """Run a command on another node; return its exit code."""
    words = sys.argv[1:]
    while words and words[0].startswith("-"):
        words = words[2 if words[0] in ("-l", "-p", "-o", "-i") else 1 :]
    if len(words) < 2:
        return _say("mgpu: a launcher named no node or no command.")
    host, text = words[0].rpartition("@")[2], " ".join(words[1:])
    hosts = hosts_of(os.environ.get(HOSTS_VARIABLE, ""))
    if host not in hosts:
        return _say(
            f"mgpu: {host} is no node of this job, which has {', '.join(hosts)}: leave out -H and --hostfile."
        )
    if host == os.environ.get("MGPU_NODE_ID"):
        os.environ.pop(SECRET_VARIABLE, None)
        beside = Path(os.environ.get(LAUNCHER_VARIABLE, "")).parent / "launched"
        os.execv("/bin/sh", ["/bin/sh", "-c", with_sessions_in(beside, text)])
    return _run_there(host, RunOrder(secrets.token_hex(8), text))


def _run_there(host: str, order: RunOrder) -> int:
    post = Mailbox()

    def end(number: int, _frame: object) -> None:
        post.send(host, pack(EndOrder(order.number)))
        with contextlib.suppress(KeyboardInterrupt):
            sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    while True:
        post.send(host, pack(order))
        ask_at = time.monotonic() + ASK_S
        while (left_s := ask_at - time.monotonic()) > 0:
            news = post.receive(left_s)
            standing = None if news is None or news.sender != host else unpack(news.data)
            if (
                isinstance(standing, Standing)
                and standing.number == order.number
                and standing.code is not None
            ):
                return standing.code


def _say(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
