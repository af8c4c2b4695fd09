"""The same world with all that people may order about jobs: holds, waits, arrays, quotas, requeues,
preemption, restarts.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Account, Qos, Quota, Retries, Scheduling
from mgpu_jupyter.model.units import gpus_of
from mgpu_jupyter.model.waits import After, Dependency
from mgpu_jupyter.scheduler.books import HOLDING
from mgpu_jupyter.scheduler.events import JobChanged, JobSubmitted, RequeueRequested
from mgpu_jupyter.scheduler.model import ArrayPart, Job
from tests.builders import a_spec, job_id
from tests.properties.test_world import NODES, World

POLICY = replace(
    World.policy,
    scheduling=Scheduling(
        retries=Retries(max_failed_starts=1000, node_failures=2),
        preemption=True,
        qos={
            "spare": Qos(priority=-5.0, preemptible=True, grace_s=1.0),
            "urgent": Qos(priority=5000.0, quota=Quota(running=1)),
        },
        quotas={"bob": Quota(gpus=2), "eve": Quota(running=1)},
        accounts={"lab": Account(users=("eve", "dan"), quota=Quota(gpus=2))},
    ),
)
USERS = ("ann", "bob", "dan", "eve")


class Orders(World):
    """People order what they like; the rules hold."""

    policy = POLICY

    @initialize()
    def begin(self) -> None:
        self.rows: dict[JobId, Job] = {}
        self.waits: dict[JobId, tuple[Dependency, ...]] = {}
        self.started: set[JobId] = set()
        self.arrays = 0
        super().begin()

    def see(self, before: JobState | None, job: Job) -> None:
        self.rows[job.id] = job
        if job.state is JobState.RUNNING or (job.state.is_final and job.tasks):
            self.started.add(job.id)
        if job.state is JobState.STARTING and before is not JobState.STARTING:
            assert not job.held, "a held job was started"
            for wait in self.waits.get(job.id, ()):
                assert self.is_met(wait), f"{job.id} was started before {wait}"

    def is_met(self, wait: Dependency) -> bool:
        state = self.saved[wait.job_id]
        if wait.kind is After.STARTED:
            return state.is_final or wait.job_id in self.started
        ends = {After.OK: [JobState.COMPLETED], After.ANY: list(JobState), After.NOT_OK: [*JobState][5:]}
        return state.is_final and state in ends[wait.kind]

    @rule(
        gpus=st.integers(0, 2),
        user=st.sampled_from(USERS),
        qos=st.sampled_from(["", "spare", "spare", "urgent"]),
        hold=st.booleans(),
        kinds=st.lists(st.sampled_from(list(After)), max_size=2),
        requeue=st.booleans(),
        data=st.data(),
    )
    def submit_more(
        self,
        *,
        gpus: int,
        user: str,
        qos: str,
        hold: bool,
        kinds: list[After],
        requeue: bool,
        data: st.DataObject,
    ) -> None:
        open_jobs = sorted(self.state.jobs)
        after = tuple(
            {Dependency(kind, data.draw(st.sampled_from(open_jobs))) for kind in kinds if open_jobs}
        )
        self.add(a_spec(gpus=gpus, qos=qos, hold=hold, requeue=requeue), user, after)

    @rule(size=st.integers(1, 4), throttle=st.integers(0, 2), user=st.sampled_from(USERS))
    def submit_array(self, size: int, throttle: int, user: str) -> None:
        self.arrays += 1
        for index in range(size):
            self.add(
                a_spec(gpus=1, array="x"),
                user,
                (),
                ArrayPart(f"ARRAY{self.arrays:03}", index, throttle, size, 0, size - 1),
            )

    def add(self, spec, user: str, after: tuple[Dependency, ...], array: ArrayPart | None = None) -> None:
        account = self.state.site.account_of(user, spec)
        if self.state.quotas.can_ever(user, account, spec.qos, gpus_of(spec)):
            return  # the master refuses it
        self.count += 1
        new = job_id(self.count)
        # As the master does: what is met already is not waited for, and only jobs that exist can be named.
        after = tuple(
            wait
            for wait in after
            if not (wait.kind is After.STARTED and self.state.jobs[JobId(wait.job_id)].started_at)
        )
        self.waits[new] = after
        self.tell(JobSubmitted(at=self.at, job_id=new, user=user, spec=spec, after=after, array=array))

    @precondition(lambda self: self.state.jobs)
    @rule(
        data=st.data(),
        held=st.sampled_from([None, True, False]),
        priority=st.sampled_from([None, -1, 1]),
        limit=st.sampled_from([None, 1.0, 50.0]),
    )
    def change(
        self, data: st.DataObject, held: bool | None, priority: int | None, limit: float | None
    ) -> None:
        job = data.draw(st.sampled_from(sorted(self.state.jobs)))
        self.tell(
            JobChanged(at=self.at, job_id=job, by="ann", held=held, priority=priority, time_limit_s=limit)
        )

    @precondition(lambda self: self.state.jobs)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        self.tell(
            RequeueRequested(at=self.at, job_id=data.draw(st.sampled_from(sorted(self.state.jobs))), by="ann")
        )

    @rule()
    def master_restarts(self) -> None:
        """All that was saved comes back, and nothing else does; the nodes that are not cut off come back at
        once.
        """
        super().master_restarts()
        for name in sorted(NODES.keys() - self.cut):
            self.join(name)

    @invariant()
    def limits_hold(self) -> None:
        if not hasattr(self, "state"):
            return
        held = [job for job in self.state.jobs.values() if job.state in HOLDING]

        def gpus(jobs: list[Job]) -> int:
            return sum(len(placement.gpus) for job in jobs for placement in job.placements)

        assert gpus([job for job in held if job.user == "bob"]) <= 2, "bob has more than his quota"
        assert gpus([job for job in held if job.account == "lab"]) <= 2, "the account has more than its quota"
        assert len([job for job in held if job.user == "eve"]) <= 1, "eve runs more than she may"
        for user in USERS:
            assert len([job for job in held if (job.user, job.spec.qos) == (user, "urgent")]) <= 1, (
                "more urgent jobs than one"
            )
        for job in held:
            if job.array is not None and job.array.throttle:
                those = [other for other in held if other.array and other.array.id == job.array.id]
                assert len(those) <= job.array.throttle, "an array runs more at once than it may"
        for job in held:
            assert len(job.placements) == len({placement.node_id for placement in job.placements}), (
                "two units on one node"
            )

    def teardown(self) -> None:
        if not hasattr(self, "rows"):
            return
        for new in list(self.state.jobs):
            self.tell(JobChanged(at=self.at, job_id=new, by="ann", held=False))
        super().teardown()

    def is_stuck(self, job: Job) -> bool:
        """What waits for one that waits for ever waits as long."""
        others = [self.state.jobs[JobId(wait.job_id)] for wait in job.after]
        if others:
            return any(self.is_stuck(other) for other in others)
        return job.spec.nodes is not None and super().is_stuck(job)


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
