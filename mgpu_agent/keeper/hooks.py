"""Runs prologs and epilogs: commands of the site and of the job, one after the other, each with a time limit.
Decides nothing about attempts.

Each is a process with a key that is no attempt's, so that a stop of the attempt does not end the epilog. A
prolog that fails ends the sequence; of epilogs all run. Their output goes to the spool files of the attempt's
first process.

Hooks of the site run as the agent's own user in `/`, with its environment and mgpu's facts about the attempt:
nothing that the job's user chose. Those of the job run as its processes do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from mgpu_agent.keeper.live_tasks import LiveTask
from mgpu_agent.keeper.messages import MARKER, Hook, Hooks
from mgpu_agent.keeper.ports import Host, Processes
from mgpu_agent.keeper.trees import marker_value
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.run_as.account import login_environment
from mgpu_agent.run_as.requests import Spawn
from mgpu_agent.run_as.spawn import SpawnFailure

PROLOG = "prolog"
EPILOG = "epilog"
LOST = "lost"
GRACE_S = 5.0
STATES = {
    "cancelled": "cancelled",
    "timeout": "timeout",
    "rank_failed": "failed",
    "requeue": "requeued",
    "preempted": "requeued",
    LOST: LOST,
}
"""The state in which an attempt ended, by the cause of its stop."""
Then = Callable[[str, bool], None]
"""Called with what went wrong, or an empty string, and whether it was a hook of the site."""


class _Run:
    def __init__(
        self, key: AttemptKey, kind: str, hooks: Hooks, extra: dict[bytes, bytes], then: Then
    ) -> None:
        self.key = key
        self.kind = kind
        self.hooks = hooks
        self.extra = extra
        self.then = then
        self.left = list(hooks.prolog if kind == PROLOG else hooks.epilog)
        self.step: Hook | None = None
        self.until = 0.0
        self.is_late = False
        self.problem = ""
        self.is_sites = False


class HookRunner:
    """The hooks that run now."""

    def __init__(
        self, ledger_id: str, live: Processes, host: Host, base: Callable[[], dict[bytes, bytes]]
    ) -> None:
        self._ledger_id = ledger_id
        self._live = live
        self._host = host
        self._base = base
        self._runs: dict[AttemptKey, _Run] = {}

    def owns(self, key: AttemptKey) -> bool:
        """Tell whether this is the key of a hook, not of an attempt."""
        return key in self._runs

    def is_running(self, key: AttemptKey, kind: str) -> bool:
        """Tell whether the prolog or epilog of an attempt runs."""
        return _name(key, kind) in self._runs

    def is_busy(self, key: AttemptKey) -> bool:
        """Tell whether any hook of an attempt runs."""
        return self.is_running(key, PROLOG) or self.is_running(key, EPILOG)

    def moments(self) -> Iterable[float]:
        """Yield the deadlines of running hooks."""
        return (run.until for run in self._runs.values() if not run.is_late)

    def begin(self, key: AttemptKey, kind: str, hooks: Hooks, extra: dict[bytes, bytes], then: Then) -> None:
        """Run all hooks of this kind; `then` is called with the result."""
        run = self._runs[_name(key, kind)] = _Run(key, kind, hooks, extra, then)
        self._next(run)

    def stop(self, key: AttemptKey, grace_s: float, now: float) -> None:
        """End the prolog of an attempt, if it runs."""
        if (run := self._runs.get(_name(key, PROLOG))) is not None:
            run.problem = "was stopped"
            self._live.stop(_name(key, PROLOG), grace_s, "stopped", now)

    def press(self, now: float) -> None:
        """End the hooks whose time is over."""
        for name, run in self._runs.items():
            if now >= run.until and not run.is_late:
                run.is_late = True
                self._live.stop(name, GRACE_S, "time limit", now)

    def finished(self, task: LiveTask) -> None:
        """Note that a hook has ended, and start the next."""
        run = self._runs[task.key]
        if run.is_late and run.step is not None:
            self._fail(run, f"was not over within {run.step.limit_s:g} s")
        elif task.signal is not None:
            self._fail(run, f"ended with signal {task.signal}")
        elif task.exit_code:
            self._fail(run, f"failed with exit code {task.exit_code}")
        self._next(run)

    def _next(self, run: _Run) -> None:
        while run.left and not (run.problem and run.kind == PROLOG):
            run.step = run.left.pop(0)
            if (problem := self._start(run, run.step)) is None:
                return
            self._fail(run, problem)
        del self._runs[_name(run.key, run.kind)]
        run.then(run.problem, run.is_sites)

    def _fail(self, run: _Run, problem: str) -> None:
        if not run.problem:
            run.problem = problem
            run.is_sites = run.step is not None and run.step.site

    def _start(self, run: _Run, step: Hook) -> str | None:
        """Start one hook; return why that failed, if it is known already."""
        account = None if step.site else run.hooks.account
        marker = marker_value(self._ledger_id, _name(run.key, run.kind), 0)
        base = self._base() if account is None else login_environment(account, self._base())
        of_job = {} if step.site else run.hooks.env
        env = {
            **base,
            **of_job,
            **run.hooks.facts,
            **run.extra,
            b"MGPU_HOOK": run.kind.encode(),
            MARKER: marker,
        }
        argv = (b"/bin/sh", b"-c", step.command.encode())
        run.until = time.monotonic() + step.limit_s
        run.is_late = False
        reach("keeper.hook")
        if account is not None:
            request = Spawn(
                number=0, group=self._host.new_group(), argv=argv, env=env, cwd=run.hooks.cwd, or_root=True
            )
            self._host.spawn_as(
                account, request, run.hooks.spool, lambda pid: self._started_as(run, pid, marker, account.uid)
            )
            return None
        if step.site or self._host.enter(run.hooks.cwd):
            self._host.leave()
        pid = self._host.spawn(argv, env, run.hooks.spool)
        self._host.leave()
        if isinstance(pid, SpawnFailure):
            return _not_started(pid)
        self._begun(run, pid, marker, uid=None)
        return None

    def _started_as(self, run: _Run, pid: int | SpawnFailure, marker: bytes, uid: int) -> None:
        """Note the answer of an account's helper."""
        if isinstance(pid, SpawnFailure):
            self._fail(run, _not_started(pid))
            self._next(run)
            return
        self._begun(run, pid, marker, uid=uid)
        # A prolog with a problem was to stop before it started; an epilog runs whatever those before did.
        if (run.problem and run.kind == PROLOG) or run.is_late:
            self._live.stop(_name(run.key, run.kind), 0.0, "stopped", time.monotonic())

    def _begun(self, run: _Run, pid: int, marker: bytes, *, uid: int | None) -> None:
        task = LiveTask(_name(run.key, run.kind), 0, pid, marker, uid=uid)
        task.told = True
        self._live.add(task)


def _not_started(failure: SpawnFailure) -> str:
    return f"could not be started: {failure.message.removesuffix('.')}"


def _name(key: AttemptKey, kind: str) -> AttemptKey:
    return AttemptKey(JobId(f"{kind}-{key.job_id}"), key.attempt, key.epoch)
