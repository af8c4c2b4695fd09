"""Restarts the agent of a node after it was killed. Knows nothing of jobs; an agent that ended by itself
stays away.

The keeper sees that its agent is gone without a word and says so, with the words that start another one. The
reaper starts it, so that the agent is no descendant of the keeper: the end of one must not be that of the
other. An agent that is killed before the keeper knows it is seen as a child that ended by a signal.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mgpu_agent.run_as.programs import start_program

FIRST_DELAY_S = 0.2
LAST_DELAY_S = 2.0
"""Longer would keep waiting what a killed agent was given: that is settled within 5 s, the start included. An
agent that dies whenever it is started costs a fifth of a processor at this pace.
"""
CALM_S = 5.0
"""An agent that lived as long as this was well: the next one is not delayed for its sake."""
MOST_BYTES = 1024 * 1024
_LENGTH_BYTES = 4
_decoder = msgspec.msgpack.Decoder(tuple[str, ...])


def order_agent(pipe: int, words: Sequence[str]) -> None:
    """Order a new agent with this command line; no error if nobody reads the pipe any more."""
    data = msgspec.msgpack.encode(words)
    with contextlib.suppress(BrokenPipeError, BlockingIOError):
        os.write(pipe, len(data).to_bytes(_LENGTH_BYTES, "big") + data)


class AgentStarter:
    """The reaper's part: carries out orders from a pipe, with growing delays if agents keep dying."""

    def __init__(self, pipe: int, log: Path) -> None:
        self.pipe = pipe
        self._log = log
        self._words: tuple[str, ...] = ()
        self._due_at: float | None = None
        self._started_at = -CALM_S
        self._delay_s = FIRST_DELAY_S
        self.pid: int | None = None
        """The agent that this one started last; None once it is gone."""
        self.child: int | None = None
        """A descriptor that can be read when that agent has ended."""

    def wait_s(self) -> float | None:
        """Return the time until something is due; None if nothing is."""
        return None if self._due_at is None else max(0.0, self._due_at - time.monotonic())

    def take_order(self) -> bool:
        """Read an order; False when no other one can come."""
        head = self._read(_LENGTH_BYTES)
        size = int.from_bytes(head, "big")
        if len(head) < _LENGTH_BYTES or size > MOST_BYTES:
            return False
        try:
            self._words = _decoder.decode(self._read(size))
        except msgspec.MsgspecError:
            return False
        self._plan()
        return True

    def note_end(self, *, is_killed: bool) -> None:
        """Take in that the agent which was started last has ended."""
        self.pid = None
        if self.child is not None:
            os.close(self.child)
            self.child = None
        if is_killed:
            self._plan()

    def _plan(self) -> None:
        if self._due_at is None:
            now = time.monotonic()
            is_calm = now - self._started_at >= CALM_S
            self._delay_s = FIRST_DELAY_S if is_calm else min(2 * self._delay_s, LAST_DELAY_S)
            self._due_at = now + self._delay_s

    def start_if_due(self) -> None:
        """Start an agent, if one is due."""
        if self._due_at is None or time.monotonic() < self._due_at:
            return
        self._due_at = None
        if self.pid is not None:
            return  # the order came late: there is another one by now
        self._started_at = time.monotonic()
        with contextlib.suppress(OSError):  # no disk or no Python: the next order tries again
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            log = os.open(self._log, flags, 0o600)
            try:
                self.pid = start_program(self._words, os.environ, errors=log)
            finally:
                os.close(log)
            self.child = os.pidfd_open(self.pid)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := os.read(self.pipe, size - len(data))):
            data += more
        return data
