"""What the master wants run here, and what became of it: launches, stops, ends. Part of the agent's machine; knows no connection."""

from __future__ import annotations

from mgpu_agent.core.attempts import Attempts
from mgpu_agent.core.commands import Command, FollowOutput, ForgetTasks, ReadGpus, Send, StartTasks
from mgpu_agent.core.events import LaunchFailed, TaskChanged
from mgpu_agent.core.gpus import Gpus
from mgpu_agent.core.launches import stop_command, why_not
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.messages import Heartbeat, LaunchRefused, Stop, TaskReport
from mgpu_agent.protocol.model import LaunchSpec, NodeFacts, TaskStatus


class Work:
    """Every attempt on this node that is not forgotten, and what is under way for it."""

    def __init__(self, node_id: NodeId, gpus: Gpus) -> None:
        self.attempts = Attempts()
        self.facts: NodeFacts | None = None
        """What the node is; None while its keeper is away."""
        self._node_id = node_id
        self._gpus = gpus
        self._launches: dict[AttemptKey, LaunchSpec] = {}
        self._stops: dict[AttemptKey, Stop] = {}

    # --- the master's wishes -------------------------------------------------------------------------

    def launch(self, spec: LaunchSpec) -> list[Command]:
        """Start this, or tell what is known of it already."""
        key = spec.key
        if known := self.attempts.statuses(key):
            return [Send(message=TaskReport(status=status)) for status in known]
        if key in self.attempts:
            return []
        if (refusal := why_not(spec, self._node_id, self.facts, self.attempts, self._gpus)) is not None:
            return [Send(message=refusal)]
        self.attempts.expect(key, spec.gpus, (task.rank for task in spec.tasks))
        self._launches[key] = spec
        return [StartTasks(spec=spec)] if self.facts is not None else []

    def stop(self, message: Stop) -> list[Command]:
        """End this attempt, or see to it that it never starts."""
        if self.attempts.is_over(message.key):
            return [Send(message=TaskReport(status=status)) for status in self.attempts.statuses(message.key)]
        self._stops[message.key] = message
        return [stop_command(message)] if self.facts is not None else []

    def forget(self, keys: tuple[AttemptKey, ...]) -> list[Command]:
        """Let go of what the master has saved; what is not over stays."""
        gone = tuple(key for key in keys if key not in self.attempts or self.attempts.is_over(key))
        for key in gone:
            self.attempts.drop(key)
            self._stops.pop(key, None)
        return [ForgetTasks(keys=gone)] if gone else []

    # --- the keeper's news ---------------------------------------------------------------------------

    def attach(self, tasks: list[TaskStatus], at: float) -> list[Command]:
        """Take in all that a keeper knows, and ask it again for what it was asked in vain."""
        commands: list[Command] = []
        for status in tasks:
            if self.attempts.take(status, at):
                self._let_go(status, at)
            self._launches.pop(status.key, None)
            commands.append(FollowOutput(status=status))
        commands += [StartTasks(spec=self._launches[key]) for key in self.attempts.unanswered()]
        for key, stop in list(self._stops.items()):
            if self.attempts.is_over(key):
                del self._stops[key]
            else:
                commands.append(stop_command(stop))
        return commands

    def task_changed(self, event: TaskChanged, wall: float, *, may_tell: bool) -> list[Command]:
        """Take in that a process started or ended."""
        status = event.status
        is_news = self.attempts.take(status, event.at)
        self._launches.pop(status.key, None)
        if self._stops and self.attempts.is_over(status.key):
            self._stops.pop(status.key, None)
        commands: list[Command] = [FollowOutput(status=status)] if is_news else []
        is_freed = is_news and self._let_go(status, event.at)
        if may_tell:
            if is_freed:  # told before the end, so that the master hands nothing on that is not back
                commands += [Send(message=Heartbeat(at=wall, samples=self._gpus.samples)), ReadGpus()]
            commands.append(Send(message=TaskReport(status=status)))
        return commands

    def launch_failed(self, event: LaunchFailed, *, may_tell: bool) -> list[Command]:
        """Take in that nothing was started and nothing will be."""
        self.attempts.drop(event.key)
        self._launches.pop(event.key, None)
        self._stops.pop(event.key, None)
        if not may_tell:
            return []  # the master asks again after `Hello`, and the ledger knows the answer
        refusal = LaunchRefused(key=event.key, code=event.code, message=event.message, fault=event.fault, exit_code=event.exit_code)
        return [Send(message=refusal)]

    def _let_go(self, status: TaskStatus, at: float) -> bool:
        """Note the GPUs that the end of an attempt frees; tell whether their memory must be looked at."""
        return bool(status.gpus) and self.attempts.is_over(status.key) and self._gpus.free(status.gpus, at)
