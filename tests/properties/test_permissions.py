"""Who may run where, in a thousand random histories: partitions, accounts and lists of nodes, changed while
jobs wait and run.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.model.settings import Account, Partition, Scheduling
from mgpu_jupyter.scheduler.admission import Admission
from mgpu_jupyter.scheduler.commands import LaunchTask
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    JobSubmitted,
    LaunchWasRefused,
    NodeOrdered,
    NodeSilent,
    TaskReported,
)
from mgpu_jupyter.scheduler.model import Policy
from tests.builders import Cluster, a_spec, ended, job_id, status

USERS = ("ann", "bob", "eve")
NODES = ("a1", "a2", "b1")
POLICY = Policy(
    scheduling=Scheduling(
        accounts={"lab": Account(users=("ann", "bob")), "guests": Account()},
        partitions={
            "all": Partition(default=True),
            "a": Partition(nodes=("a*",), allow_accounts=("lab",)),
            "b": Partition(nodes=("b1",), deny_users=("bob",)),
        },
    )
)
people = st.sampled_from(USERS)
node_ids = st.sampled_from(NODES)


class History:
    """A cluster, what its site says, and what operators ordered since."""

    def __init__(self) -> None:
        self.cluster = Cluster(*((name, 2) for name in NODES), policy=POLICY)
        self.at = 1.0
        self.count = 0

    @property
    def state(self):
        return self.cluster.state

    def may(self, user: str, account: str, partition: str, node_id: str) -> bool:
        rules = POLICY.scheduling.partitions[partition]
        return rules.lists.admit(user, account) and self.state.nodes[NodeId(node_id)].lists.admit(
            user, account
        )

    def submit(self, user: str, **spec) -> str | None:
        spec = a_spec(**spec)
        try:
            Admission(self.state).check(user, spec)
        except MgpuError:
            return None
        self.count += 1
        self.cluster.tell(JobSubmitted(at=self.at, job_id=job_id(self.count), user=user, spec=spec))
        return job_id(self.count)

    def order(self, node_id: str, action: str, **who) -> None:
        self.cluster.tell(NodeOrdered(at=self.at, node_id=NodeId(node_id), by="root", action=action, **who))

    def schedule(self) -> None:
        self.at += 1.0
        for command in self.cluster.schedule(self.at):
            if isinstance(command, LaunchTask):
                job = self.state.jobs[command.spec.key.job_id]
                partition = self.state.site.partition_of(job.spec)
                assert self.may(job.user, job.account, partition, command.spec.node_id), (
                    f"{job.user} runs on {command.spec.node_id}"
                )
                assert partition in self.state.site.partitions_of(command.spec.node_id)
                assert self.state.nodes[command.spec.node_id].state is NodeState.ONLINE

    def end_all(self) -> None:
        for job in [job for job in self.state.jobs.values() if job.state is not JobState.QUEUED]:
            for rank in range(len(job.placements)):
                self.at += 1.0
                self.cluster.tell(TaskReported(at=self.at, status=status(job, rank)))
            for rank in range(len(job.placements)):
                self.cluster.tell(TaskReported(at=self.at, status=ended(job, rank)))


steps = st.one_of(
    st.tuples(
        st.just("submit"),
        people,
        st.fixed_dictionaries(
            {
                "partition": st.sampled_from(["", "a", "b"]),
                "account": st.sampled_from(["", "", "lab", "guests"]),
                "nodes": st.integers(1, 2),
            },
            optional={"prefer": st.tuples(node_ids)},
        ),
    ),
    st.tuples(
        st.just("order"),
        node_ids,
        st.sampled_from(["allow", "deny", "only", "clear-lists", "drain", "resume"]),
        people,
    ),
    st.tuples(st.just("silent"), node_ids),
    st.just(("schedule",)),
    st.just(("end",)),
)


@settings(max_examples=1000, deadline=None)
@given(history=st.lists(steps, max_size=25), waits=people)
def test_no_job_runs_where_its_user_may_not_and_after_allow_it_does(history, waits):
    world = History()
    for step in history:
        match step:
            case ("submit", user, spec):
                world.submit(user, wait_for_nodes=True, **spec)
            case ("order", node_id, action, user):
                named = {"users": (user,)} if action in ("allow", "deny", "only") else {}
                world.order(node_id, action, **named)
            case ("silent", node_id):
                world.cluster.tell(NodeSilent(at=world.at, node_id=NodeId(node_id), reason="Silent."))
            case ("schedule",):
                world.schedule()
            case ("end",):
                world.end_all()

    # One who is kept off every node waits; once one of them lets them in, the job runs there.
    world.end_all()
    for job in list(world.state.jobs):
        world.cluster.tell(_cancel(world, job))
    for node_id in NODES:
        world.cluster.join(node_id, 2, at=world.at)
        world.order(node_id, "resume")
        world.order(node_id, "clear-lists")
        world.order(node_id, "deny", users=(waits,))
    new = world.submit(waits, wait_for_nodes=True, prefer=("a1",))
    world.schedule()
    assert world.state.jobs[new].state is JobState.QUEUED
    world.order("b1", "allow", users=(waits,))
    world.schedule()
    assert [placement.node_id for placement in world.state.jobs[new].placements] == ["b1"]


@settings(max_examples=100, deadline=None)
@given(
    away=st.sampled_from(["silent", "drain", "maintenance", "unhealthy"]),
    preferred=node_ids,
    policy=st.sampled_from(["", "spread", "topology"]),
)
def test_a_preferred_node_that_takes_no_work_is_replaced_by_another(away, preferred, policy):
    world = History()
    if away == "silent":
        world.cluster.tell(NodeSilent(at=1.0, node_id=NodeId(preferred), reason="Silent."))
    elif away == "unhealthy":
        _make_unhealthy(world, preferred)
    else:
        world.order(preferred, away)
    new = world.submit("eve", prefer=(preferred,), policy=policy)
    world.schedule()
    (placement,) = world.state.jobs[new].placements
    assert placement.node_id != preferred
    assert world.state.nodes[NodeId(preferred)].state is not NodeState.ONLINE


def _make_unhealthy(world: History, node_id: str) -> None:
    for _ in range(3):
        new = world.submit("eve", nodelist=(node_id,))
        world.schedule()
        job = world.state.jobs[new]
        refused = LaunchWasRefused(
            at=world.at, node_id=NodeId(node_id), key=job.attempt_key, code="no", message="No.", fault="node"
        )
        world.cluster.tell(refused)
        world.cluster.tell(_cancel(world, new))


def _cancel(world: History, new: str):
    return CancelRequested(at=world.at, job_id=new, by="root")
