"""The agent's decisions about messages, tasks, and what must be told again. Events in, commands out.

Theory of operation. A connection serves one purpose: to enrol (send `Enrol`, get `Enrolled`) or to work (send
`Hello`, get `Welcome`). Whatever goes wrong, the answer is `Connect`: a new connection, a new `Hello` with
everything that runs or ran. So no message needs to be kept for a lost connection, except ends of tasks, which
are told again until the master says `Forget`. Never reads a clock, sends or logs: time comes in the events,
and everything to be done leaves in the commands.
"""

from __future__ import annotations

from typing import assert_never

from msgspec import structs

from mgpu_agent.core.commands import (
    Command,
    Connect,
    Deliver,
    End,
    MoveOutput,
    ReadGpus,
    SaveMasterEpoch,
    Say,
    Send,
    SendResult,
    SetChecks,
    SetPace,
    TakePiece,
    TellWho,
)
from mgpu_agent.core.connection import SILENCE_S, CheckFindings, Connection, Phase
from mgpu_agent.core.events import (
    Began,
    EndAsked,
    Event,
    FrameArrived,
    InputTaken,
    KeeperAttached,
    KeeperLost,
    LaunchFailed,
    LaunchPrepared,
    LinkFell,
    LinkRose,
    MasterMoved,
    ParcelPosted,
    PeersMet,
    TaskTold,
    Ticked,
)
from mgpu_agent.core.gpus import Gpus, TroubleLog
from mgpu_agent.core.trial import Trial
from mgpu_agent.core.work import Work
from mgpu_agent.protocol.file_messages import CollectResult, Piece
from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, NodeId
from mgpu_agent.protocol.messages import (
    Bye,
    Check,
    Enrol,
    Enrolled,
    Forget,
    Heard,
    Heartbeat,
    Hello,
    Input,
    Launch,
    Leave,
    Meet,
    OutputAck,
    Ping,
    Posted,
    Prepare,
    Probe,
    Refuse,
    Resize,
    Resync,
    Start,
    Stop,
    TaskReport,
    ToAgent,
    Warn,
    Welcome,
)
from mgpu_agent.protocol.model import GpuSample

REVOKED = "revoked"
REVOKED_GRACE_S = 15.0


class Machine:
    """The state of one agent; only `handle` changes it."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        public_key: str,
        is_enrolled: bool = False,
        is_embedded: bool = False,
        has_line: bool = False,
        master_epoch: int = 0,
    ) -> None:
        self.master_epoch = master_epoch
        self._node_id = node_id
        self._public_key = public_key
        self._connection = Connection(is_enrolled=is_enrolled, has_line=has_line, is_embedded=is_embedded)
        self._gpus = Gpus()
        self._work = Work(node_id, self._gpus)
        self._attempts = self._work.attempts
        self._troubles = TroubleLog()
        self._trial = Trial()
        self._findings = CheckFindings()
        self._wall = 0.0
        self._boot = 0.0
        self._heard_at = 0.0
        self._beat_at = 0.0
        self._heartbeat_s = 1.0
        self._said_old_epoch = False

    @property
    def phase(self) -> Phase:
        """Return what the present connection is for, and how far it got."""
        return self._connection.phase

    @property
    def may_ship(self) -> bool:
        """Tell whether the master accepts output now."""
        return self._connection.is_welcomed

    @property
    def is_busy(self) -> bool:
        """Tell whether anything runs or is about to start."""
        return self._attempts.is_busy

    @property
    def has_lost_gpu(self) -> bool:
        """Tell whether a GPU is lost, so that CUDA may number the others anew."""
        return self._gpus.has_lost

    def held_gpus(self) -> dict[GpuUuid, int]:
        """Return the GPUs in use by jobs, each with a pid."""
        return self._attempts.held_gpus()

    def gpus_by_attempt(self) -> dict[AttemptKey, tuple[GpuUuid, ...]]:
        """Return the GPUs of each live attempt that has some."""
        return self._attempts.gpus_by_attempt()

    def handle(self, event: Event) -> list[Command]:  # noqa: PLR0911, PLR0912 - one case per event
        """Handle one event and return the commands that follow."""
        match event:
            case TaskTold() | LaunchFailed() if (of_trial := self._trial.take(event)) is not None:
                return self._of_trial(of_trial)
            case TaskTold():
                return self._keep(
                    self._work.task_changed(event, self._wall, may_tell=self._connection.may_tell)
                )
            case FrameArrived():
                return self._on_frame(event)
            case Ticked():
                return self._on_tick(event)
            case LaunchFailed():
                return self._keep(self._work.launch_failed(event, may_tell=self._connection.may_tell))
            case LaunchPrepared():
                return self._keep(self._work.launch_prepared(event, may_tell=self._connection.may_tell))
            case InputTaken(ack=ack):  # one that cannot be sent is asked for again
                return [Send(message=ack)] if self.may_ship else []
            case PeersMet():
                return self._keep(self._work.peers_met(event, may_tell=self._connection.may_tell))
            case ParcelPosted(parcel=parcel):  # the process that needs it sends it again if it is lost
                return [Send(message=parcel)] if self.may_ship else []
            case Began(boot=boot):
                self._boot = boot
                return [Connect(enrolling=self._connection.is_enrolling)]
            case LinkRose(at=at):
                return self._on_link_rose(at)
            case LinkFell():
                return self._connection.fall(event)
            case MasterMoved():
                return self._on_master_moved(event)
            case KeeperAttached():
                return self._on_keeper_attached(event)
            case KeeperLost():
                self._work.facts = None
                return [Say(event="keeper_lost", is_warning=True)]
            case EndAsked(reason=reason):
                farewell = [Send(message=Leave(reason=reason))] if self.may_ship else []
                return [*farewell, End(reason=reason)]
            case _:
                assert_never(event)

    # --- the connection ----------------------------------------------------------------------------

    def _on_link_rose(self, at: float) -> list[Command]:
        self._connection.is_up = True
        self._said_old_epoch = False
        self._work.refusals.forget()
        if self._connection.is_enrolling:
            self._connection.enrol(at)
            return [Send(message=Enrol(node_id=self._node_id, public_key=self._public_key))]
        return self._hello(at)

    def _on_master_moved(self, event: MasterMoved) -> list[Command]:
        if event.is_another:
            self.master_epoch = 0
        return self._connection.move(event)

    def _keep(self, commands: list[Command]) -> list[Command]:
        """Keep messages that must follow the `Welcome`; return the commands that can be carried out now."""
        return self._connection.until_welcome.keep(commands)

    def _hello(self, at: float, *, answers: int = 0) -> list[Command]:
        """Send `Hello`, as soon as the keeper has reported what runs."""
        if self._work.facts is None:
            return []
        self._connection.greet(at)
        self._attempts.note_all_told(at)
        tasks = self._attempts.all_statuses()
        hello = Hello(
            node_id=self._node_id,
            facts=self._work.facts,
            tasks=tasks,
            samples=self._gpus.samples,
            prepared=self._work.prepared_keys(),
            beat=self._boot,
            answers=answers,
        )
        return [Send(message=hello), *self._findings.greet()]

    # --- the master's messages ----------------------------------------------------------------------

    def _on_frame(self, event: FrameArrived) -> list[Command]:
        if event.master_epoch < self.master_epoch:
            if self._said_old_epoch:
                return []
            self._said_old_epoch = True
            return [
                Say(
                    event="old_master_ignored",
                    fields={"epoch": event.master_epoch, "known": self.master_epoch},
                    is_warning=True,
                )
            ]
        self._heard_at = event.at
        commands = self._obey(event.message, event.at)
        if event.master_epoch > self.master_epoch:
            self.master_epoch = event.master_epoch
            commands.insert(0, SaveMasterEpoch(master_epoch=event.master_epoch))
        return commands

    def _obey(self, message: ToAgent, at: float) -> list[Command]:  # noqa: PLR0911, PLR0912 - one case per message
        match message:
            case Launch(spec=spec):
                return self._work.launch(spec)
            case OutputAck(mark=mark):
                return [MoveOutput(mark=mark)]
            case Forget():
                return self._work.forget(message)
            case Prepare():
                return self._work.prepare(message, at)
            case Meet():
                return self._work.meet(message)
            case Start(key=key, spec=spec):
                return self._work.start(key, spec)
            case Heard(beat=beat):
                return self._work.renew(beat, self._boot)
            case Stop():
                return self._work.stop(message)
            case Posted():
                return [Deliver(message=message)]
            case Input() | Resize() | Warn():
                return self._work.pass_on(message)
            case Welcome():
                return self._on_welcome(message, at)
            case Resync(number=number):
                return self._hello(at, answers=number)
            case Enrolled():
                return self._connection.enrolled()
            case Refuse():
                return self._on_refuse(message)
            case Probe():
                return self._of_trial(
                    self._trial.begin(message, self._node_id, self._work.facts, at, self._wall)
                )
            case Piece():
                return [TakePiece(piece=message)]
            case CollectResult():
                return [SendResult(wanted=message)]
            case Check(checks=checks):
                return [SetChecks(checks=checks)]
            case Ping(number=number, key=key, cell=cell):
                return [
                    TellWho(
                        number=number,
                        statuses=self._attempts.statuses(key) if key is not None else (),
                        cell=cell,
                    )
                ]
            case Bye():
                return self._connection.dismiss(is_busy=self._attempts.is_busy)
            case _:
                assert_never(message)

    def _on_welcome(self, message: Welcome, at: float) -> list[Command]:
        save = self._connection.welcome()
        self._heartbeat_s = message.heartbeat_s
        self._beat_at = at
        commands: list[Command] = [
            *save,
            *self._work.renew(message.beat, self._boot),
            SetPace(
                sample_s=message.sample_s,
                output_window_bytes=message.output_window_bytes,
                received=message.received,
            ),
            Say(event="joined", fields={"cluster": message.cluster}),
            *self._connection.until_welcome.close(),
        ]
        return [*commands, ReadGpus()] if self._gpus.samples else commands

    def _on_refuse(self, message: Refuse) -> list[Command]:
        if message.code == REVOKED:
            stops = [
                Stop(key=key, grace_s=REVOKED_GRACE_S, reason="This node was revoked.")
                for key in self._attempts.live()
            ]
            return [
                *(command for stop in stops for command in self._work.stop(stop)),
                End(reason=message.message, code=1),
            ]
        return self._connection.refuse(message)

    # --- the keeper's reports ------------------------------------------------------------------------

    def _on_keeper_attached(self, event: KeeperAttached) -> list[Command]:
        self._work.facts = event.facts
        self._gpus.know(event.facts.gpus, event.at)
        commands: list[Command] = []
        for status in event.tasks:
            if self._trial.owns(status.key):
                commands += self._of_trial(self._trial.on_task(status))
        commands += self._work.attach(
            [status for status in event.tasks if not self._trial.owns(status.key)], event.at
        )
        if self._connection.is_up and not self._connection.is_enrolling:
            commands += self._hello(event.at)
        return commands

    def _of_trial(self, commands: list[Command]) -> list[Command]:
        """Leave out what cannot be sent now; the master asks again."""
        return [command for command in commands if self.may_ship or not isinstance(command, Send)]

    # --- time ----------------------------------------------------------------------------------------

    def _on_tick(self, event: Ticked) -> list[Command]:
        self._wall, self._boot = event.wall, event.boot
        samples = self._take_readings(event)
        commands = self._troubles.say(samples) + self._findings.take(event.ailments, may_tell=self.may_ship)
        commands += self._keep_time(event, samples)
        return commands + self._work.let_go(event.at) + self._of_trial(self._trial.on_tick(event.at))

    def _keep_time(self, event: Ticked, samples: tuple[GpuSample, ...]) -> list[Command]:
        if self._connection.is_late(event.at):
            return self._connection.give_up(event)
        if not self.may_ship:
            return self._connection.alone(event.at, is_busy=self._attempts.is_busy)
        commands: list[Command] = []
        if samples or event.at - self._beat_at >= self._heartbeat_s:
            self._beat_at = event.at
            beat = Heartbeat(
                at=event.wall, samples=samples, beat=event.boot, **structs.asdict(event.measured)
            )
            commands.append(Send(message=beat))
        if self._gpus.is_urgent(event.at):
            commands.append(ReadGpus())
        commands += [
            Send(message=TaskReport(status=status)) for status in self._attempts.due_to_retell(event.at)
        ]
        if self._attempts.owes_news and event.at - self._heard_at >= SILENCE_S:
            self._heard_at = event.at
            commands += [
                Say(event="master_silent", is_warning=True),
                *self._connection.connect(enrolling=False, delay_s=0.0),
            ]
        return commands

    def _take_readings(self, event: Ticked) -> tuple[GpuSample, ...]:
        if event.samples:
            return self._gpus.take(event.samples, event.read_at, event.at, self._attempts.held_gpus())
        return self._gpus.samples if self._gpus.fall_mute(event.at) else ()
