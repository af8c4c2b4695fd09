"""Runs the user's command on the first node of a job with `--mpi`: prepares files and environment for mpirun,
watches its processes, returns its exit code.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mgpu_agent.mpi.mixture import Mixtures
from mgpu_agent.mpi.parcels import SECRET_VARIABLE
from mgpu_agent.mpi.setting import DIRECTORY_PREFIX, HOSTS_VARIABLE, environment, hosts_of, write_files

NOT_FOUND, NOT_EXECUTABLE = 127, 126
MIXED = 1
LOOK_S = (0.05, 0.5)  # often at first: programs that do nothing end soon
YOUNG_S = 10.0
GRACE_S = 5.0


def main() -> int:
    """Run the command to its end."""
    words = sys.argv[1:]
    directory = Path(tempfile.mkdtemp(prefix=DIRECTORY_PREFIX))
    try:
        write_files(
            directory, hosts_of(os.environ.get(HOSTS_VARIABLE, "")), os.environ.pop(SECRET_VARIABLE, "")
        )
        # Handlers, not `ignore`, which the command would inherit: the keeper signals it itself.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        try:
            child = subprocess.Popen(words, env=environment(directory, os.environ))
        except OSError as error:
            print(f"{words[0]}: {error.strerror}.", file=sys.stderr)
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        return _see_to_the_end(child)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _see_to_the_end(child: subprocess.Popen[bytes]) -> int:
    mixtures = Mixtures(os.environb.get(b"MGPU_TASK", b""))
    began = time.monotonic()
    while True:
        problem = mixtures.look()
        if problem:
            print(problem, file=sys.stderr, flush=True)
            child.terminate()
            try:
                child.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
            return MIXED
        try:
            code = child.wait(LOOK_S[time.monotonic() - began > YOUNG_S])
        except subprocess.TimeoutExpired:
            continue
        return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
