"""What others see of jobs and nodes: the API's values made from the scheduler's. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuInfo, GpuSample, TaskStatus, Trouble
from mgpu_jupyter.api import models, traces
from mgpu_jupyter.api.administration import PartitionInfo, QosInfo, QuotaInfo
from mgpu_jupyter.master.node_views import NodeView, runs_as_words
from mgpu_jupyter.master.ports import SavedJob
from mgpu_jupyter.model.job import JobSpec, JobState, NodeState
from mgpu_jupyter.model.launchers import meets
from mgpu_jupyter.model.settings import Quota
from mgpu_jupyter.model.sweep import combination, words_of
from mgpu_jupyter.model.units import units_of
from mgpu_jupyter.scheduler.explain.waiting import Waiting
from mgpu_jupyter.scheduler.model import Job, Placement
from mgpu_jupyter.scheduler.placement.strategies import BUILT_IN
from mgpu_jupyter.scheduler.site import Site
from mgpu_jupyter.scheduler.standing import NodeOrders

COMMAND_CHARS = 200
_NO_SAMPLE = GpuSample(uuid=GpuUuid(""))
_STATES: dict[str, models.GpuState] = {
    Trouble.OUTSIDE: "outside",
    Trouble.MEMORY: "settling",
    Trouble.UNREAD: "settling",
}


def job_view(saved: SavedJob, waiting: Waiting | None = None) -> models.Job:
    """Return a job as everyone may see it."""
    job = saved.job
    units = units_of(job.spec)
    reason = waiting.reason if waiting else job.reason
    return models.Job(
        id=job.id,
        state=job.state,
        user=job.user,
        name=job.spec.name,
        command=command_line(job.spec, job.array.index if job.array else None),
        nodes=tuple(placement.node_id for placement in job.placements),
        gpus=sum(unit.gpus for unit in units),
        exit_code=job.exit_code,
        attempt=job.attempt,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        reason=reason.text if reason else "",
        reason_code=reason.code if reason else "",
        priority=job.priority,
        time_limit_s=job.time_limit_s,
        nodes_wanted=len(units),
        place=waiting.place if waiting else None,
        expected_start_at=waiting.expected_at if waiting else None,
        placements=tuple(
            _task_view(job, placement, rank) for placement in job.placements for rank in placement.ranks
        ),
        seq=saved.seq,
        array_id=job.array.id if job.array else None,
        array_index=job.array.index if job.array else None,
        preempted=job.preempted,
        warnings=job.warnings,
        partition=job.spec.partition,
        account=job.account,
        qos=job.spec.qos,
        pty=job.spec.pty,
        mismatches=job.mismatches,
        origin=job.spec.origin,
        sweep=combination(job.spec.sweep, job.array.index) if job.spec.sweep and job.array else {},
        distributed=job.spec.distributed,
        master_node=job.placements[0].node_id if job.placements else None,
        kill_at=job.kill_at if job.state is JobState.STOPPING else None,
    )


def site_view(cluster: models.Cluster, site: Site, user: str) -> models.Cluster:
    """Return the pool in numbers, with what its site lets this user ask for."""
    settings = site.settings
    accounts = tuple(name for name, one in settings.accounts.items() if not one.users or user in one.users)
    account = site.account_of(user, JobSpec())
    return replace(
        cluster,
        partitions={
            name: msgspec.convert(one, PartitionInfo, from_attributes=True)
            for name, one in settings.partitions.items()
            if any(one.lists.admit(user, each) for each in {account, *accounts})
        },
        accounts=accounts,
        qos={
            name: QosInfo(priority=one.priority, preemptible=one.preemptible, quota=_quota_view(one.quota))
            for name, one in settings.qos.items()
            if not one.allow_users or user in one.allow_users
        },
        strategies=(*BUILT_IN, *sorted(site.own)),
        strategy=settings.strategy,
        preemption=settings.preemption,
        quota=_quota_view(site.quota_of(user)),
    )


def _quota_view(quota: Quota) -> QuotaInfo:
    return QuotaInfo(gpus=quota.gpus, running=quota.running, queued=quota.queued)


def node_view(node: NodeView, warnings: tuple[str, ...] = ()) -> models.Node:
    """Return a node as everyone may see it; `warnings` are added to its own."""
    samples = {sample.uuid: sample for sample in node.samples}
    return models.Node(
        id=node.id,
        state=NodeState(node.state),
        reason=node.reason,
        host=node.facts.host,
        address=node.facts.address,
        arch=node.facts.arch,
        cpus=node.facts.cpus,
        memory_bytes=node.facts.memory_bytes,
        gpus=tuple(_gpu_view(node, gpu, samples.get(gpu.uuid, _NO_SAMPLE)) for gpu in node.facts.gpus),
        gpu_note=node.facts.gpu_note,
        labels=node.facts.labels | node.orders.labels,
        rack=node.facts.rack,
        switch=node.facts.switch,
        agent_version=node.facts.agent_version,
        last_seen_at=node.heard_at,
        address_method=node.facts.address_method,
        port=node.facts.port,
        orders=_orders_view(node.orders),
        failures=node.health.failures,
        failures_total=node.health.failures_total,
        probe_at=None if node.health.probe else node.health.probe_at,
        cpu_percent=node.load.cpu_percent,
        memory_available_bytes=node.load.memory_available_bytes,
        runs=runs_as_words(node.facts),
        warnings=((node.mismatch,) if node.mismatch else ()) + warnings,
    )


def _orders_view(orders: NodeOrders) -> models.NodeOrders:
    return models.NodeOrders(
        state=orders.state,
        reason=orders.reason,
        by=orders.by,
        at=orders.at or None,
        lists=orders.lists,
        lists_reason=orders.lists_reason,
        lists_by=orders.lists_by,
        lists_at=orders.lists_at or None,
        labels=orders.labels,
        labels_reason=orders.labels_reason,
        labels_by=orders.labels_by,
        labels_at=orders.labels_at or None,
    )


def free_gpus(node: NodeView) -> int:
    """Return how many GPUs of a node could be handed out now."""
    return sum(gpu.uuid not in node.holders and gpu.uuid not in node.blocked for gpu in node.facts.gpus)


def _gpu_view(node: NodeView, gpu: GpuInfo, sample: GpuSample) -> models.Gpu:
    trouble = node.blocked.get(gpu.uuid)
    state: models.GpuState = _STATES.get(trouble.kind, "unhealthy") if trouble is not None else "free"
    if gpu.uuid in node.holders and state != "unhealthy":
        state = "held"
    return models.Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        memory_bytes=gpu.memory_bytes,
        simulated=gpu.simulated,
        job_id=node.holders.get(gpu.uuid),
        user=node.users.get(gpu.uuid),
        rank=node.ranks.get(gpu.uuid),
        utilisation_percent=sample.utilisation_percent,
        memory_used_bytes=sample.memory_used_bytes,
        temperature_c=sample.temperature_c,
        power_w=sample.power_w,
        state=state,
        reason=trouble.text if trouble is not None and state != "held" else "",
        processes=tuple(
            models.GpuProcess(
                pid=one.pid, user=one.user, memory_bytes=one.memory_bytes, outside=one.outside, name=one.name
            )
            for one in sample.processes
        ),
        mig_parent=gpu.mig_parent,
        nvlinks=gpu.nvlinks,
    )


def command_line(spec: JobSpec, index: int | None = None) -> str:
    """Return one line by which to recognise a job; for an array, its own."""
    words = words_of(spec, index)
    if spec.script is not None:
        lines = [line.strip() for line in spec.script.splitlines()]
        code = [line for line in lines if line and not line.startswith("#")]
        telling = (line for line in code if not line.startswith(("import ", "from ")))
        text = next(telling, code[0] if code else "(an empty cell)")
    elif words[:2] == ("bash", "-lc") and len(words) == 3:
        text = words[2]
    else:
        text = " ".join(words)
    text = " ".join(text.split())
    return text if len(text) <= COMMAND_CHARS else text[: COMMAND_CHARS - 1] + "…"


def _task_view(job: Job, placement: Placement, rank: int) -> models.Placement:
    view = models.Placement(
        node=placement.node_id,
        rank=rank,
        local_rank=rank - placement.rank,
        gpus=placement.gpus,
        gpu_indices=placement.gpu_indices,
        simulated=placement.simulated,
        step=_start_step(job, placement, rank),
    )
    task = next((task for task in job.tasks if task.rank == rank), None)
    if task is None:
        return view
    return replace(
        view,
        host=task.host,
        address=task.address,
        pid=task.pid,
        started_at=task.started_at,
        ended_at=task.ended_at,
        exit_code=task.exit_code,
        signal=task.signal,
        cwd=task.cwd,
        python=task.python,
        note=task.note,
    )


def _start_step(job: Job, placement: Placement, rank: int) -> models.StartStep:
    if job.state is not JobState.STARTING:
        return ""
    if any(task.rank == rank for task in job.tasks):
        return "started"
    if not job.is_unprepared:
        return "launching"
    if placement.rank not in job.prepared:
        return "asked"
    return "meeting" if meets(job.spec) and len(job.prepared) == len(job.placements) else "ready"


def summary_of(job: Job, now: float) -> traces.Summary:
    """Return the summary of a job's newest attempt; of a running one, up to now."""
    units = units_of(job.spec)
    until = job.ended_at or now
    ran_s = None if job.started_at is None else max(0.0, until - job.started_at)
    nodes = tuple(_node(job, placement) for placement in job.placements)
    loads = [node.gpu_utilisation_percent for node in nodes if node.gpu_utilisation_percent is not None]
    limit = job.time_limit_s
    return traces.Summary(
        job_id=job.id,
        name=job.spec.name,
        user=job.user,
        state=job.state,
        attempt=job.attempt,
        exit_code=job.exit_code,
        reason=job.reason.text if job.reason else "",
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        waited_s=None if job.started_at is None else max(0.0, job.started_at - job.submitted_at),
        ran_s=ran_s,
        gpus_requested=sum(unit.gpus for unit in units),
        nodes_requested=len(units),
        time_limit_s=limit,
        time_used_percent=None if limit is None or ran_s is None else round(100.0 * ran_s / limit, 1),
        gpu_memory_requested_bytes=job.spec.gpu_mem_bytes,
        gpu_memory_peak_bytes=max(
            (node.gpu_memory_peak_bytes for node in nodes if node.gpu_memory_peak_bytes is not None),
            default=None,
        ),
        gpu_utilisation_percent=round(sum(loads) / len(loads), 1) if loads else None,
        gpu_s=round((ran_s or 0.0) * sum(node.gpus for node in nodes), 3),
        nodes=nodes,
        ranks=tuple(_rank(task) for task in job.tasks),
    )


def _node(job: Job, placement: Placement) -> traces.NodeUse:
    tasks = [task for task in job.tasks if task.node_id == placement.node_id]
    peaks = [task.gpu_memory_peak_bytes for task in tasks if task.gpu_memory_peak_bytes is not None]
    loads = [task.gpu_utilisation_percent for task in tasks if task.gpu_utilisation_percent is not None]
    return traces.NodeUse(
        node=placement.node_id,
        gpus=len(placement.gpus),
        gpu_indices=placement.gpu_indices,
        gpu_memory_peak_bytes=max(peaks, default=None),
        gpu_utilisation_percent=max(loads, default=None),
    )


def _rank(task: TaskStatus) -> traces.RankSummary:
    return traces.RankSummary(
        rank=task.rank,
        node=task.node_id,
        gpus=len(task.gpus),
        started_at=task.started_at,
        ended_at=task.ended_at,
        exit_code=task.exit_code,
        signal=task.signal,
    )
