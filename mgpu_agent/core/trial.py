"""A trial: a process that is prepared and started like a job's, waited for, reported and forgotten. Events
in, commands out; pure.

Its name cannot be a job's, so that events of a trial stay here and never become a report about a job.
"""

from __future__ import annotations

from mgpu_agent.core.commands import Command, ForgetAttempts, Send, StartLaunch, StopAttempt
from mgpu_agent.core.events import LaunchFailed, TaskTold
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import Probe, Probed
from mgpu_agent.protocol.model import LaunchSpec, NodeFacts, TaskSpec, TaskStatus

LIMIT_S = 10.0
NOBODY = ""  # a trial has no user
NAME = "trial-"  # ids of jobs consist of capitals and digits
# A cell without a working directory of its own, so that script, scratch, output files and the start
# itself are all tried.
SCRIPT = "#!/bin/sh\nexit 0\n"


class Trial:
    """The trial that is under way, if any."""

    def __init__(self) -> None:
        self._number = 0
        self._key: AttemptKey | None = None
        self._until = 0.0

    @staticmethod
    def owns(key: AttemptKey) -> bool:
        """Tell whether this key is of a trial, also of an earlier one."""
        return key.job_id.startswith(NAME)

    def begin(
        self, message: Probe, node_id: NodeId, facts: NodeFacts | None, at: float, wall: float
    ) -> list[Command]:
        """Start a trial; an earlier one that is not over is given up."""
        commands = self._stop()
        self._number = message.number
        if facts is None:
            return [*commands, *self._tell("Its keeper is away.")]
        self._key = AttemptKey(JobId(f"{NAME}{wall * 1000:.0f}"), 1, message.number)
        self._until = at + LIMIT_S
        spec = LaunchSpec(
            key=self._key,
            node_id=node_id,
            incarnation=facts.incarnation,
            user=NOBODY,
            tasks=(TaskSpec(rank=0),),
            script=SCRIPT,
        )
        return [*commands, StartLaunch(spec=spec)]

    def take(self, event: TaskTold | LaunchFailed) -> list[Command] | None:
        """Handle an event of a trial; None means that the event is about a job."""
        if isinstance(event, TaskTold):
            return self.on_task(event.status) if self.owns(event.status.key) else None
        if not self.owns(event.key):
            return None
        return self._tell(event.message) if event.key == self._key else []

    def on_task(self, status: TaskStatus) -> list[Command]:
        """Handle the start or end of a trial's process."""
        if status.ended_at is None:
            return [] if status.key == self._key else [_stop(status.key)]
        forget = ForgetAttempts(keys=(status.key,))
        if status.key != self._key:
            return [forget]
        if status.exit_code == 0:
            return [forget, *self._tell("")]
        how = f"signal {status.signal}" if status.signal is not None else f"exit code {status.exit_code}"
        return [
            forget,
            *self._tell(f"A trial start ended with {how}{f' ({status.reason})' if status.reason else ''}."),
        ]

    def on_tick(self, at: float) -> list[Command]:
        """Give up a trial that takes too long."""
        if self._key is None or at < self._until:
            return []
        return [*self._stop(), *self._tell(f"A trial start was not over within {LIMIT_S:g} s.")]

    def _stop(self) -> list[Command]:
        return [] if self._key is None else [_stop(self._key)]

    def _tell(self, problem: str) -> list[Command]:
        self._key = None
        return [Send(message=Probed(number=self._number, ok=not problem, message=problem))]


def _stop(key: AttemptKey) -> StopAttempt:
    return StopAttempt(key=key, grace_s=0.0, reason="This trial is over.")
