"""How many processes a request means on each node, and whether its nodes must reach each other first. Pure."""

from __future__ import annotations

from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.launchers import launcher_of
from mgpu_jupyter.model.units import groups_of_request


def tasks_on(spec: JobSpec, gpus: int) -> int:
    """Return how many processes mgpu starts on a node that gives so many GPUs."""
    if spec.mpi or (spec.distributed and launcher_of(spec) is not None):
        return 1
    return workers_on(spec, gpus)


def workers_on(spec: JobSpec, gpus: int) -> int:
    """Return how many ranks work on a node that gives so many GPUs, whoever starts them."""
    if spec.ntasks_per_node is not None:
        return spec.ntasks_per_node
    return max(gpus, 1) if spec.distributed or spec.mpi else 1


def meets(spec: JobSpec) -> bool:
    """Tell whether the processes of a request must find each other, so that its nodes meet before anything starts."""
    return spec.distributed or spec.mpi


def tasks_of(spec: JobSpec) -> int:
    """Return how many processes mgpu starts for a request on all its nodes."""
    return sum(tasks_on(spec, group.need.gpus) * group.count for group in groups_of_request(spec))
