"""Replays a trace in virtual time through the real queue, pool, planner, quotas and shares. Decides nothing
by itself.

Theory of operation. Time jumps from event to event. At equal times jobs end first, then others arrive, then
there is one pass, as the master does it. Jobs run exactly as long as the trace says, starting costs nothing,
and no node fails. A pass is also made when a promise comes due that was not kept, which happens only where
expected durations are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from heapq import heappop, heappush
from time import perf_counter

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_agent.protocol.model import GpuInfo, NodeFacts
from mgpu_agent.protocol.wording import count
from mgpu_jupyter.model.job import JobSpec, JobState, NodeState, Part
from mgpu_jupyter.model.settings import Scheduling
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.model import Job, Node, Policy
from mgpu_jupyter.scheduler.passing import run_pass
from mgpu_jupyter.scheduler.placement.fit import Found
from mgpu_jupyter.scheduler.placement.strategies import BUILT_IN
from mgpu_jupyter.scheduler.planning.queue import Entry
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.scheduler.words import nearest
from mgpu_jupyter.simulate.traces import TraceJob

NEVER = float("inf")
SHORTEST_S = 1e-6
"""A time limit must be positive; a job of no duration gets this."""


class KnownTimes(StrEnum):
    """What is known in advance about the duration of a job."""

    PERFECT = "perfect"
    USER = "user"
    LEARNED = "learned"


class SimulatedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are all alike."""

    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus_per_node


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The result; `starts` and `works` belong together."""

    cluster: SimulatedCluster
    works: tuple[TraceJob, ...]
    starts: tuple[float, ...]
    too_large: int
    """Jobs that are larger than the cluster; left out."""
    without_gpus: int
    """Jobs that ask for no GPU; left out."""
    passes: int
    promised: int
    """Jobs that were promised a start while they waited at the head."""
    late: int
    """Those of them that started later than first promised."""
    wall_s: float


def replay(
    works: Sequence[TraceJob],
    cluster: SimulatedCluster,
    scheduling: Scheduling,
    estimates: KnownTimes = KnownTimes.PERFECT,
) -> Replay:
    """Run a trace to its end."""
    strategy = scheduling.strategy
    if strategy not in BUILT_IN:
        raise InvalidRequest(
            "unknown-strategy",
            f"There is no strategy {strategy}{nearest(strategy, BUILT_IN)}: it is one of "
            f"{', '.join(BUILT_IN)}.",
        )
    if estimates is KnownTimes.USER and not any(work.estimate_s for work in works):
        raise InvalidRequest(
            "no-estimates", "The trace has no estimate_s: use --estimates perfect or learned."
        )
    fitting = [work for work in works if 0 < work.gpus <= cluster.gpus]
    if not fitting:
        raise InvalidRequest(
            "nothing-fits",
            f"No job of the trace fits {count(cluster.gpus, 'GPU')}: give more --nodes or --gpus-per-node.",
        )
    planning = msgspec.structs.replace(scheduling.planning, learn=estimates is KnownTimes.LEARNED)
    world = _World(fitting, cluster, msgspec.structs.replace(scheduling, planning=planning), estimates)
    began = perf_counter()
    world.run()
    return Replay(
        cluster=cluster,
        works=tuple(fitting),
        starts=tuple(world.starts),
        too_large=sum(work.gpus > cluster.gpus for work in works),
        without_gpus=sum(not work.gpus for work in works),
        passes=world.passes,
        promised=len(world.promised),
        late=world.late,
        wall_s=perf_counter() - began,
    )


def spec_of(gpus: int, gpus_per_node: int, name: str = "", *, exclusive: bool = False) -> JobSpec:
    """Return the request of a traced job: one node if that is enough, else whole nodes and the rest on one
    more.
    """
    if gpus <= gpus_per_node:
        return JobSpec(name=name, gpus=gpus, exclusive=exclusive)
    nodes, rest = divmod(gpus, gpus_per_node)
    if not rest:
        return JobSpec(name=name, nodes=nodes, gpus_per_node=gpus_per_node, exclusive=exclusive)
    parts = (Part(gpus=gpus_per_node),) * nodes + (Part(gpus=rest),)
    return JobSpec(name=name, nodes=nodes + 1, parts=parts, exclusive=exclusive)


class _World:
    def __init__(
        self, works: list[TraceJob], cluster: SimulatedCluster, scheduling: Scheduling, estimates: KnownTimes
    ) -> None:
        self._works, self._cluster, self._estimates = works, cluster, estimates
        self._state = ClusterState(Policy(scheduling=scheduling))
        for number in range(cluster.nodes):
            node = _a_node(number, cluster.gpus_per_node)
            self._state.nodes[node.id] = node
            books.recount(self._state, node)
        self._specs: dict[tuple[int, str, bool], JobSpec] = {}
        self._ends: list[tuple[float, int, JobId]] = []
        self.starts = [NEVER] * len(works)
        self.passes = 0
        self.promised: dict[JobId, float] = {}
        self.late = 0

    def run(self) -> None:
        state, works, ends = self._state, self._works, self._ends
        arrived = 0
        while True:
            now = min(
                works[arrived].submit_s if arrived < len(works) else NEVER, ends[0][0] if ends else NEVER
            )
            due = min(
                (promise.at for promise in state.planner.promises if promise.at > state.now), default=NEVER
            )
            if due < now:
                now = due
                state.wants_pass = True
            if now == NEVER:
                break
            state.now = now
            while ends and ends[0][0] <= now:
                self._end(heappop(ends)[2])
            while arrived < len(works) and works[arrived].submit_s <= now:
                books.admit(state, self._job(arrived))
                arrived += 1
            if state.pass_is_due:
                self.passes += 1
                run_pass(state, self._start)
                for promise in state.planner.promises:
                    self.promised.setdefault(promise.job_id, promise.at)
        stuck = len(state.jobs)
        if stuck:
            raise InvalidRequest(
                "stuck", f"{count(stuck, 'job')} can never start under these settings: look at the quotas."
            )

    def _job(self, index: int) -> Job:
        work = self._works[index]
        key = (work.gpus, work.name, work.exclusive)
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = spec_of(
                work.gpus, self._cluster.gpus_per_node, work.name, exclusive=work.exclusive
            )
        return Job(
            id=JobId(f"{index:08d}"),
            number=index,
            user=work.user,
            spec=spec,
            submitted_at=work.submit_s,
            new_time_limit_s=self._limit_s(work),
        )

    def _limit_s(self, work: TraceJob) -> float | None:
        if self._estimates is KnownTimes.PERFECT:
            return max(work.duration_s, SHORTEST_S)
        if self._estimates is KnownTimes.USER and work.estimate_s is not None:
            return max(work.estimate_s, work.duration_s, SHORTEST_S)
        return None

    def _start(self, entry: Entry, found: Found) -> None:  # noqa: ARG002 - what it got is in the pool
        state, index = self._state, entry.number
        books.move(state, state.jobs[entry.job_id], state_=JobState.STARTING, attempt=1, started_at=state.now)
        self.starts[index] = state.now
        heappush(self._ends, (state.now + self._works[index].duration_s, index, entry.job_id))
        self.late += state.now > self.promised.get(entry.job_id, NEVER)

    def _end(self, job_id: JobId) -> None:
        state = self._state
        books.move(state, state.jobs[job_id], state_=JobState.COMPLETED, ended_at=state.now)
        if self._estimates is KnownTimes.LEARNED:
            books.learn(state, state.news)
        state.news.clear()


def _a_node(number: int, gpus: int) -> Node:
    name = f"n{number:05d}"
    facts = NodeFacts(
        host=name,
        address="",
        arch="",
        cpus=0,
        memory_bytes=0,
        boot_id="",
        incarnation="",
        agent_version="",
        python="",
        pid=0,
        gpus=tuple(
            GpuInfo(
                index=index, uuid=GpuUuid(f"{name}-{index}"), name="simulated", memory_bytes=0, simulated=True
            )
            for index in range(gpus)
        ),
    )
    return Node(id=NodeId(name), facts=facts, state=NodeState.ONLINE)
