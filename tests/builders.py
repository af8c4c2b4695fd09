"""The only place where tests construct the scheduler's values."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, JobId, NodeId
from mgpu_agent.protocol.meeting import Fingerprint, MeetingPoint, Reached, Unreached, Way
from mgpu_agent.protocol.messages import Met
from mgpu_agent.protocol.model import GpuInfo, NodeFacts, TaskStatus
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.launchers import meets
from mgpu_jupyter.scheduler import invariants
from mgpu_jupyter.scheduler.commands import Command, RecordAnswer, Remember, SaveAttempt
from mgpu_jupyter.scheduler.events import Event, JobSubmitted, LaunchWasPrepared, NodeJoined, NodeMet, PassDue
from mgpu_jupyter.scheduler.machine import handle
from mgpu_jupyter.scheduler.model import Job, Placement, Policy
from mgpu_jupyter.scheduler.state import ClusterState


def a_gpu(node: str, index: int) -> GpuInfo:
    return GpuInfo(
        index=index,
        uuid=GpuUuid(f"GPU-{node}-{index}"),
        name="Test GPU",
        memory_bytes=24 << 30,
        simulated=True,
    )


def facts(
    node: str = "n1",
    gpus: int | tuple[GpuInfo, ...] = 4,
    cpus: int = 8,
    incarnation: str = "boot-1/ledger-1",
    **changes: Any,
) -> NodeFacts:
    values = NodeFacts(
        host=f"host-{node}",
        address="127.0.0.1",
        arch="x86_64",
        cpus=cpus,
        memory_bytes=64 << 30,
        boot_id=incarnation.partition("/")[0],
        incarnation=incarnation,
        agent_version="0.1.0",
        python="/usr/bin/python3",
        pid=100,
        gpus=gpus if isinstance(gpus, tuple) else tuple(a_gpu(node, index) for index in range(gpus)),
    )
    return replace(values, **changes)


def a_spec(**changes: Any) -> JobSpec:
    return JobSpec(**{"command": ("true",), **changes})


def job_id(number: int) -> JobId:
    return JobId(f"JOB{number:05d}")


def status(job: Job, rank: int = 0, **changes: Any) -> TaskStatus:
    """What the node that runs `rank` of the current attempt would tell."""
    placement = next(one for one in job.placements if rank in one.ranks)
    values: dict[str, Any] = {
        "key": job.attempt_key,
        "rank": rank,
        "node_id": placement.node_id,
        "host": f"host-{placement.node_id}",
        "address": "127.0.0.1",
        "pid": 1000 + rank,
        "started_at": 10.0,
        "gpus": placement.gpus,
    }
    return TaskStatus(**{**values, **changes})


def ended(job: Job, rank: int = 0, exit_code: int | None = 0, at: float = 20.0, **changes: Any) -> TaskStatus:
    return status(job, rank, ended_at=at, exit_code=exit_code, **changes)


def an_offer(node: str, rank: int = 0) -> MeetingPoint:
    """What a node with two interfaces brings to a meeting."""
    ways = (Way(f"{node}.a", "eth0"), Way(f"{node}.b", "eth1"), Way("127.0.0.1", "lo"))
    return MeetingPoint(ways=ways, port=40_000, master_port=0 if rank else 20_001)


def everybody_reached(job: Job, node: str, *interfaces: str, fingerprint: Fingerprint | None = None) -> Met:
    """What a node says that reached all others by these ends of their addresses, or by both."""
    others = [placement.node_id for placement in job.placements if placement.node_id != node]
    ends = interfaces or ("a", "b")
    reached = tuple(Reached(other, f"{other}.{end}") for other in others for end in ends)
    unreached = tuple(
        Unreached(other, f"{other}.{end}", "no answer")
        for other in others
        for end in ("a", "b")
        if end not in ends
    )
    return Met(
        key=job.attempt_key, reached=reached, unreached=unreached, fingerprint=fingerprint or Fingerprint()
    )


class Cluster:
    """A state with a clock and a memory; every event is followed by a check of all invariants."""

    def __init__(self, *nodes: tuple[str, int], policy: Policy | None = None) -> None:
        self.state = ClusterState(policy)
        self.count = 0
        self.memos: dict[str, str] = {}
        """What the scheduler asked to remember."""
        self.records: list[RecordAnswer] = []
        self.attempts: list[Job] = []
        """Those that are over while their job goes on."""
        """What waiting jobs were told, each time that it changed."""
        for node, gpus in nodes:
            self.join(node, gpus)

    def tell(self, event: Event) -> list[Command]:
        commands = handle(self.state, event)
        assert invariants.check(self.state) == []
        self.memos.update(
            {command.name: command.value for command in commands if isinstance(command, Remember)}
        )
        self.records += [command for command in commands if isinstance(command, RecordAnswer)]
        self.attempts += [command.job for command in commands if isinstance(command, SaveAttempt)]
        return [command for command in commands if not isinstance(command, RecordAnswer | Remember)]

    def join(
        self,
        node: str,
        gpus: int | tuple[GpuInfo, ...] = 4,
        *,
        at: float = 0.0,
        tasks: tuple[TaskStatus, ...] = (),
        **changes: Any,
    ) -> list[Command]:
        return self.tell(
            NodeJoined(at=at, node_id=NodeId(node), facts=facts(node, gpus, **changes), tasks=tasks)
        )

    def submit(self, *, at: float = 1.0, user: str = "ann", **spec: Any) -> JobId:
        self.count += 1
        new = job_id(self.count)
        self.tell(JobSubmitted(at=at, job_id=new, user=user, spec=a_spec(**spec)))
        return new

    def schedule(self, at: float = 2.0) -> list[Command]:
        return self.tell(PassDue(at=at))

    def started(self, **spec: Any) -> Job:
        """Submit a job and place it; if it has several nodes, all of them say that they can start."""
        new = self.submit(**spec)
        self.schedule()
        job = self.state.jobs[new]
        for placement in job.placements if job.is_preparing else ():
            self.prepared(job, placement.rank)
        for placement in job.placements if self.state.jobs[new].is_preparing else ():
            self.tell(
                NodeMet(at=2.0, node_id=placement.node_id, met=everybody_reached(job, placement.node_id))
            )
        return self.state.jobs[new]

    def prepared(
        self, job: Job, rank: int, *, at: float = 2.0, offer: MeetingPoint | None = None
    ) -> list[Command]:
        """Let the node of this rank say that it can start."""
        (placement,) = (one for one in job.placements if one.rank == rank)
        given = an_offer(placement.node_id, rank) if meets(job.spec) and offer is None else offer
        return self.tell(
            LaunchWasPrepared(at=at, node_id=placement.node_id, key=job.attempt_key, offer=given)
        )

    def job(self, new: JobId) -> Job:
        return self.state.jobs[new]


def placement(
    node: str,
    rank: int = 0,
    gpus: tuple[int, ...] = (0,),
    cpus: int = 0,
    incarnation: str = "boot-1/ledger-1",
) -> Placement:
    return Placement(
        node_id=NodeId(node),
        incarnation=incarnation,
        rank=rank,
        gpus=tuple(GpuUuid(f"GPU-{node}-{index}") for index in gpus),
        gpu_indices=gpus,
        cpus=cpus,
        simulated=bool(gpus),
        host=f"host-{node}",
        address="127.0.0.1",
    )


def key(new: JobId, attempt: int = 1, epoch: int = 1) -> AttemptKey:
    return AttemptKey(new, attempt, epoch)
