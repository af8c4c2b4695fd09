"""The work of this node: launches, preparations, stops and ends of attempts. Part of the machine; does not
know the connection.
"""

from __future__ import annotations

from mgpu_agent.core.attempts import Attempts
from mgpu_agent.core.commands import (
    Command,
    FollowOutput,
    ForgetAttempts,
    MeetPeers,
    PassOn,
    PrepareLaunch,
    ReadGpus,
    RenewLeases,
    Send,
    StartLaunch,
    StopAttempt,
)
from mgpu_agent.core.events import LaunchFailed, LaunchPrepared, PeersMet, TaskTold
from mgpu_agent.core.gpus import Gpus
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.meeting import MeetingPoint
from mgpu_agent.protocol.messages import (
    Forget,
    Heartbeat,
    Input,
    InputAck,
    LaunchRefused,
    Meet,
    Met,
    Prepare,
    Prepared,
    Resize,
    Stop,
    TaskReport,
    Warn,
)
from mgpu_agent.protocol.model import LaunchSpec, NodeFacts, TaskStatus

REFUSALS_KEPT = 10_000  # the newest of one connection: a few MB


class Refusals:
    """The launches that were refused on the present connection, and stay refused.

    A master that hears that an attempt never starts here starts another one elsewhere. So a launch that
    arrives again, or an earlier copy of it that was delayed, must not be carried out, even if it could be by
    now. Refusals of a lost connection need not be kept: the master repeats what was not answered.
    """

    def __init__(self) -> None:
        self._all: dict[AttemptKey, LaunchRefused] = {}

    def of(self, key: AttemptKey) -> LaunchRefused | None:
        """Return the refusal of this attempt, if it was refused."""
        return self._all.get(key)

    def note(self, refusal: LaunchRefused) -> LaunchRefused:
        """Remember a refusal, and return it."""
        self._all[refusal.key] = refusal
        if len(self._all) > REFUSALS_KEPT:
            del self._all[next(iter(self._all))]
        return refusal

    def forget(self) -> None:
        """Forget all, because there is a new connection."""
        self._all.clear()


def why_not(
    spec: LaunchSpec, node_id: NodeId, facts: NodeFacts | None, attempts: Attempts, gpus: Gpus
) -> LaunchRefused | None:
    """Return the refusal of a launch that this node cannot take now, or None."""

    def refused(code: str, message: str, fault: str) -> LaunchRefused:
        return LaunchRefused(key=spec.key, code=code, message=message, fault=fault)

    if spec.node_id != node_id:
        return refused("wrong-node", f"This is node {node_id}, not {spec.node_id}.", "stale")
    if facts is not None:
        if spec.incarnation != facts.incarnation:
            return refused(
                "stale", "The launch was meant for the node as it was before it started anew.", "stale"
            )
        missing = set(spec.gpus) - {gpu.uuid for gpu in facts.gpus}
        if missing:
            return refused("no-such-gpu", f"This node has no GPU {', '.join(sorted(missing))}.", "node")
    if problem := gpus.lost(spec.gpus):
        return refused("gpu-lost", problem, "node")
    if (holder := attempts.holder(spec.gpus)) is not None:
        return refused("gpu-busy", f"A GPU of this launch is still held by attempt {holder}.", "node")
    return None


def stop_command(message: Stop) -> StopAttempt:
    """Return the keeper's command for a `Stop` of the master."""
    return StopAttempt(key=message.key, grace_s=message.grace_s, reason=message.reason, cause=message.cause)


class HeldLaunch:
    """A launch that waits for its `Start`, and its deadline."""

    def __init__(self, message: Prepare, at: float) -> None:
        self.spec = message.spec
        self.until = at + message.hold_s
        self.is_ready = False
        """Whether it is known that it can be started."""
        self.offer: MeetingPoint | None = None
        self.in_scratch = False
        self.meeting: Meet | None = None
        self.met: Met | None = None
        """The result of the meeting, once it is known."""

    @property
    def answer(self) -> Prepared:
        """What the master is told when it is ready."""
        return Prepared(key=self.spec.key, offer=self.offer, in_scratch=self.in_scratch)


class Work:
    """Every attempt on this node that is not forgotten, and what is under way for it."""

    def __init__(self, node_id: NodeId, gpus: Gpus) -> None:
        self.attempts = Attempts()
        self.facts: NodeFacts | None = None
        """The description of the node; None while its keeper is away."""
        self._node_id = node_id
        self._gpus = gpus
        self._launches: dict[AttemptKey, StartLaunch] = {}
        self._prepared: dict[AttemptKey, HeldLaunch] = {}
        self._alive_at = 0.0
        self._stops: dict[AttemptKey, Stop] = {}
        self.refusals = Refusals()

    # --- the master's messages -----------------------------------------------------------------------

    def launch(self, spec: LaunchSpec) -> list[Command]:
        """Start this launch, or report its state if it is known already."""
        key = spec.key
        if known := self.attempts.statuses(key):
            return [Send(message=TaskReport(status=status)) for status in known]
        if key in self._prepared:
            return self.start(key, spec)
        if key in self.attempts:
            return []
        if (refusal := self._refusal_of(spec)) is not None:
            return self._refuse(refusal)
        self.attempts.expect(key, spec.gpus, (task.rank for task in spec.tasks))
        return self._begin(spec)

    def prepare(self, message: Prepare, at: float) -> list[Command]:
        """Reserve GPUs for a launch and check whether it can be carried out; start nothing."""
        spec = message.spec
        key = spec.key
        if known := self.attempts.statuses(key):
            return [Send(message=TaskReport(status=status)) for status in known]
        if (before := self._prepared.get(key)) is not None:
            before.until = at + message.hold_s
            return [Send(message=before.answer)] if before.is_ready else []
        if key in self.attempts:
            return []
        if (refusal := self._refusal_of(spec)) is not None:
            return self._refuse(refusal)
        if self.facts is None:
            return self._refuse(
                LaunchRefused(
                    key=key, code="keeper-away", message="The node's keeper is away.", fault="stale"
                )
            )
        self.attempts.expect(key, spec.gpus, (task.rank for task in spec.tasks))
        self._prepared[key] = HeldLaunch(message, at)
        return [PrepareLaunch(spec=spec, meets=message.meets)]

    def meet(self, message: Meet) -> list[Command]:
        """Visit the other nodes of an attempt, or report the result again."""
        if (preparation := self._prepared.get(message.key)) is None:
            # What was started meanwhile needs no meeting: after a refusal it would count as lost while it
            # runs.
            return (
                []
                if message.key in self.attempts
                else self._refuse(self.refusals.of(message.key) or _not_prepared(message.key))
            )
        if message != preparation.meeting:
            preparation.meeting, preparation.met = message, None
            return [MeetPeers(message=message)]
        return [] if preparation.met is None else [Send(message=preparation.met)]

    def start(self, key: AttemptKey, spec: LaunchSpec | None = None) -> list[Command]:
        """Start what was prepared, or report its state."""
        if known := self.attempts.statuses(key):
            return [Send(message=TaskReport(status=status)) for status in known]
        if (preparation := self._prepared.pop(key, None)) is not None:
            return self._begin(spec or preparation.spec)
        if key in self.attempts:
            return []
        return self._refuse(self.refusals.of(key) or _not_prepared(key))

    def _refusal_of(self, spec: LaunchSpec) -> LaunchRefused | None:
        return self.refusals.of(spec.key) or why_not(
            spec, self._node_id, self.facts, self.attempts, self._gpus
        )

    def _refuse(self, refusal: LaunchRefused) -> list[Command]:
        return [Send(message=self.refusals.note(refusal))]

    def _begin(self, spec: LaunchSpec) -> list[Command]:
        # The lease counts from what was known when the launch arrived: waiting for a keeper must not prolong
        # it.
        command = self._launches[spec.key] = StartLaunch(spec=spec, alive_at=self._alive_at)
        return [command] if self.facts is not None else []

    def stop(self, message: Stop) -> list[Command]:
        """End this attempt, or make sure that it never starts."""
        if self.attempts.is_over(message.key):
            return [Send(message=TaskReport(status=status)) for status in self.attempts.statuses(message.key)]
        if self._prepared.pop(message.key, None) is not None:
            self.attempts.drop(message.key)
        self._stops[message.key] = message
        return [stop_command(message)] if self.facts is not None else []

    def pass_on(self, message: Input | Resize | Warn) -> list[Command]:
        """Pass a message on to a running process; input for one that does not run is refused."""
        if message.key in self.attempts and not self.attempts.is_over(message.key):
            return [PassOn(message=message)] if self.facts is not None else []
        if not isinstance(message, Input):
            return []
        return [
            Send(
                message=InputAck(
                    key=message.key,
                    rank=message.rank,
                    writer=message.writer,
                    offset=message.offset,
                    closed=True,
                )
            )
        ]

    def forget(self, message: Forget) -> list[Command]:
        """Forget what the master has saved; an attempt stays until all its ranks are over and saved."""
        for key, rank in zip(message.keys, message.ranks, strict=False):
            self.attempts.note_saved(key, rank)
        gone = tuple(
            key for key in dict.fromkeys(message.keys) if self._may_go(key, all_ranks=not message.ranks)
        )
        for key in gone:
            self.attempts.drop(key)
            self._stops.pop(key, None)
        return [ForgetAttempts(keys=gone)] if gone else []

    def _may_go(self, key: AttemptKey, *, all_ranks: bool) -> bool:
        if key not in self.attempts:
            return True
        return self.attempts.is_over(key) and (all_ranks or self.attempts.is_saved(key))

    def renew(self, beat: float, boot: float) -> list[Command]:
        """Note that the master received what was sent at this moment of the boot clock."""
        if not self._alive_at < beat <= boot:
            return []
        self._alive_at = beat
        return [RenewLeases(alive_at=beat)]

    # --- preparations --------------------------------------------------------------------------------

    def prepared_keys(self) -> tuple[AttemptKey, ...]:
        """Return the attempts that wait for their `Start`."""
        return tuple(key for key, preparation in self._prepared.items() if preparation.is_ready)

    def launch_prepared(self, event: LaunchPrepared, *, may_tell: bool) -> list[Command]:
        """Note that a launch can be carried out."""
        if (preparation := self._prepared.get(event.key)) is None:
            return []
        preparation.is_ready, preparation.offer, preparation.in_scratch = True, event.offer, event.in_scratch
        return [Send(message=preparation.answer)] if may_tell else []

    def peers_met(self, event: PeersMet, *, may_tell: bool) -> list[Command]:
        """Note the result of a meeting."""
        if (preparation := self._prepared.get(event.met.key)) is None:
            return []
        preparation.met = event.met
        return [Send(message=event.met)] if may_tell else []

    def let_go(self, at: float) -> list[Command]:
        """Drop the preparations that were not started in time."""
        late = tuple(key for key, preparation in self._prepared.items() if at >= preparation.until)
        for key in late:
            del self._prepared[key]
            self.attempts.drop(key)
        return [ForgetAttempts(keys=late)] if late else []

    # --- the keeper's reports ------------------------------------------------------------------------

    def attach(self, tasks: list[TaskStatus], at: float) -> list[Command]:
        """Take all that a keeper knows, and repeat the requests that it did not receive."""
        commands: list[Command] = []
        for status in tasks:
            if self.attempts.take(status, at):
                self._let_go(status, at)
            self._launches.pop(status.key, None)
            commands.append(FollowOutput(status=status))
        commands += [self._launches[key] for key in self.attempts.unanswered() if key in self._launches]
        for key, stop in list(self._stops.items()):
            if self.attempts.is_over(key):
                del self._stops[key]
            else:
                commands.append(stop_command(stop))
        return commands

    def task_changed(self, event: TaskTold, wall: float, *, may_tell: bool) -> list[Command]:
        """Note that a process started or ended."""
        status = event.status
        is_news = self.attempts.take(status, event.at)
        self._launches.pop(status.key, None)
        if self._stops and self.attempts.is_over(status.key):
            self._stops.pop(status.key, None)
        commands: list[Command] = [FollowOutput(status=status)] if is_news else []
        is_freed = is_news and self._let_go(status, event.at)
        if may_tell:
            if is_freed:  # told before the end, so that the master hands out no GPU that is not free yet
                commands += [Send(message=Heartbeat(at=wall, samples=self._gpus.samples)), ReadGpus()]
            commands.append(Send(message=TaskReport(status=status)))
        return commands

    def launch_failed(self, event: LaunchFailed, *, may_tell: bool) -> list[Command]:
        """Note that nothing was started and nothing will be."""
        self.attempts.drop(event.key)
        self._launches.pop(event.key, None)
        self._prepared.pop(event.key, None)
        self._stops.pop(event.key, None)
        refusal = LaunchRefused(
            key=event.key,
            code=event.code,
            message=event.message,
            fault=event.fault,
            exit_code=event.exit_code,
        )
        return self._refuse(refusal) if may_tell else []  # else the master asks again after `Hello`

    def _let_go(self, status: TaskStatus, at: float) -> bool:
        """Note the GPUs that the end of an attempt frees; tell whether their memory must be checked."""
        return bool(status.gpus) and self.attempts.is_over(status.key) and self._gpus.free(status.gpus, at)


def _not_prepared(key: AttemptKey) -> LaunchRefused:
    return LaunchRefused(
        key=key, code="not-prepared", message="The node let the preparation go.", fault="stale"
    )
