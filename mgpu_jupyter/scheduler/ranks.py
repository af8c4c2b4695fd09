"""The variables that tell the processes of an attempt about themselves and the others: MGPU_*, RANK and its
kin, PET_*, SLURM_*. Pure.

Slurm's names are set only for what Slurm would run as several tasks: in a job of one process they would
mislead libraries that look for them (Open MPI would call srun, Lightning would wait for ranks that nobody
starts).
"""

from __future__ import annotations

from itertools import groupby

from mgpu_jupyter.model.launchers import launcher_of, meets, workers_on
from mgpu_jupyter.scheduler.model import Job, Placement

SOCKET_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def node_environment(job: Job, placement: Placement) -> dict[str, str]:
    """Return the variables of all processes of one node, which the user may override."""
    env: dict[str, str] = {}
    if job.rendezvous is not None:
        env |= {"MASTER_ADDR": job.rendezvous.address, "MASTER_PORT": str(job.rendezvous.port)}
    if job.spec.distributed and launcher_of(job.spec):
        env |= _launcher_environment(job, placement)
    if job.spec.mpi:
        env["MGPU_MPI_HOSTS"] = ",".join(
            f"{one.node_id}:{workers_on(job.spec, len(one.gpus))}" for one in job.placements
        )
    if _is_like_srun(job):
        env |= _slurm_of_node(job, placement)
    return env


def default_environment(job: Job, placement: Placement) -> dict[str, str]:
    """Return the variables of all processes of one node, which user or node may override."""
    if not meets(job.spec):
        return {}
    interface = dict.fromkeys(SOCKET_INTERFACES, placement.interface) if placement.interface else {}
    # Shared by the ranks, as torchrun does: otherwise each of them would use all CPUs of the node.
    workers = workers_on(job.spec, len(placement.gpus))
    threads = {"OMP_NUM_THREADS": str(max(1, placement.cpus // workers))} if workers > 1 else {}
    return interface | threads


def own_environment(job: Job, placement: Placement) -> dict[str, str]:
    """Return mgpu's own variables for all processes of one node."""
    return {
        "MGPU_NODE_RANK": str(job.placements.index(placement)),
        "MGPU_NNODES": str(len(job.placements)),
        "MGPU_NPROC_PER_NODE": str(workers_on(job.spec, len(placement.gpus))),
    }


def task_environment(job: Job, placement: Placement, rank: int) -> dict[str, str]:
    """Return the variables of one process, which the user cannot override."""
    env: dict[str, str] = {}
    local = rank - placement.rank
    if job.spec.distributed and launcher_of(job.spec) is None:
        node = job.placements.index(placement)
        env |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(job.world_size),
            "LOCAL_WORLD_SIZE": str(placement.tasks),
        }
        env |= {"NODE_RANK": str(node), "GROUP_RANK": str(node), "GROUP_WORLD_SIZE": str(len(job.placements))}
    if _is_like_srun(job):
        env |= {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local)}
    return env


def _launcher_environment(job: Job, placement: Placement) -> dict[str, str]:
    node = str(job.placements.index(placement))
    met = job.rendezvous
    endpoint = (
        {}
        if met is None
        else {
            "PET_MASTER_ADDR": met.address,
            "PET_MASTER_PORT": str(met.port),
            "PET_RDZV_ENDPOINT": met.endpoint,
        }
    )
    return endpoint | {
        "NODE_RANK": node,
        "PET_NODE_RANK": node,
        "PET_NNODES": str(len(job.placements)),
        "PET_NPROC_PER_NODE": str(workers_on(job.spec, len(placement.gpus))),
        "PET_RDZV_ID": f"{job.id}.{job.attempt}",
    }


# --- as srun -------------------------------------------------------------------------------------


def _is_like_srun(job: Job) -> bool:
    if job.spec.mpi:  # Open MPI would ask Slurm for its nodes
        return False
    return job.world_size > 1 or job.spec.ntasks_per_node is not None


def _slurm_of_node(job: Job, placement: Placement) -> dict[str, str]:
    spec = job.spec
    nodes = ",".join(one.node_id for one in job.placements)
    count, tasks = str(len(job.placements)), str(job.world_size)
    per_node = _per_node([one.tasks for one in job.placements])
    gpus = ",".join(map(str, placement.gpu_indices))
    values = {
        "JOB_ID": str(job.number),  # a number, since scripts calculate with it
        "JOBID": str(job.number),
        "JOB_NAME": spec.name or job.id,
        "JOB_USER": job.user,
        "JOB_PARTITION": spec.partition,
        "JOB_ACCOUNT": job.account,
        "JOB_QOS": spec.qos,
        "JOB_NUM_NODES": count,
        "NNODES": count,
        "STEP_NUM_NODES": count,
        "JOB_NODELIST": nodes,
        "NODELIST": nodes,
        "STEP_NODELIST": nodes,
        "NTASKS": tasks,
        "NPROCS": tasks,
        "STEP_NUM_TASKS": tasks,
        "TASKS_PER_NODE": per_node,
        "STEP_TASKS_PER_NODE": per_node,
        "STEP_ID": "0",
        "STEPID": "0",
        "NODEID": str(job.placements.index(placement)),
        "RESTART_COUNT": str(job.attempt - 1),
        "SUBMIT_DIR": spec.cwd or "",
        "GPUS_ON_NODE": str(len(placement.gpus)) if placement.gpus else "",
        "JOB_GPUS": gpus,
        "STEP_GPUS": gpus,
        "CPUS_ON_NODE": str(placement.cpus) if placement.cpus else "",
        "CPUS_PER_TASK": str(max(1, placement.cpus // placement.tasks)) if placement.cpus else "",
    }
    if len({one.tasks for one in job.placements}) == 1:
        values["NTASKS_PER_NODE"] = str(placement.tasks)
    return {f"SLURM_{name}": value for name, value in values.items() if value} | {
        "SLURMD_NODENAME": placement.node_id
    }


def _per_node(counts: list[int]) -> str:
    """Return how many tasks each node has, as Slurm writes it: 2(x3),1."""
    runs = [(count, len(list(same))) for count, same in groupby(counts)]
    return ",".join(str(count) if times == 1 else f"{count}(x{times})" for count, times in runs)
