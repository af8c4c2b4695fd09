"""The link to machines that joined by `mgpu_node`: frames in -> inbox, commands out -> frames. Decides
nothing about jobs.

Theory of operation. A connection has the rights of the name that its key is bound to (`user_id`), whatever it
says. The newest `Hello` of a node owns it; frames of an older connection are dropped, and one that never said
Hello is asked to. Output goes to the collector and is acknowledged with the next flush. A launch to a node
that is away is dropped: after its next Hello it is sent again.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.bounds import FRAMES_PER_MESSAGE
from mgpu_agent.protocol.codec import OVER_BOUNDS, decode_to_master
from mgpu_agent.protocol.errors import Conflict, RemoteProtocolError
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.file_messages import FetchPieces, FoundResults, ResultChunk
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.model import GpuSample, LaunchSpec, TaskStatus
from mgpu_jupyter.engines.agents.collect import Collector
from mgpu_jupyter.engines.agents.connections import Assignments, Connections, Sayings
from mgpu_jupyter.engines.agents.enrolment import AgentsEnrolment, may_only_enrol, refusal_of
from mgpu_jupyter.engines.agents.files import FileTraffic, Records
from mgpu_jupyter.engines.agents.outgoing import Mail, message_of
from mgpu_jupyter.engines.agents.readings import Ailments, Readings
from mgpu_jupyter.master.node_link import AskNode, FrameCarrier, Inbox, Incoming, NodeAnswer, NodeCommand
from mgpu_jupyter.master.ports import Mark, MarkedStep, OutputLog
from mgpu_jupyter.model.settings import LinkSettings
from mgpu_jupyter.scheduler.events import (
    LaunchWasPrepared,
    LaunchWasRefused,
    NodeJoined,
    NodeLeft,
    NodeMeasured,
    NodeMet,
    NodeMisnamed,
    NodeProbed,
    TaskReported,
)

log = logging.getLogger("mgpu.agents")

RECEIVE_LIMIT = 1_024


class AgentsLink:
    """Exchanges messages with all agents. Plays `NodeLink`; used by the master's thread."""

    def __init__(
        self,
        carrier: FrameCarrier,
        logs: OutputLog,
        store: Records,
        settings: LinkSettings,
        *,
        enrolment: AgentsEnrolment,
        connections: Connections,
        readings: Readings,
        ailments: Ailments,
        master_epoch: int,
        clock: Callable[[], float],
        syncer: Executor | None = None,
    ) -> None:
        self._carrier = carrier
        self._enrolment = enrolment
        self._connections = connections
        self._readings = readings
        self._ailments = ailments
        self._settings = settings
        self._epoch = master_epoch
        self._clock = clock
        self._inbox = Inbox()
        self._assignments = Assignments(store.assigned_nodes)
        self._collector = Collector(logs, syncer, self._note, self._assignments.has)
        self._files = FileTraffic(store, self._assignments.has, self.wake)
        self._mail = Mail(carrier, master_epoch)
        self._sayings = Sayings(log, clock)
        self._meeting_secret = os.urandom(32)

    def wait(self, timeout_s: float) -> None:
        """Return when something arrives, when woken, or after the timeout."""
        self._carrier.wait(timeout_s)

    def wake(self) -> None:
        """End a `wait`; may be called from any thread."""
        self._carrier.wake()

    def poll(self) -> Inbox:
        """Return all that arrived since the last call, without waiting."""
        self._enrolment.close_expired()
        for incoming in self._carrier.receive(RECEIVE_LIMIT):
            self._take_message(incoming)
        self._inbox.events += self._connections.ended(self._carrier.take_ended())
        self._inbox.events += self._connections.fallen_silent()
        return self._take_inbox()

    def send(self, commands: Iterable[NodeCommand]) -> None:
        """Queue these for their nodes until the next `flush`; a node that is away gets none."""
        for command in commands:
            if isinstance(command, AskNode) and not self._connections.is_there(command.node_id):
                self._inbox.answers.append(NodeAnswer(command.node_id, command.number, None))
                self.wake()
            else:
                self._mail.post(*message_of(command, self._complete, self._secret_of))

    def _complete(self, spec: LaunchSpec) -> LaunchSpec:
        self._assignments.remember(spec.node_id, spec.key)
        return self._files.launch(spec)

    def _secret_of(self, key: AttemptKey) -> bytes:
        return hmac.digest(self._meeting_secret, str(key).encode(), "sha256")

    def committed(self) -> None:
        """Note that all events returned so far are durable: nodes may delete what they still keep of them."""
        self._collector.committed()

    def flush(self) -> None:
        """Send commands, acknowledgements, and what may be forgotten."""
        for node_id, marks in self._collector.take_acks().items():
            reach("master.acknowledge")
            for mark in marks:
                self._mail.post(node_id, wire.OutputAck(mark=mark))
        self._collector.note_collected(self._files.take_collected())
        for node_id, tasks in self._collector.take_forgettable().items():
            reach("master.forget")
            keys, ranks = zip(*tasks, strict=True)
            self._mail.post(node_id, wire.Forget(keys=keys, ranks=ranks))
        for node_id, message in self._files.take_outgoing():
            self._mail.post(node_id, message)
        for node_id, beat in self._connections.take_beats().items():
            self._mail.post(node_id, wire.Heard(beat=beat))
        self._inbox.events += self._connections.broken(self._mail.send(self._connections.routes))

    def resync(self) -> None:
        """Ask every node to report everything again, because the last events were lost."""
        self._collector.rolled_back()
        for node_id in self._connections.routes:
            reach("master.resync")
            self._mail.post(node_id, wire.Resync())

    def close(self) -> Inbox:
        """Tell agents what they may forget, say goodbye, close the carrier; return what still arrived."""
        self.flush()
        self._files.close()
        self._collector.close()
        self.flush()
        for node_id in self._connections.routes:
            reach("master.bye")
            self._mail.post(node_id, wire.Bye())
        self.flush()
        self._carrier.close()
        return self._take_inbox()

    def _take_inbox(self) -> Inbox:
        inbox, self._inbox = self._inbox, Inbox()
        return inbox

    # --- incoming -------------------------------------------------------------------------------

    def _take_message(self, incoming: Incoming) -> None:
        """Handle one message; after a faulty frame the rest of it is dropped, and nobody else is affected."""
        if incoming.refusal:
            self._refuse(incoming, *refusal_of(incoming))
            return
        if len(incoming.frames) > FRAMES_PER_MESSAGE:
            self._refuse(
                incoming,
                OVER_BOUNDS,
                f"A message of {len(incoming.frames)} frames is over the limit of {FRAMES_PER_MESSAGE}.",
            )
            return
        for frame in incoming.frames:
            try:
                epoch, message = decode_to_master(frame)
            except RemoteProtocolError as error:
                self._refuse(incoming, error.code, error.message)
                return
            if epoch > self._epoch:
                sentence = f"{incoming.user_id} knows a newer master (epoch {epoch}): this one must stop."
                self._sayings.warn(f"epoch {incoming.user_id}", sentence)
                return
            self._take(incoming, message)

    def _take(self, incoming: Incoming, message: wire.ToMaster) -> None:  # noqa: PLR0912 - one case per message
        if may_only_enrol(incoming.user_id):
            self._take_enrolment(incoming, message)
            return
        node_id = NodeId(incoming.user_id)
        if isinstance(message, wire.Hello):
            self._take_hello(incoming, node_id, message)
            return
        if not self._connections.owns(node_id, incoming.route):
            if not self._connections.is_there(node_id):
                self._mail.answer(incoming.route, wire.Resync())
            return
        events = self._inbox.events
        events += self._connections.hear(node_id)
        match message:
            case wire.Output():
                self._take_output(node_id, message)
            case wire.TaskReport(status=status):
                events += [
                    TaskReported(at=self._clock(), status=one) for one in self._take_reports(node_id, status)
                ]
            case wire.LaunchRefused(key=key, code=code, message=text, fault=fault, exit_code=exit_code):
                events.append(
                    LaunchWasRefused(
                        at=self._clock(),
                        node_id=node_id,
                        key=key,
                        code=code,
                        message=text,
                        fault=fault,
                        exit_code=exit_code,
                    )
                )
            case wire.Pong(number=number):
                self._inbox.answers.append(NodeAnswer(node_id, number, message))
            case wire.Prepared(key=key, offer=offer, in_scratch=in_scratch):
                self._note(MarkedStep.PREPARED, node_id, key)
                events.append(
                    LaunchWasPrepared(
                        at=self._clock(), node_id=node_id, key=key, offer=offer, in_scratch=in_scratch
                    )
                )
            case wire.Met():
                events.append(NodeMet(at=self._clock(), node_id=node_id, met=message))
            case wire.Heartbeat():
                self._take_beat(node_id, message)
            case wire.Post(key=key, to=target, data=data) if len(data) <= wire.MAX_POST_BYTES:
                if self._assignments.has(node_id, key) and self._assignments.has(target, key):
                    reach("master.post")
                    self._mail.post(target, wire.Posted(key=key, sender=node_id, data=data))
            case wire.InputAck(key=key):
                if self._assignments.has(node_id, key):
                    self._inbox.typed.append(message)
            case wire.Probed(number=number, ok=ok, message=text):
                events.append(
                    NodeProbed(at=self._clock(), node_id=node_id, number=number, ok=ok, message=text)
                )
            case wire.Checked(ailments=ailments):
                events += self._ailments.checked(node_id, ailments)
            case FetchPieces() | FoundResults() | ResultChunk():
                self._files.take(node_id, message)
            case wire.Leave(reason=reason):
                self._connections.forget(node_id)
                events.append(
                    NodeLeft(at=self._clock(), node_id=node_id, reason=reason or "Its agent was stopped.")
                )
            case wire.Enrol():
                self._refuse(
                    incoming, "already-enrolled", f"This key is bound to {node_id} already: say Hello."
                )

    def _take_enrolment(self, incoming: Incoming, message: wire.ToMaster) -> None:
        if not isinstance(message, wire.Enrol):
            self._refuse(
                incoming, "enrol-first", "This key only enrols: send Enrol, then reconnect with your own key."
            )
            return
        is_connected = self._connections.is_there(message.node_id)
        try:
            self._enrolment.enrol(incoming.user_id, message, is_connected=is_connected)
        except Conflict as refusal:
            self._refuse(incoming, refusal.code, refusal.message)
            return
        reach("master.enrolled")
        self._mail.answer(incoming.route, wire.Enrolled(node_id=message.node_id))

    def _take_hello(self, incoming: Incoming, node_id: NodeId, hello: wire.Hello) -> None:
        if hello.node_id != node_id:
            self._inbox.events.append(NodeMisnamed(at=self._clock(), node_id=node_id, said=hello.node_id))
            self._refuse(
                incoming,
                "wrong-node-id",
                f"Your key is bound to {node_id}, not to {hello.node_id}: use that --node-id.",
            )
            return
        if number := self._connections.greet(node_id, incoming.route, hello):
            self._mail.answer(incoming.route, wire.Resync(number=number))
            return
        self._mail.drop(node_id)
        reach("master.welcome")
        welcome = wire.Welcome(
            cluster=self._settings.cluster,
            heartbeat_s=self._settings.heartbeat_s,
            sample_s=self._settings.sample_s,
            output_window_bytes=self._settings.output_window_bytes,
            received=self._collector.marks(hello.tasks),
            beat=hello.beat,
        )
        self._mail.post(node_id, welcome)
        self._mail.post(node_id, wire.Check(checks=self._ailments.checks))
        tasks = self._take_reports(node_id, *hello.tasks)
        self._readings.know(node_id, hello.facts.memory_bytes)
        if hello.samples:
            self._readings.take_samples(node_id, hello.samples)
            self._inbox.readings[node_id] = self._readings.newest(node_id)
        troubles = self._ailments.greet(node_id, hello.samples)
        joined = NodeJoined(
            at=self._clock(),
            node_id=node_id,
            facts=hello.facts,
            tasks=tasks,
            prepared=hello.prepared,
            troubles=troubles,
        )
        self._inbox.events.append(joined)

    def _take_reports(self, node_id: NodeId, *told: TaskStatus) -> tuple[TaskStatus, ...]:
        """Return the reports that count; ends are collected."""
        known, misnamed = self._assignments.under_own_name(node_id, told, self._clock())
        if other := next((status.node_id for status in told if status.node_id != node_id), None):
            self._sayings.warn(
                f"report {node_id}", f"{node_id} reports as {other}, which is not what its key is bound to."
            )
        self._inbox.events += misnamed
        self._collector.take_ends(node_id, known)
        return known

    def _take_samples(self, node_id: NodeId, samples: tuple[GpuSample, ...]) -> None:
        self._readings.take_samples(node_id, samples)
        self._inbox.events += self._ailments.read(node_id, samples)

    def _take_beat(self, node_id: NodeId, beat: wire.Heartbeat) -> None:
        if beat.samples:
            self._take_samples(node_id, beat.samples)
        if beat.beat:
            self._connections.note_beat(node_id, beat.beat)
        self._inbox.events += self._ailments.beat(node_id, beat.at)
        if (load := self._readings.take_load(node_id, beat)) is not None:
            self._inbox.events.append(NodeMeasured(at=self._clock(), node_id=node_id, load=load))
        if beat.samples or beat.cpu_percent is not None:
            self._inbox.readings[node_id] = self._readings.newest(node_id)

    def _take_output(self, node_id: NodeId, message: wire.Output) -> None:
        if not self._assignments.has(node_id, message.key):
            self._sayings.warn(
                f"output {node_id}",
                f"{node_id} sends output of job {message.key.job_id}, which is not its: dropped.",
            )
            return
        if self._collector.take_output(node_id, message):
            self._inbox.grown.add(message.key.job_id)

    def _note(self, step: MarkedStep, node_id: NodeId, key: AttemptKey, rank: int | None = None) -> None:
        """Note a step of this node, or of a rank that it was given; reports of others are ignored."""
        if self._assignments.has(node_id, key):
            who = node_id if rank is None else str(rank)
            self._inbox.marks.append(
                Mark(job_id=key.job_id, attempt=key.attempt, step=step, who=who, at=self._clock())
            )

    # --- outgoing -------------------------------------------------------------------------------

    def _refuse(self, incoming: Incoming, code: str, message: str) -> None:
        self._sayings.warn(
            f"{code} {incoming.user_id}", f"A frame of {incoming.user_id} was refused ({code}): {message}"
        )
        reach("master.refuse")
        self._mail.answer(incoming.route, wire.Refuse(code=code, message=message))
