"""Root's side of the helpers: one for each account that has something to start. Never waits for an answer.

A helper that does not answer in time is ended: a user can stop it, or make it hang in a directory of the
user's own, and only its pending requests fail then. Knows nothing of jobs; results are passed to functions.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from mgpu_agent.channel import Channel
from mgpu_agent.run_as.account import Account, Confinement
from mgpu_agent.run_as.programs import start_helper
from mgpu_agent.run_as.requests import (
    Answer,
    Become,
    Ended,
    HelperPing,
    HelperPong,
    NotSpawned,
    Spawn,
    Spawned,
    answer_decoder,
)
from mgpu_agent.run_as.spawn import SpawnFailure

ANSWER_S = 8.0  # enough to look at a home on a slow network file system
PING_S = 2.0  # a helper with live processes is asked whether it is there: only it sees how they end
IDLE_S = 60.0
Then = Callable[[int | SpawnFailure], None]


class _Helper:
    """One helper as root sees it."""

    def __init__(self, account: Account, confinement: Confinement) -> None:
        self.account = account
        self.pid, connection = start_helper(account.name)
        self.channel: Channel[Answer] = Channel(connection, answer_decoder)
        self.channel.put(Become(account=account, confinement=confinement))
        self.waiting: dict[int, tuple[float, Then]] = {}
        """Requests without an answer: the deadline, and the function to call."""
        self.live: set[int] = set()
        """Processes that it started and whose end it has not reported."""
        self.used_at = time.monotonic()
        self.why = ""


class Helpers:
    """All helpers of a keeper, and their descriptors to poll."""

    def __init__(self, poll: select.poll) -> None:
        self.confinement = Confinement()
        """The limits of helpers that are started from now on."""
        self._poll = poll
        self._helpers: dict[tuple[Account, Confinement], _Helper] = {}
        self._ending: dict[int, _Helper] = {}
        """Helpers that were told to end and are not gone yet."""
        self._gone: list[_Helper] = []
        self._number = 0

    @property
    def pids(self) -> set[int]:
        """The pids of the helpers, which belong to no task's tree."""
        return {helper.pid for helper in self._helpers.values()} | self._ending.keys()

    def new_group(self) -> int:
        """Return a number for requests that belong together."""
        self._number += 1
        return self._number

    def spawn(
        self,
        account: Account,
        request: Spawn,
        descriptors: Sequence[int],
        then: Then,
        *,
        may_gain: bool = False,
    ) -> None:
        """Have a process started as this account; `then` is called with its pid, or why there is none. Owns
        the descriptors.

        `may_gain` leaves out `no_new_privs`, for what starts containers.
        """
        self._number += 1
        try:
            helper = self._helper_of(account, may_gain=may_gain)
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            then(
                SpawnFailure(
                    "no-helper",
                    f"The node could not start a helper for {account.name}: {error.strerror}.",
                    "node",
                )
            )
            return
        helper.waiting[self._number] = (time.monotonic() + ANSWER_S, then)
        helper.used_at = time.monotonic()
        helper.channel.put(replace(request, number=self._number), descriptors)
        self._send(helper)

    def serve(self, ready: dict[int, int]) -> list[tuple[int, int]]:
        """Read and write where the poll says it is possible; return the processes that ended, with status."""
        ended: list[tuple[int, int]] = []
        for key, helper in list(self._helpers.items()):
            events = ready.get(helper.channel.fileno(), 0)
            if events & ~select.POLLOUT:
                answers = helper.channel.receive()
                ended += self._take(helper, answers or ())
                if answers is None:
                    self._let_go(key, helper, "was ended")
                    continue
            if events:
                self._send(helper)
        return ended

    def tend(self, now: float) -> None:
        """End the helpers that do not answer, and those that were idle for a while."""
        for key, helper in list(self._helpers.items()):
            if any(now >= until for until, _ in helper.waiting.values()):
                self._let_go(key, helper, "did not answer in time")
            elif helper.live and not helper.waiting and now - helper.used_at >= PING_S:
                self._number += 1
                helper.waiting[self._number] = (now + ANSWER_S, lambda _: None)
                helper.channel.put(HelperPing(number=self._number))
                self._send(helper)
            elif not helper.waiting and not helper.live and now - helper.used_at >= IDLE_S:
                self._let_go(key, helper, "")

    def moments(self) -> Iterator[float]:
        """Yield when `tend` has something to do."""
        for helper in self._helpers.values():
            if helper.waiting:
                yield min(until for until, _ in helper.waiting.values())
            else:
                yield helper.used_at + (PING_S if helper.live else IDLE_S)

    def is_reaped(self, pid: int) -> bool:
        """Note that a child of this process has ended; tell whether it was a helper."""
        for key, helper in list(self._helpers.items()):
            if helper.pid == pid:
                self._let_go(key, helper, "was ended")
        gone_helper = self._ending.pop(pid, None)
        if gone_helper is not None:
            self._gone.append(gone_helper)
        return gone_helper is not None

    def settle(self, adopt: Callable[[int, set[int]], None]) -> None:
        """Clean up after ended helpers: `adopt` takes the processes of one; then its pending requests
        fail.
        """
        gone, self._gone = self._gone, []
        for helper in gone:
            adopt(helper.account.uid, helper.live)
            for _, then in helper.waiting.values():
                text = (
                    f"The helper of {helper.account.name} on this node {helper.why}: end what stops or "
                    f"blocks processes of this user there."
                )
                then(SpawnFailure("no-helper", text, "job"))

    def close(self) -> None:
        """Close all sockets: each helper then ends by itself."""
        for helper in self._helpers.values():
            helper.channel.close()
        self._helpers.clear()

    def _helper_of(self, account: Account, *, may_gain: bool) -> _Helper:
        bounds = replace(self.confinement, no_new_privs=self.confinement.no_new_privs and not may_gain)
        helper = self._helpers.get((account, bounds))
        if helper is None:
            helper = self._helpers[account, bounds] = _Helper(account, bounds)
            self._poll.register(helper.channel, select.POLLIN)
        return helper

    def _take(self, helper: _Helper, answers: Sequence[Answer]) -> list[tuple[int, int]]:
        ended: list[tuple[int, int]] = []
        helper.used_at = time.monotonic()
        for answer in answers:
            match answer:
                case Spawned(number=number, pid=pid) if number in helper.waiting:
                    helper.live.add(pid)
                    helper.waiting.pop(number)[1](pid)
                case NotSpawned(number=number) if number in helper.waiting:
                    failure = SpawnFailure(answer.code, answer.message, answer.fault, answer.exit_code)
                    helper.waiting.pop(number)[1](failure)
                case HelperPong(number=number):
                    helper.waiting.pop(number, None)
                case Ended(pid=pid, status=status) if pid in helper.live:
                    helper.live.discard(pid)
                    ended.append((pid, status))
                case _:
                    pass
        return ended

    def _send(self, helper: _Helper) -> None:
        helper.channel.flush()  # one that is gone is noticed when reading
        self._poll.modify(
            helper.channel, select.POLLIN | (select.POLLOUT if helper.channel.has_outgoing else 0)
        )

    def _let_go(self, key: tuple[Account, Confinement], helper: _Helper, why: str) -> None:
        """End a helper. This process adopts what it started and collects it itself; the rest is settled when
        it is gone.
        """
        del self._helpers[key]
        helper.why = why
        self._poll.unregister(helper.channel)
        helper.channel.close()
        self._ending[helper.pid] = helper
        with contextlib.suppress(ProcessLookupError):
            os.kill(helper.pid, signal.SIGKILL)
