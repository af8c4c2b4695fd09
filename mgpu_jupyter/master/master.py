"""The single owner of the cluster's state: a thread that takes events and calls, decides, commits, then sends
and answers.

Theory of operation. A turn takes all that has arrived (frames of agents, calls of the server), lets the
scheduler decide, writes all of it in one commit, and only then sends launches and answers calls: that is the
group commit, and durable before visible. When a turn fails (a bug in the core, a full disk) nothing of it was
visible: the state is read from the store again, its callers are told to try again, and agents are asked to
report everything again. The event that broke the core is logged and not tried again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mgpu_agent.protocol.errors import MgpuError, Unavailable
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.model import CellWish
from mgpu_jupyter.master.event_log import EventLog
from mgpu_jupyter.master.node_link import Enrolment, Inbox, NewestReading, NodeLink, OnAnswer, OpenQuestions
from mgpu_jupyter.master.node_views import NodeView, view_of
from mgpu_jupyter.master.ports import MARKS_WAIT_S, ChangeSink, Mark, Store
from mgpu_jupyter.master.turn import Turn, new_turn
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.events import Event, PassDue, StateRecovered, TimePassed
from mgpu_jupyter.scheduler.machine import handle
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.scheduler.placement.strategies import Strategy
from mgpu_jupyter.scheduler.state import ClusterState


class SteadyClock:
    """Starts at the wall clock's time and continues with the monotonic one: a clock that is set ends no job
    early.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Return the time."""
        return time.monotonic() + self._offset


log = logging.getLogger("mgpu.master")

IDLE_WAIT_S = 1.0
CALLS_PER_TURN = 512
SEQ_PER_EPOCH = 1 << 28  # a run makes fewer changes than this, and epoch × this stays exact in JavaScript
FAILED_TURN_PAUSE_S = 0.2

GONE_REMEMBERED = 1_000
"""How many removals are remembered for clients that come back."""

NO_READING = NewestReading()

Call = Callable[["Master", Turn], None]
"""Runs inside a turn; adds its answer to the turn's replies."""


class Gone(NamedTuple):
    """What was removed in one change."""

    seq: int
    nodes: tuple[NodeId, ...]
    jobs: tuple[JobId, ...]


class Master:
    """Runs turns. Everything but `post`, `nodes` and the life cycle belongs to its own thread."""

    def __init__(
        self,
        store: Store,
        link: NodeLink,
        enrolment: Enrolment,
        sink: ChangeSink,
        clock: Callable[[], float],
        *,
        policy: Policy,
        epoch: int,
        strategies: Mapping[str, Strategy] | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.state = ClusterState(policy, strategies)
        self.epoch = epoch
        self.problem = ""
        """Why the last turn failed; empty when it did not."""
        self.link = link
        self.enrolment = enrolment
        self._sink = sink
        self._seq = epoch * SEQ_PER_EPOCH
        self._marks: list[Mark] = []
        """Steps of jobs that were seen and are not written yet."""
        self._readings: dict[NodeId, NewestReading] = {}
        """The newest reading of each node."""
        self._questions = OpenQuestions()
        self._events = EventLog()
        self._calls: deque[tuple[Call, Callable[[MgpuError], None]]] = deque()
        self._nodes: dict[NodeId, NodeView] = {}
        self._shown_seq = self._jobs_seq = self._seq
        self._gone: tuple[Gone, ...] = ()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mgpu-master", daemon=True)

    # --- for other threads ----------------------------------------------------------------------

    def start(self) -> None:
        """Recover from the store and begin to take turns."""
        self.recover()
        self._thread.start()

    def stop(self) -> None:
        """Finish the present turn, say goodbye to agents, close the store."""
        self._stopping.set()
        self.link.wake()
        self._thread.join()

    def post(self, call: Call, on_failure: Callable[[MgpuError], None]) -> None:
        """Run `call` inside the next turn; `on_failure` is called on the master's thread if that turn
        fails.
        """
        if self._stopping.is_set():
            on_failure(Unavailable("stopping", "The server is stopping: try again when it is back."))
            return
        self._calls.append((call, on_failure))
        self.link.wake()

    @property
    def is_alive(self) -> bool:
        """Tell whether turns are being taken."""
        return self._thread.is_alive()

    @property
    def seq(self) -> int:
        """The number of the newest change that is committed and shown, as are all before it."""
        return self._shown_seq

    @property
    def jobs_seq(self) -> int:
        """A number that no change of a job exceeds; read `seq` first."""
        return self._jobs_seq

    def gone_since(self, seq: int) -> list[Gone] | None:
        """Return what was removed after `seq`, or None when that is no longer known."""
        gone = self._gone
        if not self.epoch * SEQ_PER_EPOCH <= seq <= self._seq or (
            len(gone) == GONE_REMEMBERED and gone[0].seq > seq
        ):
            return None
        return [one for one in gone if one.seq > seq]

    def nodes(self) -> list[NodeView]:
        """Return all nodes as they were after the newest turn."""
        return sorted(self._nodes.values(), key=lambda node: node.id)

    def node(self, node_id: NodeId) -> NodeView | None:
        """Return one node as it was after the newest turn."""
        return self._nodes.get(node_id)

    # --- inside a turn --------------------------------------------------------------------------

    def apply(self, turn: Turn, event: Event) -> None:
        """Let the scheduler decide about one event."""
        turn.take(self.state, handle(self.state, event), self._next_seq)

    def ask_node(
        self,
        turn: Turn,
        node_id: NodeId,
        on_answer: OnAnswer,
        key: AttemptKey | None = None,
        cell: CellWish | None = None,
    ) -> None:
        """Ask a node, with this turn, who it is and for the state of an attempt; `on_answer` is called with
        its answer, or when it is away.
        """
        turn.sends.append(self._questions.ask(node_id, key, on_answer, cell))

    def note_gone(self, *, nodes: tuple[NodeId, ...] = (), jobs: tuple[JobId, ...] = ()) -> None:
        """Remember what was removed, for watching clients."""
        self._gone = (*self._gone, Gone(self._next_seq(), nodes, jobs))[-GONE_REMEMBERED:]

    def turn(self, timeout_s: float = 0.0) -> None:
        """Take one turn: wait, decide, commit, send, answer."""
        if not self._calls:
            self.link.wait(timeout_s)
        turn = new_turn()
        calls: list[Callable[[MgpuError], None]] = []
        event: Event | None = None
        try:
            inbox = self.link.poll()
            self._take_beside(inbox)
            for event in inbox.events:
                self.apply(turn, event)
            event = None
            while self._calls and len(calls) < CALLS_PER_TURN:
                call, on_failure = self._calls.popleft()
                calls.append(on_failure)
                call(self, turn)
            self._schedule(turn)
            for look in turn.questions:
                look(self.state, turn)
            turn.batch.epoch = self.state.epoch
            self._write(turn)
        except Exception as error:  # noqa: BLE001 - nothing was visible yet; see the theory of operation
            self._fail(error, event, calls)
            return
        self.problem = ""
        self._carry_out(turn, set(inbox.readings))

    def _write(self, turn: Turn) -> None:
        """Commit what a turn changed; marks are written with it, or a little later when nothing else
        changed.
        """
        if turn.batch or (self._marks and self.clock() - self._marks[0].at >= MARKS_WAIT_S):
            turn.batch.marks = self._marks
            self.store.commit(turn.batch)
            self._marks = []

    def _take_beside(self, inbox: Inbox) -> None:
        """Take what is not an event; output is announced at once, since it needs no commit."""
        self._marks += inbox.marks
        self._readings.update(inbox.readings)
        for answer in inbox.answers:
            self._questions.take(answer)
        if inbox.grown:
            self._sink.publish([], [], inbox.grown)
        if inbox.typed:
            self._sink.typed(inbox.typed)

    def _schedule(self, turn: Turn) -> None:
        now = self.clock()
        due_at = books.next_due_at(self.state)
        if due_at is not None and due_at <= now:
            self.apply(turn, TimePassed(at=now))
        if self.state.pass_is_due:
            self.apply(turn, PassDue(at=now))

    def _carry_out(self, turn: Turn, sampled: set[NodeId]) -> None:
        reach("master.committed")
        self.link.committed()
        for node_id, reason in turn.revoked.items():
            self.enrolment.revoke(node_id, reason)
        for node_id in turn.batch.removed:
            self.enrolment.forget(node_id)
            self._readings.pop(node_id, None)
        self.link.send(turn.sends)
        self.link.flush()
        reach("master.sent")
        self._events.write(turn, self.state, self.clock())
        if turn.batch.jobs:
            self._jobs_seq = self._seq
        self._show_nodes(turn.touched | sampled)
        if turn.replies or turn.batch.jobs or turn.touched or sampled:
            reach("master.reply.before")
            self._sink.publish(turn.replies, list(turn.batch.jobs.values()), set())
            reach("master.reply.after")

    def _show_nodes(self, node_ids: set[NodeId]) -> None:
        for node_id in node_ids:
            node = self.state.nodes.get(node_id)
            if node is not None:
                reading, before = self._readings.get(node_id, NO_READING), self._nodes.get(node_id)
                view = view_of(
                    self.state,
                    node,
                    reading.samples,
                    self._next_seq(),
                    self.clock() if node.away_since is None else node.away_since,
                    load=reading.load,
                    before=before,
                )
                self._nodes[node_id] = view
            elif self._nodes.pop(node_id, None) is not None:
                self.note_gone(nodes=(node_id,))
        self._shown_seq = self._seq

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            due_at = books.next_due_at(self.state)
            wait_s = IDLE_WAIT_S if due_at is None else min(IDLE_WAIT_S, max(0.0, due_at - self.clock()))
            self.turn(wait_s)
        stopped = Unavailable("stopping", "The server is stopping: try again when it is back.")
        while self._calls:
            self._calls.popleft()[1](stopped)
        self._events.flush(self.clock(), all_of_it=True)
        self._marks += self.link.close().marks
        self._write_last_marks()
        self.store.close()

    def _write_last_marks(self) -> None:
        turn = new_turn()
        turn.batch.epoch, turn.batch.marks = self.state.epoch, self._marks
        try:
            if self._marks:
                self.store.commit(turn.batch)
        except MgpuError as error:
            log.error("the last steps of jobs were not written: %s", error)  # noqa: TRY400 - no traceback for a full disk

    def recover(self) -> None:
        """Read the state from the store; for the master's own thread, or before it runs."""
        recovered = self.store.recover()
        nodes = tuple((node.id, node.facts) for node in recovered.nodes if node.facts is not None)
        event = StateRecovered(
            at=self.clock(),
            jobs=recovered.jobs,
            nodes=nodes,
            reasons={node.id: node.revoked for node in recovered.nodes if node.revoked},
            orders={node.id: node.notes.orders for node in recovered.nodes},
            health={node.id: node.notes.health for node in recovered.nodes},
            epoch=recovered.epoch,
            number=recovered.number,
            memos=recovered.memos,
            ended=recovered.ended,
        )
        handle(self.state, event)
        self._events.know(self.state)
        self._show_nodes(set(self.state.nodes))

    def _fail(self, error: Exception, event: Event | None, calls: list[Callable[[MgpuError], None]]) -> None:
        known = isinstance(error, MgpuError)
        log.error("a turn came to nothing, event=%s: %s", type(event).__name__, error, exc_info=not known)
        self.problem = (
            error.message
            if isinstance(error, MgpuError)
            else f"Internal error ({type(error).__name__}): see the server's log."
        )
        answer = error if isinstance(error, MgpuError) else Unavailable("internal", self.problem)
        for on_failure in calls:
            on_failure(answer)
        # `stop` must still work while the disk is full.
        self._stopping.wait(FAILED_TURN_PAUSE_S)
        self.state = ClusterState(self.state.policy, self.state.strategies)
        try:
            self.recover()
        except MgpuError as again:
            log.error("the state could not be read again: %s", again)  # noqa: TRY400 - no traceback for a full disk
            return
        self.link.resync()
        self.link.flush()

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq
