"""What must hold after every event. Tests call `check`; a violation is a bug, never a user's fault."""

from __future__ import annotations

from mgpu_agent.protocol.ids import JobId
from mgpu_agent.protocol.model import Trouble
from mgpu_jupyter.model.job import JobState, request_bytes
from mgpu_jupyter.scheduler.books import HOLDING
from mgpu_jupyter.scheduler.planning.quotas import Claim, Quotas
from mgpu_jupyter.scheduler.state import ClusterState


def check(state: ClusterState) -> list[str]:
    """Return a sentence for every rule that is broken; an empty list means that all hold."""
    broken = []
    for job in state.jobs.values():
        if job.state.is_final:
            broken.append(f"{job.id} is {job.state} and still in the books")
        if (job.state in HOLDING) != bool(job.placements):
            broken.append(f"{job.id} is {job.state} with {len(job.placements)} placements")
        if job.state is JobState.QUEUED:
            aside = job.held or job.after or any(job_id == job.id for _, job_id in state.delayed)
            if job.id not in state.queue and not aside:
                broken.append(f"{job.id} is queued but neither in the queue nor delayed")
        elif job.id in state.queue:
            broken.append(f"{job.id} is {job.state} and still in the queue")
        if job.state is JobState.STOPPING and job.stop is None:
            broken.append(f"{job.id} is stopping without a cause")
        if job.epoch > state.epoch:
            broken.append(f"{job.id} has epoch {job.epoch}, beyond the counter at {state.epoch}")
    return broken + _check_holders(state) + _check_blocked(state) + _check_pool(state) + _check_quotas(state)


def _check_quotas(state: ClusterState) -> list[str]:
    """Compare the counts of quotas with the jobs."""
    expected = Quotas(state.site)
    for job in state.jobs.values():
        gpus = sum(len(placement.gpus) for placement in job.placements)
        claim = Claim(
            job.user,
            job.account,
            job.spec.qos,
            job.array.id if job.array else None,
            gpus,
            request_bytes(job.spec),
        )
        if job.state is JobState.QUEUED:
            expected.wait(claim, 1)
        else:
            expected.hold(claim, 1)
    if state.quotas.counts() != expected.counts():
        return [f"quotas count {state.quotas.counts()}, the jobs say {expected.counts()}"]
    return []


def _check_pool(state: ClusterState) -> list[str]:
    """Compare what placement takes for free with what the jobs hold."""
    broken = []
    for node in state.nodes.values():
        slot = state.pool.slots[node.id]
        held = {gpu.uuid for gpu in node.facts.gpus if gpu.uuid in node.holders}
        free = {gpu.uuid for bit, gpu in enumerate(slot.gpus) if slot.free_mask >> bit & 1}
        alone = [job_id for job_id in slot.holds if state.jobs[job_id].spec.exclusive]
        wanted = set() if alone else {gpu.uuid for gpu in node.facts.gpus} - held - node.blocked.keys()
        if alone and len(slot.holds) > 1:
            broken.append(f"{node.id} is for {alone[0]} alone, but {sorted(slot.holds)} are there")
        if free != wanted:
            broken.append(f"{node.id} is placed by {sorted(free)}, but {sorted(wanted)} is free")
        if slot.free_cpus != node.facts.cpus - node.cpus_taken:
            broken.append(
                f"{node.id} is placed by {slot.free_cpus} CPUs, but {node.facts.cpus - node.cpus_taken} are "
                f"free"
            )
        if slot.bucket != (slot.free if node.takes_work else -1):
            broken.append(f"{node.id} with {slot.free} free GPUs is in bucket {slot.bucket}")
    if sorted(state.pool.held) != sorted(job.id for job in state.jobs.values() if job.state in HOLDING):
        broken.append(f"the pool knows of {sorted(state.pool.held)}")
    return broken


def _check_blocked(state: ClusterState) -> list[str]:
    broken = []
    for node in state.nodes.values():
        strange = sorted(node.blocked.keys() - {gpu.uuid for gpu in node.facts.gpus})
        broken += [f"{node.id} blocks {uuid}, which it does not have" for uuid in strange]
        for uuid, trouble in node.blocked.items():
            holder = state.jobs.get(node.holders.get(uuid, JobId("")))
            if trouble.kind == Trouble.LOST and holder is not None and holder.stop is None:
                broken.append(f"{holder.id} goes on with {uuid} of {node.id}, which is lost")
    return broken


def _check_holders(state: ClusterState) -> list[str]:
    broken = []
    expected: dict[tuple[str, str], list[str]] = {}
    cpus: dict[str, int] = {}
    for job in state.jobs.values():
        for placement in job.placements:
            cpus[placement.node_id] = cpus.get(placement.node_id, 0) + placement.cpus
            for uuid in placement.gpus:
                expected.setdefault((placement.node_id, uuid), []).append(job.id)
    broken += [
        f"{uuid} on {node_id} is held by {' and '.join(ids)}"
        for (node_id, uuid), ids in expected.items()
        if len(ids) > 1
    ]
    for node in state.nodes.values():
        wanted = {uuid: ids[0] for (node_id, uuid), ids in expected.items() if node_id == node.id}
        if node.holders != wanted:
            broken.append(f"{node.id} says that its GPUs are held by {node.holders}, the jobs say {wanted}")
        if node.cpus_taken != cpus.get(node.id, 0):
            broken.append(
                f"{node.id} counts {node.cpus_taken} CPUs taken, the jobs say {cpus.get(node.id, 0)}"
            )
    return broken
