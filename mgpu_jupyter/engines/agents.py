"""The engine of machines that joined by `mgpu_node`: frames in -> events, decisions out -> frames. Decides nothing about jobs.

Theory of operation. A connection is worth what its key is bound to (`user_id`), never what it says. The newest `Hello` of a node
owns it; frames of an older connection are dropped, and one that never said Hello is asked to. Output goes to the collector and
is acknowledged with the next flush. A launch to a node that is away is dropped: its next Hello brings it up again.
"""

from __future__ import annotations

import hmac
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.bounds import FRAMES_PER_MESSAGE
from mgpu_agent.protocol.codec import OVER_BOUNDS, decode_to_master, encode
from mgpu_agent.protocol.errors import Conflict, RemoteProtocolError
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.meeting import Peer
from mgpu_agent.protocol.model import CellWish, GpuSample, LaunchSpec, TaskStatus
from mgpu_agent.protocol.text import printable
from mgpu_jupyter.engines.ailments import Ailments
from mgpu_jupyter.engines.assignments import Assignments
from mgpu_jupyter.engines.collect import Collector
from mgpu_jupyter.engines.door import Door, is_door, refusal_of
from mgpu_jupyter.engines.files import Files
from mgpu_jupyter.engines.hellos import Hellos
from mgpu_jupyter.engines.load import Loads
from mgpu_jupyter.engines.mail import Mail
from mgpu_jupyter.engines.names import under_own_name
from mgpu_jupyter.engines.records import LinkSettings, Records
from mgpu_jupyter.engines.sayings import Sayings
from mgpu_jupyter.engines.witness import Witness
from mgpu_jupyter.master.marks import Mark, OnPong, Step
from mgpu_jupyter.master.ports import AgentLink, Incoming, JoinKey, News, OutputLog
from mgpu_jupyter.scheduler.events import (
    Event,
    LaunchWasPrepared,
    LaunchWasRefused,
    NodeHeard,
    NodeJoined,
    NodeLeft,
    NodeMeasured,
    NodeMet,
    NodeMisnamed,
    NodeProbed,
    NodeSilent,
    TaskReported,
)
from mgpu_jupyter.scheduler.model import Load

log = logging.getLogger("mgpu.agents")

LINK_HOST = "127.0.0.1"
RECEIVE_LIMIT = 1_024
JOINED_AGAIN_S = 1.0


class AgentsEngine:
    """Speaks with all agents. Used by the master's thread."""

    def __init__(
        self,
        link: AgentLink,
        logs: OutputLog,
        store: Records,
        settings: LinkSettings,
        *,
        master_epoch: int,
        clock: Callable[[], float],
        link_port: int = 0,
        syncer: Executor | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._link = link
        self._link_port = link_port
        self._hosts = {LINK_HOST}
        self._door = Door(link, store.bind, clock)
        self._settings = settings
        self._epoch = master_epoch
        self._clock = clock
        self._assignments = Assignments(store.assigned_nodes)
        self._witness = Witness(clock, self._assignments.has)
        self._collector = Collector(logs, syncer, self._witness.note, self._assignments.has)
        self._routes: dict[NodeId, bytes] = {}
        self._heard: dict[NodeId, float] = {}
        self._silent: set[NodeId] = set()
        self._hellos = Hellos()
        self._files = Files(store, self._assignments.has, self.wake)
        self._beats: dict[NodeId, float] = {}
        """Beats that were heard and not answered yet."""
        self._samples: dict[NodeId, tuple[GpuSample, ...]] = {}
        self._ailments = Ailments(settings.health, clock, wall)
        self._loads = Loads()
        self._mail = Mail(link, master_epoch)
        self._events: list[Event] = []
        self._news = News()
        self._sayings = Sayings(log, clock)
        self._meeting_secret = os.urandom(32)

    def wait(self, timeout_s: float) -> None:
        """Return when something came, when woken, or after the time."""
        self._link.wait(timeout_s)

    def wake(self) -> None:
        """End a `wait`; may be called from any thread."""
        self._link.wake()

    def receive(self) -> list[Event]:
        """Return what nodes told since the last call."""
        self._door.close_expired()
        for incoming in self._link.receive(RECEIVE_LIMIT):
            if incoming.refusal:
                self._refuse(incoming, *refusal_of(incoming))
                continue
            if len(incoming.frames) > FRAMES_PER_MESSAGE:
                text = f"A message of {len(incoming.frames)} frames is over the limit of {FRAMES_PER_MESSAGE}."
                self._refuse(incoming, OVER_BOUNDS, text)
                continue
            for frame in incoming.frames:
                try:
                    epoch, message = decode_to_master(frame)
                except RemoteProtocolError as error:
                    self._refuse(incoming, error.code, error.message)
                    break
                if epoch > self._epoch:
                    self._sayings.warn(
                        f"epoch {incoming.user_id}", f"{incoming.user_id} knows a newer master (epoch {epoch}): this one must stop."
                    )
                    break
                self._take(incoming, message)
        self._look_for_silence()
        events, self._events = self._events, []
        return events

    def launch(self, spec: LaunchSpec) -> None:
        """Send this to its node, with the next `flush`."""
        reach("master.launch")
        self._assignments.remember(spec.node_id, spec.key)
        self._mail.post(spec.node_id, wire.Launch(spec=self._files.launch(spec)))

    def prepare(self, spec: LaunchSpec, hold_s: float, *, meets: bool = False) -> None:
        """Ask its node whether it could start this, with the next `flush`."""
        reach("master.prepare")
        self._assignments.remember(spec.node_id, spec.key)
        self._mail.post(spec.node_id, wire.Prepare(spec=self._files.launch(spec), hold_s=hold_s, meets=meets))

    def meet(self, node_id: NodeId, key: AttemptKey, peers: tuple[Peer, ...], limit_s: float) -> None:
        """Have this node go to the other nodes of an attempt, with the next `flush`; all of them share a secret."""
        reach("master.meet")
        secret = hmac.digest(self._meeting_secret, str(key).encode(), "sha256")
        self._mail.post(node_id, wire.Meet(key=key, secret=secret, peers=peers, limit_s=limit_s))

    def start(self, node_id: NodeId, key: AttemptKey, spec: LaunchSpec | None = None) -> None:
        """Have this node start what it prepared, with the next `flush`."""
        reach("master.start")
        self._mail.post(node_id, wire.Start(key=key, spec=spec and self._files.launch(spec)))

    def stop(self, node_id: NodeId, key: AttemptKey, grace_s: float, reason: str, cause: str = "") -> None:
        """End the processes of this attempt on this node, with the next `flush`."""
        reach("master.stop")
        self._mail.post(node_id, wire.Stop(key=key, grace_s=grace_s, reason=reason, cause=cause))

    def hand_on(self, node_id: NodeId, message: wire.Input | wire.Resize) -> None:
        """Send what somebody typed, or the size of their terminal, with the next `flush`."""
        reach("master.input")
        self._mail.post(node_id, message)

    def warn(self, node_id: NodeId, key: AttemptKey, signal: int, serial: float) -> None:
        """Have this node send a signal to an attempt, with the next `flush`."""
        reach("master.warn")
        self._mail.post(node_id, wire.Warn(key=key, signal=signal, serial=serial))

    def probe(self, node_id: NodeId, number: int) -> None:
        """Have this node start a process as a trial, with the next `flush`."""
        reach("master.probe")
        self._mail.post(node_id, wire.Probe(number=number))

    def ping(self, node_id: NodeId, key: AttemptKey | None, answer: OnPong, cell: CellWish | None = None) -> bool:
        """Ask a node who it is and what is there of an attempt; `answer` is called when it tells. False when it is away."""
        if node_id not in self._routes or node_id in self._silent:
            return False
        reach("master.ping")
        self._mail.post(node_id, self._witness.ask(node_id, key, answer, cell))
        return True

    def take_marks(self) -> list[Mark]:
        """Return which steps of jobs were seen since the last call."""
        return self._witness.take_marks()

    def committed(self) -> None:
        """All events handed out so far are durable: what nodes still keep of them may go."""
        self._collector.committed()

    def flush(self) -> None:
        """Send what was asked for, acknowledgements, and what may be forgotten."""
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
        for node_id, beat in self._beats.items():
            self._mail.post(node_id, wire.Heard(beat=beat))
        self._beats.clear()
        for node_id in self._mail.send(self._routes):
            if node_id not in self._silent:
                self._fall_silent(node_id, "Its connection broke.")

    def resync(self) -> None:
        """The last events came to nothing: ask every node to tell all again."""
        self._collector.rolled_back()
        for node_id in self._routes:
            reach("master.resync")
            self._mail.post(node_id, wire.Resync())

    def listen(self, host: str) -> bool:
        """Let nodes connect by this address too, on the link's own port; tell whether it is a new one."""
        if host in self._hosts:
            return False
        self._link.bind(host, self._link_port)
        self._hosts.add(host)
        return True

    def admit(self, key: JoinKey) -> None:
        """Let a node enrol under this key, which is durable by now."""
        self._door.admit(key)

    def knows(self, node_id: NodeId) -> bool:
        """Tell whether a node of this name is enrolled."""
        return self._link.knows(node_id)

    def revoke(self, node_id: NodeId, reason: str) -> None:
        """Refuse this node from its next frame on; that its key is unbound is durable by now."""
        self._door.revoke(node_id, reason)
        self._forget_connection(node_id)
        self._mail.drop(node_id)

    def forget(self, node_id: NodeId) -> None:
        """Know a node no more; that its key is gone is durable by now."""
        self._door.forget(node_id)
        self._forget_connection(node_id)
        self._mail.drop(node_id)
        self._samples.pop(node_id, None)
        self._loads.forget(node_id)
        self._ailments.forget(node_id)

    def load(self, node_id: NodeId) -> Load:
        """Return how busy a node is, by its newest readings."""
        return self._loads.newest(node_id)

    def samples(self, node_id: NodeId) -> tuple[GpuSample, ...]:
        """Return the newest readings of a node's GPUs."""
        return self._samples.get(node_id, ())

    def take_news(self) -> News:
        """Return what changed beside the events, and forget it."""
        news, self._news = self._news, News(grown=set(), sampled=set(), typed=[])
        return news

    def close(self) -> None:
        """Tell agents what they may forget, say goodbye, and close the link."""
        self.flush()
        self._files.close()
        self._collector.close()
        self.flush()
        for node_id in self._routes:
            reach("master.bye")
            self._mail.post(node_id, wire.Bye())
        self.flush()
        self._link.close()

    # --- what came in ---------------------------------------------------------------------------

    def _take(self, incoming: Incoming, message: wire.ToMaster) -> None:  # noqa: PLR0912 - one case per message
        if is_door(incoming.user_id):
            self._take_enrolment(incoming, message)
            return
        node_id = NodeId(incoming.user_id)
        if isinstance(message, wire.Hello):
            self._take_hello(incoming, node_id, message)
            return
        if self._routes.get(node_id) != incoming.route:
            if node_id not in self._routes or node_id in self._silent:
                self._link.send(incoming.route, [encode(wire.Resync(), self._epoch)])
            return
        self._hear(node_id)
        match message:
            case wire.Output():
                self._take_output(node_id, message)
            case wire.TaskReport(status=status):
                self._events += [TaskReported(at=self._clock(), status=one) for one in self._take_reports(node_id, status)]
            case wire.LaunchRefused(key=key, code=code, message=text, fault=fault, exit_code=exit_code):
                self._events.append(
                    LaunchWasRefused(at=self._clock(), node_id=node_id, key=key, code=code, message=text, fault=fault, exit_code=exit_code)
                )
            case wire.Pong():
                self._witness.take(node_id, message)
            case wire.Prepared(key=key, offer=offer):
                self._witness.note(Step.PREPARED, node_id, key)
                self._events.append(LaunchWasPrepared(at=self._clock(), node_id=node_id, key=key, offer=offer))
            case wire.Met():
                self._events.append(NodeMet(at=self._clock(), node_id=node_id, met=message))
            case wire.Heartbeat(samples=samples):
                if samples:
                    self._take_samples(node_id, samples)
                self._take_beat(node_id, message)
            case wire.Post(key=key, to=target, data=data) if len(data) <= wire.MAX_POST_BYTES:
                if self._assignments.has(node_id, key) and self._assignments.has(target, key):
                    reach("master.post")
                    self._mail.post(target, wire.Posted(key=key, sender=node_id, data=data))
            case wire.InputAck(key=key):
                if self._assignments.has(node_id, key):
                    self._news.typed.append(message)
            case wire.Probed(number=number, ok=ok, message=text):
                self._events.append(NodeProbed(at=self._clock(), node_id=node_id, number=number, ok=ok, message=text))
            case wire.Checked(ailments=ailments):
                self._events += self._ailments.checked(node_id, ailments)
            case wire.FetchPieces() | wire.FoundResults() | wire.ResultChunk():
                self._files.take(node_id, message)
            case wire.Leave(reason=reason):
                self._forget_connection(node_id)
                self._events.append(NodeLeft(at=self._clock(), node_id=node_id, reason=reason or "Its agent was stopped."))
            case wire.Enrol():
                self._refuse(incoming, "already-enrolled", f"This key is bound to {node_id} already: say Hello.")

    def _take_enrolment(self, incoming: Incoming, message: wire.ToMaster) -> None:
        if not isinstance(message, wire.Enrol):
            self._refuse(incoming, "enrol-first", "This key only enrols: send Enrol, then reconnect with your own key.")
            return
        is_connected = message.node_id in self._routes and message.node_id not in self._silent
        try:
            self._door.enrol(incoming.user_id, message, is_connected=is_connected)
        except Conflict as refusal:
            self._refuse(incoming, refusal.code, refusal.message)
            return
        reach("master.enrolled")
        self._link.send(incoming.route, [encode(wire.Enrolled(node_id=message.node_id), self._epoch)])

    def _take_hello(self, incoming: Incoming, node_id: NodeId, hello: wire.Hello) -> None:
        if hello.node_id != node_id:
            self._events.append(NodeMisnamed(at=self._clock(), node_id=node_id, said=hello.node_id))
            self._refuse(incoming, "wrong-node-id", f"Your key is bound to {node_id}, not to {hello.node_id}: use that --node-id.")
            return
        if number := self._hellos.doubt(node_id, incoming.route, hello):
            self._link.send(incoming.route, [encode(wire.Resync(number=number), self._epoch)])
            return
        self._routes[node_id] = incoming.route
        self._silent.discard(node_id)
        self._heard[node_id] = self._clock()
        facts = hello.facts
        if self._sayings.may(f"joined {node_id}", JOINED_AGAIN_S):
            log.info("node_id=%s joined host=%s gpus=%d tasks=%d", node_id, printable(facts.host), len(facts.gpus), len(hello.tasks))
        self._mail.drop(node_id)
        self._beats.pop(node_id, None)
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
        if hello.samples:
            self._samples[node_id] = hello.samples
        self._loads.know(node_id, hello.facts.memory_bytes)
        troubles = self._ailments.greet(node_id, hello.samples)
        joined = NodeJoined(at=self._clock(), node_id=node_id, facts=hello.facts, tasks=tasks, prepared=hello.prepared, troubles=troubles)
        self._events.append(joined)

    def _take_reports(self, node_id: NodeId, *told: TaskStatus) -> tuple[TaskStatus, ...]:
        """Return what counts of these reports; ends are collected."""
        known, misnamed = under_own_name(node_id, told, self._assignments.has, self._clock())
        if other := next((status.node_id for status in told if status.node_id != node_id), None):
            self._sayings.warn(f"report {node_id}", f"{node_id} reports as {other}, which is not what its key is bound to.")
        self._events += misnamed
        self._collector.take_ends(node_id, known)
        return known

    def _take_samples(self, node_id: NodeId, samples: tuple[GpuSample, ...]) -> None:
        self._samples[node_id] = samples
        self._news.sampled.add(node_id)
        self._events += self._ailments.read(node_id, samples)

    def _take_beat(self, node_id: NodeId, beat: wire.Heartbeat) -> None:
        if beat.beat:
            self._beats[node_id] = beat.beat
        if beat.cpu_percent is not None:
            self._news.sampled.add(node_id)
        self._events += self._ailments.beat(node_id, beat.at)
        if (load := self._loads.take(node_id, beat)) is not None:
            self._events.append(NodeMeasured(at=self._clock(), node_id=node_id, load=load))

    def _take_output(self, node_id: NodeId, message: wire.Output) -> None:
        if not self._assignments.has(node_id, message.key):
            self._sayings.warn(f"output {node_id}", f"{node_id} sends output of job {message.key.job_id}, which is not its: dropped.")
            return
        if self._collector.take_output(node_id, message):
            self._news.grown.add(message.key.job_id)

    # --- who is there ---------------------------------------------------------------------------

    def _hear(self, node_id: NodeId) -> None:
        self._heard[node_id] = self._clock()
        if node_id in self._silent:
            self._silent.discard(node_id)
            self._events.append(NodeHeard(at=self._clock(), node_id=node_id))

    def _look_for_silence(self) -> None:
        now = self._clock()
        for node_id, heard in self._heard.items():
            if now - heard > self._settings.timeout_s and node_id not in self._silent:
                self._fall_silent(node_id, f"Nothing was heard of it for {self._settings.timeout_s:g} s.")

    def _fall_silent(self, node_id: NodeId, reason: str) -> None:
        self._silent.add(node_id)
        self._events.append(NodeSilent(at=self._clock(), node_id=node_id, reason=reason, heard_at=self._heard[node_id]))

    def _forget_connection(self, node_id: NodeId) -> None:
        self._routes.pop(node_id, None)
        self._heard.pop(node_id, None)
        self._beats.pop(node_id, None)
        self._hellos.forget(node_id)
        self._silent.discard(node_id)

    # --- what goes out --------------------------------------------------------------------------

    def _refuse(self, incoming: Incoming, code: str, message: str) -> None:
        self._sayings.warn(f"{code} {incoming.user_id}", f"A frame of {incoming.user_id} was refused ({code}): {message}")
        reach("master.refuse")
        self._link.send(incoming.route, [encode(wire.Refuse(code=code, message=message), self._epoch)])
