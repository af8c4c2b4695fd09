"""The banner of `--debug`: a process of a job prints on stderr who and where it is, and then becomes the
job's program.

The source below runs in the process itself, under the agent's interpreter, before anything of the job; `exec`
keeps pid, directory and environment. It uses the standard library only, and knows only its arguments.
"""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

from mgpu_agent.protocol.ids import AttemptKey, NodeId

TITLE = "JOB EXECUTION DEBUG INFO"
_SOURCE = r"""
import getpass, os, signal, socket, sys, time
title, job, assigned, master, port = sys.argv[1:6]
words = sys.argv[6:]
def address():
    try:
        family, kind, _, _, there = socket.getaddrinfo(master, int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(there)
            return probe.getsockname()[0]
    except OSError as error:
        return "unknown (%s)" % error
def user():
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
rank = os.environ.get("RANK", os.environ.get("MGPU_NODE_RANK", "0"))
told = [
    "=== %s ===" % title,
    "Job: %s, rank %s" % (job, rank),
    "Assigned node: %s" % assigned,
    "Host: %s" % socket.gethostname(),
    "Address: %s" % address(),
    "PID: %d" % os.getpid(),
    "Directory: %s" % os.getcwd(),
    "User: %s" % user(),
    "Time: %s" % time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    "=" * (len(title) + 8),
]
os.write(2, ("\n".join(told) + "\n").encode(errors="surrogateescape"))
for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
    signal.signal(number, signal.SIG_DFL)
try:
    os.execvp(words[0], words)
except OSError as error:
    sys.stderr.write("%s: %s\n" % (words[0], error.strerror))
    os._exit(127 if isinstance(error, FileNotFoundError) else 126)
"""


def introduced(words: tuple[bytes, ...], key: AttemptKey, node_id: NodeId, master: str) -> tuple[bytes, ...]:
    """Return a command that prints who and where the process is before it becomes `words`."""
    where = urlsplit(master)
    about = (
        TITLE,
        f"{key.job_id} (attempt {key.attempt})",
        node_id,
        where.hostname or "",
        str(where.port or 0),
    )
    return tuple(map(os.fsencode, (sys.executable, "-I", "-S", "-c", _SOURCE, *about))) + words
