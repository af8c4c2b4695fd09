"""Run a command with every core kept busy beside it, which is how races of tests are found. Knows no test
itself.

Usage: python tests/stress.py [--loops N] [--disk] -- COMMAND...

Each loop wants a whole core at the priority of everybody else; --disk adds one that writes and syncs files of
a few megabytes. They end with this program, also when it is killed: each looks whether its parent still
lives.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BUSY = """
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""
DISK = """
import os, sys
parent, block = int(sys.argv[1]), os.urandom(1 << 20)
os.chdir(sys.argv[2])
while os.getppid() == parent:
    with open("noise", "wb") as file:
        for _ in range(8):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
"""


def run(command: list[str], loops: int, disk: bool) -> int:
    """Return the exit code of `command`; nothing that was started here lives on."""
    stopped_by: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        stopped_by.append(number)
        if child is not None and number != signal.SIGINT:  # Ctrl-C reaches the whole group by itself
            child.send_signal(number)

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    me = str(os.getpid())
    with tempfile.TemporaryDirectory(prefix="mgpu-stress-") as place:
        beside = [[sys.executable, "-c", BUSY, me] for _ in range(loops)] + [
            [sys.executable, "-c", DISK, me, place]
        ] * disk
        noise = [subprocess.Popen(words, stdin=subprocess.DEVNULL) for words in beside]
        try:
            if not stopped_by:
                child = subprocess.Popen(command)
                code = child.wait()
            return 128 + stopped_by[0] if stopped_by else code
        finally:
            for process in noise:
                process.kill()
            for process in noise:
                process.wait()


def main(words: list[str]) -> int:
    """Read the words of the command line and run."""
    parser = argparse.ArgumentParser(prog="stress.py")
    parser.add_argument("--loops", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--disk", action="store_true")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(words)
    return run(given.command, given.loops, given.disk)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
