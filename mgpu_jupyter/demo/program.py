"""A Jupyter program with the demo cluster in a state directory of its own, and the cleanup of its processes.

Only processes of that directory are ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import psutil

from mgpu_agent.protocol.errors import Unavailable

SIMULATED = "2x4"
STOP_LIMIT_S = 60.0
AGENTS_LIMIT_S = 60.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


class StopRequested(Exception):
    """Someone asked this program to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def end_on_signals() -> None:
    """Turn the signals that ask for an end into an exception, once, so that `with` blocks clean up."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what a handler is given
        for other in STOP_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise StopRequested(number)

    for number in STOP_SIGNALS:
        signal.signal(number, stop)


class JupyterProgram:
    """A process with its own state directory; leaving the `with` block ends it and all that it started."""

    def __init__(
        self,
        command: list[str],
        state: Path,
        log: Path | None = None,
        *,
        end_jobs: bool = True,
        grace_s: float = AGENTS_LIMIT_S,
    ) -> None:
        self._command = command
        self._state = state
        self._log = log
        self._end_jobs = end_jobs
        self._grace_s = grace_s
        self.leftovers: list[str] = []

    @property
    def env(self) -> Mapping[str, str]:
        """The environment in which the program and its kernels run."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("MGPU_")}
        # A login that is stored in the user's own home is not for the demo.
        return plain | {"MGPU_STATE_DIR": str(self._state), "XDG_CONFIG_HOME": str(self._state / "config")}

    def __enter__(self) -> Self:
        output = None if self._log is None else self._log.open("wb")
        # A session of its own: this process passes Ctrl-C on, so that it arrives once and in order.
        self._process = subprocess.Popen(
            self._command, env=dict(self.env), stdout=output, stderr=output, start_new_session=True
        )
        if output is not None:
            output.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.leftovers.append(f"the server did not stop within {STOP_LIMIT_S:.0f} s")
            self._process.kill()
            self._process.wait()
        left = wait_until_gone(self._state, self._grace_s)
        self.leftovers += describe(left).splitlines()
        if self._end_jobs:
            end_all(self._state)

    def wait(self) -> int:
        """Return the exit code when the program ends by itself."""
        return self._process.wait()

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._process.poll()


LIMIT_S = 60.0


def processes_of(state: Path) -> list[psutil.Process]:
    """Return the living processes of mgpu that were started with `state`, and their jobs, except this one."""
    # The path itself and what is below it: not another one that begins with the same characters.
    mark = re.compile(rf"(?<![\w./-]){re.escape(str(state))}(?![\w.-])")
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [
        process
        for process in psutil.process_iter()
        if process.pid not in ours and _belongs(process, state, mark)
    ]


def _belongs(process: psutil.Process, state: Path, mark: re.Pattern[str]) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        env = process.environ()
        # An editor that shows a log of ours is not ours: only variables that mgpu itself set count.
        by_env = any(mark.search(value) for name, value in env.items() if name.startswith("MGPU_"))
        by_command = "mgpu" in (command := " ".join(process.cmdline())) and mark.search(command) is not None
        return by_env or by_command or ("MGPU_JOB_ID" in env and Path(process.cwd()).is_relative_to(state))
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
    """End every process of `state` and return descriptions of those that had to be ended."""
    ended: list[str] = []
    deadline = time.monotonic() + grace_s
    while left := processes_of(state):
        for process in left:
            with contextlib.suppress(psutil.Error):
                ended.append(describe([process]))
                process.terminate() if time.monotonic() < deadline else process.kill()
        psutil.wait_procs(left, timeout=1)
        if time.monotonic() > deadline + LIMIT_S:
            raise Unavailable(
                "would-not-end", f"These processes would not end: {'; '.join(describe(left).splitlines())}."
            )
    return ended
