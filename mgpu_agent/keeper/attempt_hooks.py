"""An attempt and its hooks: none of its processes starts before its prolog succeeded, and it is over only
when its epilog is.

The end of the last process of an attempt is held back while its epilog runs, so that agent and master hand
out its GPUs only then, and a restarted agent finds an attempt that runs. The ledger has the epilogs that are
still to be run: a keeper runs those that an earlier one did not, and repeats one that was cut off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from mgpu_agent.keeper.hooks import EPILOG, LOST, PROLOG, STATES, HookRunner
from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.messages import FromKeeper, Hooks, StartTasks, TaskChanged, TaskRecord
from mgpu_agent.keeper.ports import Host
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.run_as.spawn import SpawnFailure


class AliveAttempts(Protocol):
    """What is needed of the live tasks."""

    def has_attempt(self, key: AttemptKey) -> bool:
        """Tell whether a task of this attempt is alive."""


class AttemptHooks:
    """The attempts that have hooks."""

    def __init__(
        self,
        ledger: Ledger,
        alive: AliveAttempts,
        host: Host,
        runner: HookRunner,
        answer: Callable[[FromKeeper], None],
    ) -> None:
        self.runner = runner
        self._ledger = ledger
        self._alive = alive
        self._host = host
        self._answer = answer
        self._causes: dict[AttemptKey, str] = {}
        """Why attempts are being ended, for their epilogs."""

    def note(self, start: StartTasks) -> None:
        """Record the hooks of a launch, before anything of it is started."""
        if start.prolog or start.epilog:
            spool = self._ledger.known(start.key)[0].spool
            hooks = Hooks(
                start.prolog, start.epilog, start.ranks[0].env, start.cwd, start.account, spool, start.facts
            )
            self._ledger.note_hooked(start.key, hooks)

    def outside(self, record: TaskRecord) -> TaskRecord:
        """Return the record that the agent is told: an attempt is over only when its epilog is."""
        is_held = (
            record.ended_at is not None
            and record.key in self._ledger.hooks
            and not self._alive.has_attempt(record.key)
        )
        return (
            replace(record, ended_at=None, exit_code=None, signal=None, reason="", lost=False)
            if is_held
            else record
        )

    def stop(self, key: AttemptKey, grace_s: float, cause: str) -> bool:
        """Note why an attempt is ended; tell whether that is all, because only its prolog runs."""
        if key in self._ledger.hooks:
            self._causes.setdefault(key, cause)
        if not self.runner.is_running(key, PROLOG):
            return False
        self.runner.stop(key, grace_s, time.monotonic())
        return True

    def run_prolog(
        self,
        start: StartTasks,
        go_on: Callable[[StartTasks], None],
        refuse: Callable[[StartTasks, SpawnFailure, str], None],
    ) -> None:
        """Run the prolog of a launch, and then start it or refuse it."""

        def then(problem: str, is_sites: bool) -> None:
            if not problem and start.key not in self._causes:
                go_on(start)
            elif start.key in self._causes:
                refuse(
                    start, SpawnFailure("stopped", "It was stopped before it started.", "stale"), "cancelled"
                )
            else:
                failure = SpawnFailure(
                    "prolog-failed", f"Its prolog {problem}.", "node" if is_sites else "prolog"
                )
                refuse(start, failure, "prolog-failed")

        self.runner.begin(start.key, PROLOG, self._ledger.hooks[start.key], {}, then)

    def run_epilog(self, key: AttemptKey, state: str, exit_code: int, then: Callable[[], None]) -> None:
        """Run the epilog of an attempt, and call `then` when it has ended."""

        def tidied(problem: str, _: bool) -> None:
            if problem:
                self._host.complain(f"The epilog of {key} {problem}.")
            self._causes.pop(key, None)
            reach("keeper.tidied")
            self._ledger.note_tidied(key)
            then()

        extra = {b"MGPU_STATE": state.encode(), b"MGPU_EXIT_CODE": str(exit_code).encode()}
        self.runner.begin(key, EPILOG, self._ledger.hooks[key], extra, tidied)

    def tidy(self, key: AttemptKey) -> None:
        """Run the epilog of an attempt of which nothing runs any more, and then report its end."""
        records = self._ledger.known(key)
        codes = [
            128 + record.signal if record.signal is not None else record.exit_code or 0 for record in records
        ]
        code = next((code for code in codes if code), 0)
        is_lost = any(record.lost for record in records)
        state = LOST if is_lost else STATES.get(self._causes.get(key, ""), "failed" if code else "completed")
        self.run_epilog(key, state, code, lambda: self._tell(key))

    def take_up(self) -> None:
        """Run the epilogs that an earlier keeper did not."""
        for key in list(self._ledger.hooks):
            if not self._alive.has_attempt(key) and not self.runner.is_busy(key) and self._ledger.known(key):
                self.tidy(key)

    def _tell(self, key: AttemptKey) -> None:
        for record in self._ledger.known(key):
            if record.ended_at is not None:
                final = self._ledger.note_ended(
                    key,
                    record.rank,
                    ended_at=record.ended_at,
                    exit_code=record.exit_code,
                    signal=record.signal,
                    reason=record.reason,
                    lost=record.lost,
                    sizes=self._host.sizes(record.spool),  # its epilog may have written
                )
                self._answer(TaskChanged(record=final))
