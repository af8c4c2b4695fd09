"""A Jupyter program that holds the demo cluster: started in a state directory of its own, and stopped so that nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from mgpu_jupyter.demo.leftovers import describe, end_all, wait_until_gone

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
        self, command: list[str], state: Path, log: Path | None = None, *, end_jobs: bool = True, grace_s: float = AGENTS_LIMIT_S
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
        # A session of its own: Ctrl-C is ours to pass on, so that it is said once and in order.
        self._process = subprocess.Popen(self._command, env=dict(self.env), stdout=output, stderr=output, start_new_session=True)
        if output is not None:
            output.close()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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
