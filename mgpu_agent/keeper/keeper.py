"""The keeper's loop: waits for its agent, its children and its alarm, and lets its machine decide. No
network, no threads.

Everything between two waits is done in this order: messages, a few starts, ends, then one ledger write and
one socket write.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path

from mgpu_agent.channel import Channel
from mgpu_agent.keeper.agent_starter import order_agent
from mgpu_agent.keeper.alarm import Alarm
from mgpu_agent.keeper.consoles import Consoles
from mgpu_agent.keeper.host import ThisMachine, listen, take_lock
from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.live_tasks import LiveTasks
from mgpu_agent.keeper.machine import KeeperMachine
from mgpu_agent.keeper.messages import (
    AGENT_LOG_NAME,
    LEDGER_NAME,
    SPOOL_NAME,
    FromKeeper,
    ToKeeper,
    to_keeper_decoder,
)
from mgpu_agent.keeper.reaper import be_guarded
from mgpu_agent.keeper.recovery import end_lost_tasks
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.run_as.account import Confinement
from mgpu_agent.run_as.cgroups import Cgroups
from mgpu_agent.run_as.helper_pool import Helpers


class Keeper:
    """Parent of all job processes of one node directory."""

    def __init__(self, directory: Path, ledger: Ledger, idle_s: float, orders: int | None = None) -> None:
        self._ledger = ledger
        self._orders = orders
        """The pipe by which another agent is ordered when the last one was killed."""
        self._idle_s = idle_s
        self._alarm = Alarm()
        self._channel: Channel[ToKeeper] | None = None
        self._terminated = False
        self._idle_since = time.monotonic()
        self._wake, self._wake_writer = socket.socketpair()
        self._listener = listen(directory)
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(self._alarm, select.POLLIN)
        self._consoles = Consoles(self._poll, directory / SPOOL_NAME)
        self._helpers = Helpers(self._poll)
        self._live = LiveTasks(self._helpers)
        self._host = host = ThisMachine(directory / SPOOL_NAME, self._helpers)
        self._machine = KeeperMachine(
            ledger, self._live, host, self._say, typing=self._consoles, confine=self._confine
        )

    def run(self) -> None:
        """Serve until nothing lives and no agent needs this keeper."""
        self._watch_signals()
        while not self._may_end():
            ready = dict(self._poll.poll(self._timeout_ms()))
            if self._wake.fileno() in ready:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
            if self._listener.fileno() in ready:
                self._accept()
            elif self._channel is not None and self._channel.fileno() in ready:
                self._read_agent(self._channel)
            if self._alarm.fileno() in ready:
                self._alarm.clear()
            for ack in self._consoles.serve(ready):
                self._say(ack)
            self._live.note_ends(self._helpers.serve(ready))
            self._helpers.tend(time.monotonic())
            self._machine.turn()
            self._helpers.settle(self._live.adopt)
            self._alarm.set(self._machine.lease_at())
            self._send()

    def close(self) -> None:
        """Close every handle."""
        signal.set_wakeup_fd(-1)
        if self._channel is not None:
            self._channel.close()
        for handle in (self._listener, self._wake, self._wake_writer, self._alarm):
            handle.close()
        self._consoles.close()
        self._helpers.close()
        if self._host.cgroups is not None:
            self._host.cgroups.close()
        self._ledger.close()

    # --- the loop's parts --------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        self._wake.setblocking(False)
        self._wake_writer.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._terminate())

    def _confine(self, confinement: Confinement) -> None:
        self._helpers.confinement = confinement
        if confinement.cgroups and self._host.cgroups is None:
            cgroups = Cgroups(self._ledger.ledger_id)
            if problem := cgroups.problem():
                self._host.complain(f"Jobs are not bound to what they asked for: {problem}.")
            else:
                self._host.cgroups = cgroups

    def _terminate(self) -> None:
        self._terminated = True

    def _may_end(self) -> bool:
        if self._terminated:
            self._machine.shut_down()
            return not self._machine.is_busy
        is_leaving = self._machine.is_leaving
        if self._machine.is_busy or (self._channel is not None and not is_leaving):
            self._idle_since = time.monotonic()
            return False
        return is_leaving or time.monotonic() - self._idle_since >= self._idle_s

    def _timeout_ms(self) -> float | None:
        if self._machine.has_pending or self._live.has_told:
            return 0
        moments = [self._idle_since + self._idle_s] if self._channel is None else []
        if (next_at := self._machine.next_at()) is not None:
            moments.append(next_at)
        moments += self._helpers.moments()
        if not moments:
            return None
        return max(0.0, (min(moments) - time.monotonic()) * 1000 + 0.5)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, user, _ = struct.unpack("3i", credentials)
        if user != os.getuid():
            connection.close()
            return
        if self._channel is not None:
            self._drop_agent()
        self._machine.is_leaving = self._machine.is_attached = False
        self._channel = Channel(connection, to_keeper_decoder)
        self._poll.register(self._channel, select.POLLIN)

    def _drop_agent(self) -> None:
        if self._channel is not None:
            self._poll.unregister(self._channel)
            self._channel.close()
            self._channel = None
            self._idle_since = time.monotonic()

    def _lose_agent(self) -> None:
        """Let go of an agent that is gone, and have another one started unless it took its leave."""
        self._drop_agent()
        if self._orders is not None and self._machine.again and not self._machine.is_leaving:
            order_agent(self._orders, self._machine.again)

    def _read_agent(self, channel: Channel[ToKeeper]) -> None:
        messages = channel.receive()
        if messages is None:
            self._lose_agent()
            return
        for message in messages:
            self._machine.obey(message)

    def _say(self, message: FromKeeper) -> None:
        if self._channel is not None:
            self._channel.put(message)

    def _send(self) -> None:
        if self._channel is None:
            return
        if has_news := self._channel.has_outgoing:
            reach("keeper.report.before")
        if not self._channel.flush():
            for message in self._channel.receive() or ():  # its leave may be there to be read
                self._machine.obey(message)
            self._lose_agent()
            return
        if has_news:
            reach("keeper.report.after")
        self._poll.modify(
            self._channel, select.POLLIN | select.POLLOUT if self._channel.has_outgoing else select.POLLIN
        )


def keep(directory: Path, boot_id: str, idle_s: float, lost_reason: str) -> int:
    """Be the keeper of `directory` until there is nothing to keep; return the exit code."""
    lock = take_lock(directory)
    if lock is None:
        print(f"Another keeper looks after {directory}.", file=sys.stderr)  # noqa: T201 - its log
        return 1
    try:
        orders = be_guarded(directory / AGENT_LOG_NAME)
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        ledger = Ledger(directory / LEDGER_NAME, boot_id)
        end_lost_tasks(ledger, ThisMachine(directory / SPOOL_NAME), lost_reason)
        keeper = Keeper(directory, ledger, idle_s, orders)
        try:
            keeper.run()
        finally:
            keeper.close()
    finally:
        os.close(lock)
    return 0
