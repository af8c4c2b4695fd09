"""What the agent's loop waits for: frames, its keeper, output, processes of jobs, threads, signals. Reads
none of it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

import zmq

from mgpu_agent.parts import Parts


class Ready(NamedTuple):
    """What can be read now."""

    link: bool
    keeper: bool
    output: bool
    woken: bool
    """A signal came, or another thread has a result."""


class Waiter:
    """One poll over all parts of an agent."""

    def __init__(self, parts: Parts) -> None:
        self._link, self._keeper, self._watch, self._jobs = parts.link, parts.keeper, parts.watch, parts.jobs
        self._wake, self._wake_writer = parts.wake
        self._poller = zmq.Poller()
        self._polled: tuple[tuple[zmq.Socket[bytes], ...], int, bool] = ((), -1, False)

    def wait(self, timeout_ms: int) -> Ready:
        """Wait for any of them, at most this long."""
        ready = dict(self._poll().poll(timeout_ms))
        woken = self._wake.fileno() in ready
        if woken:
            self._wake.recv(4096)
        return Ready(
            link=not ready.keys().isdisjoint(self._link.sockets),
            keeper=self._keeper.fileno() in ready,
            output=self._watch.fileno() in ready,
            woken=woken,
        )

    def catch_signals(
        self, handler: Callable[[int, FrameType | None], None], *, ignores_hangup: bool
    ) -> None:
        """Handle the signals that end an agent, and wake its wait."""
        self._wake.setblocking(False)
        self._wake_writer.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handler)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignores_hangup else handler)

    def _poll(self) -> zmq.Poller:
        """Return the poller for the sockets that are open now; a new one only when these changed."""
        polled = (self._link.sockets, self._keeper.fileno(), self._keeper.has_outgoing)
        if polled != self._polled:
            self._polled = polled
            self._poller = zmq.Poller()
            for connection in self._link.sockets:
                self._poller.register(connection, zmq.POLLIN)
            self._poller.register(
                self._keeper.fileno(), zmq.POLLIN | (zmq.POLLOUT if self._keeper.has_outgoing else 0)
            )
            for part in (self._watch, self._wake, self._jobs):
                if part is not None:
                    self._poller.register(part.fileno(), zmq.POLLIN)
        return self._poller
