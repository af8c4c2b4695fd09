"""Run parts of the gate one after the other and say what each took. Knows no part itself: each is a make
target.

Usage: python tests/gate.py MAKE TARGET...
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(make: str, targets: list[str]) -> int:
    """Return 0 when every part passed, else the exit code of the first that did not."""
    stopped_by: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        stopped_by.append(number)
        if child is not None and number != signal.SIGINT:  # Ctrl-C reaches the whole group by itself
            child.send_signal(number)

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    took: list[tuple[str, float, str]] = []
    code = 0
    for target in targets:
        print(f"\n=== {target}", flush=True)
        started = time.monotonic()
        child = subprocess.Popen([make, target])
        code = child.wait()
        if stopped_by:
            code = 128 + stopped_by[0]
        took.append((target, time.monotonic() - started, "ok" if code == 0 else f"failed ({code})"))
        if code:
            break
    print("\n=== what each part took")
    for target, seconds, result in took:
        print(f"  {target:<20} {seconds:7.1f} s  {result}")
    print(f"  {'all':<20} {sum(seconds for _, seconds, _ in took):7.1f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
