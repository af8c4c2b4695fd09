"""Random histories in a world of fake agents: messages get lost, doubled and late, nodes restart, processes end when they like.

State invariants alone do not see a stale report that is believed; only a world in which old processes still run does.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuTrouble, LaunchSpec, TaskStatus, Trouble
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Retries, Scheduling
from mgpu_jupyter.scheduler import invariants
from mgpu_jupyter.scheduler.commands import Command, LaunchTask, ProbeNode, SaveJob, StopTask
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    Event,
    GpusChanged,
    JobSubmitted,
    LaunchWasRefused,
    NodeJoined,
    NodeLeft,
    NodeOrdered,
    NodeProbed,
    PassDue,
    TaskReported,
    TimePassed,
)
from mgpu_jupyter.scheduler.machine import handle
from mgpu_jupyter.scheduler.model import Job, Policy
from mgpu_jupyter.scheduler.state import ClusterState
from tests.builders import a_spec, facts, job_id

NODES = {"n1": 2, "n2": 1}


class FakeAgent:
    """An agent and its keeper, as the protocol demands them: idempotent launches, tombstones, incarnations."""

    def __init__(self, node_id: str) -> None:
        self.id = NodeId(node_id)
        self.boots = 1
        self.live: dict[tuple[AttemptKey, int], TaskStatus] = {}
        self.over: dict[tuple[AttemptKey, int], TaskStatus] = {}
        self.stones: set[AttemptKey] = set()
        self.troubles: dict[GpuUuid, GpuTrouble] = {}

    @property
    def incarnation(self) -> str:
        return f"boot-{self.boots}/ledger"

    def launch(self, spec: LaunchSpec, at: float) -> Event:
        (task,) = spec.tasks
        slot = (spec.key, task.rank)
        if slot in self.live or slot in self.over:
            return TaskReported(at=at, status=self.live.get(slot) or self.over[slot])
        if spec.incarnation != self.incarnation or spec.key in self.stones:
            return LaunchWasRefused(at=at, node_id=self.id, key=spec.key, code="stale", message="Stale.", fault="stale")
        self.live[slot] = TaskStatus(
            key=spec.key, rank=task.rank, node_id=self.id, host="h", address="a", pid=1, started_at=at, gpus=spec.gpus
        )
        return TaskReported(at=at, status=self.live[slot])

    def refuse(self, spec: LaunchSpec, at: float) -> Event:
        (task,) = spec.tasks
        if (spec.key, task.rank) in self.live or (spec.key, task.rank) in self.over:
            return self.launch(spec, at)
        self.stones.add(spec.key)
        return LaunchWasRefused(at=at, node_id=self.id, key=spec.key, code="no", message="No.", fault="node")

    def stop(self, key: AttemptKey, at: float) -> list[Event]:
        slots = [slot for slot in self.live if slot[0] == key]
        if slots:
            return [self.end(slot, at, signal=15) for slot in slots]
        if any(slot[0] == key for slot in self.over):
            return [TaskReported(at=at, status=status) for slot, status in self.over.items() if slot[0] == key]
        self.stones.add(key)
        return [LaunchWasRefused(at=at, node_id=self.id, key=key, code="stopped", message="Stopped.", fault="stale")]

    def end(self, slot: tuple[AttemptKey, int], at: float, *, exit_code: int | None = None, signal: int | None = None) -> Event:
        status = self.live.pop(slot)
        self.over[slot] = TaskStatus(
            **{name: getattr(status, name) for name in ("key", "rank", "node_id", "host", "address", "pid", "started_at", "gpus")},
            ended_at=at,
            exit_code=exit_code,
            signal=signal,
        )
        return TaskReported(at=at, status=self.over[slot])

    def reboot(self) -> None:
        self.boots += 1
        self.live.clear()
        self.over.clear()
        self.stones.clear()

    def hello(self, at: float, gpus: int) -> Event:
        tasks = (*self.live.values(), *self.over.values())
        return NodeJoined(
            at=at, node_id=self.id, facts=facts(self.id, gpus, incarnation=self.incarnation), tasks=tasks, troubles=self.troubles
        )


class World(RuleBasedStateMachine):
    """The core, three agents and a network in which anything may happen to a message."""

    @initialize()
    def begin(self) -> None:
        self.state = ClusterState(Policy(scheduling=Scheduling(retries=Retries(max_failed_starts=1000, node_failures=2))))
        self.agents = {name: FakeAgent(name) for name in NODES}
        self.down: list[Command] = []
        self.up: list[tuple[NodeId, Event]] = []
        self.saved: dict[str, JobState] = {}
        self.starts: dict[tuple[AttemptKey, int], int] = {}
        self.epochs: list[int] = []
        self.count = 0
        self.at = 1.0
        for name in NODES:
            self.join(name)

    def tell(self, event: Event) -> None:
        self.at += 1.0
        for command in handle(self.state, event):
            if isinstance(event, PassDue) and isinstance(command, LaunchTask):
                node = self.state.nodes[command.spec.node_id]
                assert not node.blocked.keys() & set(command.spec.gpus), "a blocked GPU was handed out"
                assert node.takes_work, "a job was placed where no work is taken"
                job = self.state.jobs[command.spec.key.job_id]
                assert node.lists.admit(job.user, job.account), "a job was placed where its user may not"
            if isinstance(command, SaveJob):
                before = self.saved.get(command.job.id)
                assert before is None or not before.is_final, "a job left a final state"
                self.saved[command.job.id] = command.job.state
                self.see(before, command.job)
            elif isinstance(command, LaunchTask | StopTask | ProbeNode):
                self.down.append(command)

    def see(self, before: JobState | None, job: Job) -> None:
        """Look at a job that was saved."""

    def join(self, name: str) -> None:
        agent = self.agents[name]
        self.up = [(node, event) for node, event in self.up if node != agent.id]
        self.down = [command for command in self.down if self.target(command) != agent.id]
        self.tell(agent.hello(self.at, NODES[name]))

    @staticmethod
    def target(command: Command) -> NodeId:
        return command.spec.node_id if isinstance(command, LaunchTask) else command.node_id

    def deliver(self, command: Command, *, refuse: bool = False) -> None:
        agent = self.agents[self.target(command)]
        if isinstance(command, ProbeNode):
            self.up.append((agent.id, NodeProbed(at=self.at, node_id=agent.id, number=command.number, ok=not refuse)))
        elif isinstance(command, LaunchTask) and refuse:
            self.up.append((agent.id, agent.refuse(command.spec, self.at)))
        elif isinstance(command, LaunchTask):
            before = set(agent.live)
            self.up.append((agent.id, agent.launch(command.spec, self.at)))
            for slot in set(agent.live) - before:
                self.starts[slot] = self.starts.get(slot, 0) + 1
                self.epochs.append(slot[0].epoch)
        else:
            self.up += [(agent.id, event) for event in agent.stop(command.key, self.at)]

    @rule(gpus=st.integers(1, 2), nodes=st.integers(1, 2))
    def submit(self, gpus: int, nodes: int) -> None:
        self.count += 1
        spec = a_spec(nodes=nodes, gpus_per_node=gpus)
        self.tell(JobSubmitted(at=self.at, job_id=job_id(self.count), user="ann", spec=spec))

    @rule()
    def schedule(self) -> None:
        self.tell(TimePassed(at=self.at))
        self.tell(PassDue(at=self.at))

    @precondition(lambda self: self.state.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.tell(CancelRequested(at=self.at, job_id=data.draw(st.sampled_from(sorted(self.state.jobs))), by="ann"))

    @precondition(lambda self: self.down)
    @rule(data=st.data(), fate=st.sampled_from(["deliver", "and again later", "refuse", "drop"]))
    def message_down(self, data: st.DataObject, fate: str) -> None:
        command = self.down.pop(data.draw(st.integers(0, len(self.down) - 1)))
        if fate != "drop":
            self.deliver(command, refuse=fate == "refuse")
        if fate == "and again later":
            self.down.append(command)

    @precondition(lambda self: self.up)
    @rule(data=st.data(), fate=st.sampled_from(["deliver", "and again later", "drop"]))
    def message_up(self, data: st.DataObject, fate: str) -> None:
        node, event = self.up.pop(data.draw(st.integers(0, len(self.up) - 1)))
        if fate != "drop":
            self.tell(event)
        if fate == "and again later":
            self.up.append((node, event))

    @rule()
    def calm(self) -> None:
        """All that is under way arrives; copies of what was told stay for later."""
        down, self.down = self.down, []
        for command in down:
            self.deliver(command)
        for _, event in list(self.up):
            self.tell(event)
        self.at += 60.0
        self.schedule()

    @precondition(lambda self: any(agent.live for agent in self.agents.values()))
    @rule(data=st.data(), exit_code=st.sampled_from([0, 0, 1]))
    def process_ends(self, data: st.DataObject, exit_code: int) -> None:
        slots = [(name, slot) for name, agent in self.agents.items() for slot in agent.live]
        name, slot = data.draw(st.sampled_from(sorted(slots)))
        self.up.append((self.agents[name].id, self.agents[name].end(slot, self.at, exit_code=exit_code)))

    @rule(
        name=st.sampled_from(sorted(NODES)),
        gpu=st.integers(0, 1),
        kind=st.sampled_from([None, None, Trouble.OUTSIDE, Trouble.MEMORY, Trouble.SILENT, Trouble.LOST]),
    )
    def gpu_changes(self, name: str, gpu: int, kind: str | None) -> None:
        agent = self.agents[name]
        uuid = GpuUuid(f"GPU-{name}-{gpu}")
        others = {known: trouble for known, trouble in agent.troubles.items() if known != uuid}
        agent.troubles = others if kind is None else {**others, uuid: GpuTrouble(kind, "Told.")}
        self.up.append((agent.id, GpusChanged(at=self.at, node_id=agent.id, troubles=agent.troubles)))

    @rule(
        name=st.sampled_from(sorted(NODES)),
        action=st.sampled_from(["drain", "maintenance", "resume", "resume", "deny", "allow", "clear-lists", "remove"]),
    )
    def operator_orders(self, name: str, action: Any) -> None:
        users = ("ann",) if action in ("deny", "allow") else ()
        self.tell(NodeOrdered(at=self.at, node_id=NodeId(name), by="root", action=action, users=users))

    @rule(name=st.sampled_from(sorted(NODES)))
    def node_leaves(self, name: str) -> None:
        self.tell(NodeLeft(at=self.at, node_id=NodeId(name), reason="Stopped."))

    @rule(name=st.sampled_from(sorted(NODES)), reboot=st.booleans())
    def node_returns(self, name: str, reboot: bool) -> None:
        if reboot:
            self.agents[name].reboot()
        self.join(name)

    @invariant()
    def the_state_is_sound(self) -> None:
        if hasattr(self, "state"):
            assert invariants.check(self.state) == []

    @invariant()
    def the_world_is_sound(self) -> None:
        if not hasattr(self, "agents"):
            return
        live = [slot for agent in self.agents.values() for slot in agent.live]
        attempts = {(key.job_id, key.attempt) for key, _ in live}
        assert len({job for job, _ in attempts}) == len(attempts), "two attempts of one job run at the same time"
        for agent in self.agents.values():
            held = [uuid for status in agent.live.values() for uuid in status.gpus]
            assert len(held) == len(set(held)), "two live processes share a GPU"
        assert all(count == 1 for count in self.starts.values()), "an attempt was started twice"

    def teardown(self) -> None:
        """When the network heals and all processes end, every job comes to an end."""
        if not hasattr(self, "state"):
            return
        for name, agent in self.agents.items():
            agent.troubles = {}
            self.join(name)
            for action in ("resume", "clear-lists"):
                self.tell(NodeOrdered(at=self.at, node_id=agent.id, by="root", action=action))
        for _ in range(200):
            for name in NODES:
                self.join(name)
            while self.down or self.up:
                if self.down:
                    self.deliver(self.down.pop(0))
                if self.up:
                    self.tell(self.up.pop(0)[1])
            for agent in self.agents.values():
                for slot in list(agent.live):
                    self.tell(agent.end(slot, self.at, exit_code=0))
            self.at += 60.0
            self.schedule()
            if all(self.is_stuck(job) for job in self.state.jobs.values()):
                return
        raise AssertionError(f"jobs that never end: {self.state.jobs}")

    def is_stuck(self, job: Job) -> bool:
        """A request that no node can ever serve waits for ever, by design."""
        return job.state is JobState.QUEUED and sum(gpus >= job.spec.gpus_per_node for gpus in NODES.values()) < job.spec.nodes


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
