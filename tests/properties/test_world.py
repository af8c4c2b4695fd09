"""Random histories in a world of fake agents: messages get lost, doubled and late, nodes restart, processes
end when they like.

State invariants alone do not see a stale report that is believed; only a world in which old processes still
run does.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuTrouble, Trouble
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Retries, Scheduling
from mgpu_jupyter.scheduler import invariants
from mgpu_jupyter.scheduler.commands import (
    Command,
    LaunchTask,
    PrepareTask,
    ProbeNode,
    SaveJob,
    StartTask,
    StopTask,
)
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    Event,
    GpusChanged,
    JobSubmitted,
    NodeHeard,
    NodeLeft,
    NodeOrdered,
    NodeProbed,
    NodeSilent,
    PassDue,
    StateRecovered,
    TimePassed,
)
from mgpu_jupyter.scheduler.machine import handle
from mgpu_jupyter.scheduler.model import Job, Policy
from mgpu_jupyter.scheduler.state import ClusterState
from tests.builders import a_spec, job_id
from tests.properties.agents import GRACE_S, LEASE_S, NODES, SILENCE_S, STEP_S, Beat, FakeAgent, Heard


class World(RuleBasedStateMachine):
    """The core, three agents and a network in which anything may happen to a message."""

    policy = Policy(
        scheduling=Scheduling(retries=Retries(max_failed_starts=1000, node_failures=2)),
        kill_grace_s=GRACE_S,
        lease_s=LEASE_S,
        lease_margin_s=0.0,
        prepare_s=30.0,
    )

    @initialize()
    def begin(self) -> None:
        self.state = ClusterState(self.policy)
        self.agents = {name: FakeAgent(name) for name in NODES}
        self.down: list[Command | Heard] = []
        self.up: list[tuple[NodeId, Event | Beat]] = []
        self.connected: set[NodeId] = set()
        self.cut: set[NodeId] = set()
        """Nodes whose messages do not get through, either way."""
        self.heard: dict[NodeId, float] = {}
        self.silent: set[NodeId] = set()
        self.saved: dict[str, JobState] = {}
        self.stored: dict[str, Job] = {}
        self.starts: dict[tuple[AttemptKey, int], int] = {}
        self.epochs: list[int] = []
        self.count = 0
        self.at = 1.0
        for name in NODES:
            self.join(name)

    def advance(self, seconds: float) -> None:
        self.at += seconds
        for agent in self.agents.values():
            self.up += [(agent.id, event) for event in agent.expire(self.at)]

    def hear(self, node: NodeId, event: Event | Beat) -> None:
        """Let something that a node said arrive; the master takes it only from a connection on which it was
        greeted.
        """
        if node not in self.connected:
            return
        self.heard[node] = self.at
        if node in self.silent:
            self.silent.discard(node)
            self.tell(NodeHeard(at=self.at, node_id=node))
        if isinstance(event, Beat):
            self.down.append(Heard(node, event.at))
        else:
            self.tell(event)

    def tell(self, event: Event) -> None:
        self.advance(1.0)
        for command in handle(self.state, event):
            if isinstance(event, PassDue) and isinstance(command, LaunchTask | PrepareTask):
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
                self.stored[command.job.id] = command.job
            elif isinstance(command, LaunchTask | PrepareTask | StartTask | StopTask | ProbeNode):
                self.down.append(command)
            if isinstance(command, LaunchTask | StartTask):
                job = self.stored[
                    (command.spec.key if isinstance(command, LaunchTask) else command.key).job_id
                ]
                assert len(job.placements) in (1, len(job.prepared)), (
                    "a part was started before all nodes could"
                )

    def see(self, before: JobState | None, job: Job) -> None:
        """Look at a job that was saved."""

    def join(self, name: str) -> None:
        agent = self.agents[name]
        self.up = [(node, event) for node, event in self.up if node != agent.id]
        self.down = [command for command in self.down if self.target(command) != agent.id]
        self.connected.add(agent.id)
        self.silent.discard(agent.id)
        self.heard[agent.id] = self.at
        self.down.append(Heard(agent.id, self.at))
        self.tell(agent.hello(self.at, NODES[name]))

    @staticmethod
    def target(command: Command | Heard) -> NodeId:
        return command.spec.node_id if isinstance(command, LaunchTask | PrepareTask) else command.node_id

    def deliver(self, command: Command | Heard, *, refuse: bool = False) -> None:
        agent = self.agents[self.target(command)]
        if isinstance(command, ProbeNode):
            self.up.append(
                (agent.id, NodeProbed(at=self.at, node_id=agent.id, number=command.number, ok=not refuse))
            )
        elif isinstance(command, Heard):
            agent.alive_at = max(agent.alive_at, command.beat)
        elif isinstance(command, PrepareTask) and not refuse:
            self.up.append((agent.id, agent.prepare(command.spec, self.at)))
        elif isinstance(command, LaunchTask | PrepareTask) and refuse:
            self.up.append((agent.id, agent.refuse(command.spec, self.at)))
        elif isinstance(command, LaunchTask | StartTask):
            before = set(agent.live)
            answers = (
                [agent.launch(command.spec, self.at)]
                if isinstance(command, LaunchTask)
                else agent.start(command.key, self.at)
            )
            self.up += [(agent.id, event) for event in answers]
            for slot in set(agent.live) - before:
                self.starts[slot] = self.starts.get(slot, 0) + 1
                self.epochs.append(slot[0].epoch)
        else:
            self.up += [(agent.id, event) for event in agent.stop(command.key, self.at)]

    @rule(
        gpus=st.integers(0, 2),
        nodes=st.integers(1, 2),
        on_disconnect=st.sampled_from(["keep", "fence"]),
        exclusive=st.booleans(),
    )
    def submit(self, gpus: int, nodes: int, on_disconnect: str, *, exclusive: bool) -> None:
        self.count += 1
        spec = a_spec(nodes=nodes, gpus_per_node=gpus, on_disconnect=on_disconnect, exclusive=exclusive)
        self.tell(JobSubmitted(at=self.at, job_id=job_id(self.count), user="ann", spec=spec))

    @rule()
    def schedule(self) -> None:
        self.tell(TimePassed(at=self.at))
        self.tell(PassDue(at=self.at))

    @precondition(lambda self: self.state.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.tell(
            CancelRequested(at=self.at, job_id=data.draw(st.sampled_from(sorted(self.state.jobs))), by="ann")
        )

    @precondition(lambda self: self.down)
    @rule(data=st.data(), fate=st.sampled_from(["deliver", "and again later", "refuse", "drop"]))
    def message_down(self, data: st.DataObject, fate: str) -> None:
        command = self.down.pop(data.draw(st.integers(0, len(self.down) - 1)))
        if self.target(command) in self.cut:
            fate = "and again later"
        elif fate != "drop":
            self.deliver(command, refuse=fate == "refuse")
        if fate == "and again later":
            self.down.append(command)

    @precondition(lambda self: self.up)
    @rule(data=st.data(), fate=st.sampled_from(["deliver", "and again later", "drop"]))
    def message_up(self, data: st.DataObject, fate: str) -> None:
        node, event = self.up.pop(data.draw(st.integers(0, len(self.up) - 1)))
        if node in self.cut:
            fate = "and again later"
        elif fate != "drop":
            self.hear(node, event)
        if fate == "and again later":
            self.up.append((node, event))

    @rule()
    def calm(self) -> None:
        """All that is under way arrives; copies of what was told stay for later."""
        self.up += [(agent.id, Beat(self.at)) for agent in self.agents.values()]
        told = [(node, event) for node, event in self.up if node not in self.cut]
        self.flow()
        self.up += told
        self.advance(60.0)
        self.schedule()

    @rule(steps=st.sampled_from([1, 3, 10, 20, 40]))
    def time_passes(self, steps: int) -> None:
        """All goes its way, but for the nodes that are cut off."""
        for _ in range(steps):
            self.advance(STEP_S)
            for node in sorted(self.connected):
                if node not in self.cut:
                    self.up.append((node, Beat(self.at)))
                elif node not in self.silent and self.at - self.heard[node] > SILENCE_S:
                    self.node_falls_silent(node)
            self.schedule()
            self.flow()
            self.flow()
            self.the_world_is_sound()

    def flow(self) -> None:
        """Let all arrive that is under way and not cut off."""
        down = [command for command in self.down if self.target(command) not in self.cut]
        self.down = [command for command in self.down if self.target(command) in self.cut]
        for command in down:
            self.deliver(command)
        up = [(node, event) for node, event in self.up if node not in self.cut]
        self.up = [(node, event) for node, event in self.up if node in self.cut]
        for node, event in up:
            self.hear(node, event)

    @rule(name=st.sampled_from(sorted(NODES)), heal=st.booleans())
    def network_changes(self, name: str, heal: bool) -> None:
        """Cut a node off, or let what was held back arrive late."""
        (self.cut.discard if heal else self.cut.add)(NodeId(name))

    @rule(name=st.sampled_from(sorted(NODES)))
    def node_beats(self, name: str) -> None:
        self.up.append((NodeId(name), Beat(self.at)))

    @rule(name=st.sampled_from(sorted(NODES)))
    def node_falls_silent_now(self, name: str) -> None:
        self.node_falls_silent(NodeId(name))

    def node_falls_silent(self, node: NodeId) -> None:
        if node in self.connected and node not in self.silent:
            self.silent.add(node)
            self.tell(NodeSilent(at=self.at, node_id=node, reason="Silent.", heard_at=self.heard[node]))

    @rule(name=st.sampled_from(sorted(NODES)))
    def agent_restarts_or_lets_go(self, name: str) -> None:
        """What is prepared is in the agent's memory; what runs goes on under its keeper."""
        self.agents[name].prepared.clear()

    @rule()
    def master_restarts(self) -> None:
        """What it had sent may still arrive; what it was told and had not saved is lost, and so are the
        connections.
        """
        nodes = tuple((node.id, node.facts) for node in self.state.nodes.values())
        orders = {node.id: node.orders for node in self.state.nodes.values()}
        jobs = tuple(job for job in self.stored.values() if not job.state.is_final)
        epoch, number = self.state.epoch, self.state.number
        self.state = ClusterState(self.policy)
        self.up, self.connected, self.silent = [], set(), set()
        self.tell(
            StateRecovered(at=self.at, jobs=jobs, nodes=nodes, orders=orders, epoch=epoch, number=number)
        )

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
        action=st.sampled_from(
            ["drain", "maintenance", "resume", "resume", "deny", "allow", "clear-lists", "remove"]
        ),
    )
    def operator_orders(self, name: str, action: Any) -> None:
        users = ("ann",) if action in ("deny", "allow") else ()
        self.tell(NodeOrdered(at=self.at, node_id=NodeId(name), by="root", action=action, users=users))

    @rule(name=st.sampled_from(sorted(NODES)))
    def node_leaves(self, name: str) -> None:
        self.tell(NodeLeft(at=self.at, node_id=NodeId(name), reason="Stopped."))

    @rule(name=st.sampled_from(sorted(NODES)), reboot=st.booleans())
    def node_returns(self, name: str, reboot: bool) -> None:
        self.cut.discard(NodeId(name))
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
        assert len({job for job, _ in attempts}) == len(attempts), (
            "two attempts of one job run at the same time"
        )
        for agent in self.agents.values():
            held = [uuid for status in agent.live.values() for uuid in status.gpus]
            assert len(held) == len(set(held)), "two live processes share a GPU"
            jobs = {key.job_id for key, _ in agent.live}
            is_alone = any(self.stored[job].spec.exclusive for job in jobs)
            assert len(jobs) <= 1 or not is_alone, "another job runs on the node of one with --exclusive"
        assert all(count == 1 for count in self.starts.values()), "an attempt was started twice"

    def teardown(self) -> None:
        """When the network heals and all processes end, every job comes to an end."""
        if not hasattr(self, "state"):
            return
        self.cut = set()
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
                    self.hear(*self.up.pop(0))
            for agent in self.agents.values():
                for slot in list(agent.live):
                    self.tell(agent.end(slot, self.at, exit_code=0))
            self.advance(60.0)
            self.schedule()
            if all(self.is_stuck(job) for job in self.state.jobs.values()):
                return
        raise AssertionError(f"jobs that never end: {self.state.jobs}")

    def is_stuck(self, job: Job) -> bool:
        """A request that no node can ever serve waits for ever, by design."""
        return (
            job.state is JobState.QUEUED
            and sum(gpus >= job.spec.gpus_per_node for gpus in NODES.values()) < job.spec.nodes
        )


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
