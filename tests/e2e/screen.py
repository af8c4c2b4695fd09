"""A terminal for tests: a program in a pseudo-terminal that is typed into and looked at. Decides nothing."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from pathlib import Path

from tests.processes import LIMIT_S, WaitedTooLong


class Screen:
    """One program in a terminal of its own."""

    def __init__(
        self, command: list[str], env: dict[str, str], cwd: Path, rows: int = 30, columns: int = 100
    ) -> None:
        self.pid, self._near = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
                os.execve(command[0], command, env)
            finally:
                os._exit(127)
        self._shown = b""
        self._code: int | None = None

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self._near, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Make the window larger or smaller; the kernel tells the program."""
        fcntl.ioctl(self._near, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def see(self, text: str, limit_s: float = LIMIT_S) -> str:
        """Wait until this is shown; return all up to its end, which is looked at only once."""
        wanted, deadline = text.encode(), time.monotonic() + limit_s
        while (at := self._shown.find(wanted)) < 0:
            if not self._read(deadline - time.monotonic()):
                raise WaitedTooLong(f"Waited for {text!r}; the screen has {self._shown[-2000:]!r}")
        seen, self._shown = self._shown[: at + len(wanted)], self._shown[at + len(wanted) :]
        return seen.decode(errors="replace")

    def modes(self) -> list[object]:
        """Return how the terminal treats what is typed."""
        return list(termios.tcgetattr(self._near))

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """Read to the end of the program; return its exit code."""
        deadline = time.monotonic() + limit_s
        while self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise WaitedTooLong(f"The program did not end; the screen has {self._shown[-2000:]!r}")
            else:
                self._read(0.05)
        while self._read(0.2):
            pass
        return self._code

    def rest(self) -> str:
        """Return what was shown and not looked at."""
        return self._shown.decode(errors="replace")

    def kill(self) -> None:
        """End the program as a crash does."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        """End the program and let go of its terminal."""
        self.kill()
        os.close(self._near)

    def _read(self, limit_s: float) -> bool:
        if not select.select([self._near], [], [], max(0.0, limit_s))[0]:
            return False
        try:
            data = os.read(self._near, 65536)
        except OSError:  # the program and all that it started are gone
            return False
        self._shown += data
        return bool(data)
