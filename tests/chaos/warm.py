"""Masters that start in a moment: a process that has imported the server forks one for each line that it
reads. The rest is the master's own code from its first line on.

Most of a master's start is imports, and a thousand kills need a thousand starts. Requests and answers are
JSON lines on stdin and stdout: {"arguments": […], "env": {…}, "failpoints": "…", "log": "path"} -> {"pid":
N}. Ends at the end of its input; masters go on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from mgpu_agent.protocol import failpoints
from mgpu_jupyter.cli.master import leave_out_slow_imports


def main() -> None:
    """Fork a master for every line."""
    leave_out_slow_imports()
    from mgpu_jupyter.server import headless  # here, so that the parent of all masters has it

    signal.signal(signal.SIGCHLD, lambda *_: reap())
    print("{}", flush=True)
    while line := sys.stdin.readline():
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            be_master(headless, request)
        print(json.dumps({"pid": pid}), flush=True)


def reap() -> None:
    """Collect masters that ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def be_master(headless: Any, request: dict[str, Any]) -> None:
    """Become a master with a session and a log of its own; never return."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, descriptor in ((0, null), (1, log), (2, log)):
            os.dup2(descriptor, number)
        os.chdir(os.path.dirname(request["log"]))
        os.environ.clear()
        os.environ.update(request["env"])
        failpoints.arm(request["failpoints"])
        code = headless.run("127.0.0.1", request["port"], None, request["arguments"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
