"""Bugs that are planted on purpose, to show that the storm finds them: each breaks one promise of the product
in one place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from mgpu_agent.keeper.leases import Leases
from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.machine import KeeperMachine
from mgpu_jupyter.master import master as master_module
from mgpu_jupyter.master.ports import Batch
from mgpu_jupyter.master.turn import Turn
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import attempts
from mgpu_jupyter.scheduler.commands import LaunchTask, StopTask
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.store.memory import MemoryStore
from tests.storm.server import CheckedMaster, Store


def any_attempt_is_the_current_one() -> Any:
    """A report of an attempt that is over is taken for one of the present attempt."""
    original = attempts.on_task_reported

    def reported(state: Any, at: float, status: Any) -> Any:
        job = state.jobs.get(status.key.job_id)
        if job is not None and job.state is not JobState.QUEUED:
            status = replace(status, key=job.attempt_key)
        return original(state, at, status)

    return patch.object(attempts, "on_task_reported", reported)


def launches_leave_before_the_commit() -> Any:
    """A launch is sent as soon as it is decided."""
    original = CheckedMaster.apply

    def apply(self: Any, turn: Any, event: Any) -> None:
        original(self, turn, event)
        for send in [send for send in turn.sends if isinstance(send, LaunchTask)]:
            turn.sends.remove(send)
            self.link.send([send])
        self.link.flush()

    return patch.object(CheckedMaster, "apply", apply)


def answers_leave_before_the_commit() -> Any:
    """A request is answered as soon as it was looked at."""

    class Hasty(list[Any]):
        def append(self, reply: Any) -> None:
            reply()

    return patch.object(master_module, "new_turn", lambda: Turn(Batch(), replies=Hasty()))


def fences_are_too_short() -> Any:
    """The master gives a fenced attempt up before its node does."""
    return patch.object(Policy, "fence_of", lambda self, spec: 0.4 * self.lease_of(spec))


def epochs_are_not_kept() -> Any:
    """A master that restarts counts epochs from the beginning."""
    original = MemoryStore.recover

    def recover(self: Any) -> Any:
        recovered = original(self)
        return replace(recovered, epoch=max(0, recovered.epoch - 3))

    return patch.object(Store, "recover", recover)


def ledger_is_not_asked() -> Any:
    """A launch is carried out however often it comes."""
    return patch.object(KeeperMachine, "_is_new", lambda self, start: True)


def stops_leave_no_trace() -> Any:
    """A launch that comes after its stop is carried out."""
    return patch.object(Ledger, "refusal", lambda self, key: None)


def keys_are_not_looked_up() -> Any:
    """A submit that is repeated is a new job."""
    return patch.object(Store, "find_by_key", lambda self, user, key: None)


def leases_never_run_out() -> Any:
    """The keeper lets fenced attempts run on."""
    return patch.object(Leases, "take_due", lambda self, now: [])


def what_is_told_to_end_counts_as_ended() -> Any:
    """A job is over as soon as its nodes are told to end it."""
    original = attempts.stop_attempt

    def stop(state: Any, job: Any, cause: Any, reason: Any, at: Any = None) -> Any:
        stops = [
            command for command in original(state, job, cause, reason, at) if isinstance(command, StopTask)
        ]
        return (
            [
                *attempts._finish(
                    state, state.now, replace(state.jobs.get(job.id, job), stop=cause, reason=reason)
                ),
                *stops,
            ]
            if stops
            else original(state, job, cause, reason, at)
        )

    return patch.object(attempts, "stop_attempt", stop)


def ends_are_forgotten_before_they_are_saved() -> Any:
    """A node is told to forget an end that the master has not committed."""
    from mgpu_jupyter.engines.agents.collect import Collector

    original = Collector.take_ends

    def take_ends(self: Any, node_id: Any, told: Any) -> None:
        original(self, node_id, told)
        self.committed()

    return patch.object(Collector, "take_ends", take_ends)


MUTANTS = (
    any_attempt_is_the_current_one,
    launches_leave_before_the_commit,
    answers_leave_before_the_commit,
    fences_are_too_short,
    epochs_are_not_kept,
    ledger_is_not_asked,
    stops_leave_no_trace,
    keys_are_not_looked_up,
    leases_never_run_out,
    what_is_told_to_end_counts_as_ended,
    ends_are_forgotten_before_they_are_saved,
)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant one of them."""
    (mutant,) = (one for one in MUTANTS if one.__name__ == name)
    with mutant():
        yield
