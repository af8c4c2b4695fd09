"""The placement units that a request means: a single-node job is one, a job of N nodes is N. Pure."""

from __future__ import annotations

from itertools import groupby

import msgspec

from mgpu_agent.protocol import wording
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobSpec


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """What one node must give to a job. All units of a job are placed, or none."""

    index: int
    gpus: int
    cpus: int = 0
    mem_bytes: int = 0
    arch: str = ""
    gpu_ids: tuple[int, ...] = ()
    """Exactly these, by index; empty for any."""
    node: NodeId | None = None
    """Only this node; None for any."""
    exclusive: bool = False
    """Only a node that nobody else is on, as long as it runs."""

    @property
    def need(self) -> Need:
        """What it asks for, without its number."""
        return Need(self.gpus, self.cpus, self.mem_bytes, self.arch, self.gpu_ids, self.node, self.exclusive)


class Need(msgspec.Struct, frozen=True):
    """What a unit asks of a node; units that need the same are placed alike."""

    gpus: int
    cpus: int = 0
    mem_bytes: int = 0
    arch: str = ""
    gpu_ids: tuple[int, ...] = ()
    node: NodeId | None = None
    exclusive: bool = False


class Group(msgspec.Struct, frozen=True):
    """Units that need the same; `first` is the index of the first of them."""

    need: Need
    first: int
    count: int


def units_of(spec: JobSpec) -> tuple[Unit, ...]:
    """Return the placement units of a request, or refuse one that contradicts itself."""
    if spec.node_gpu_ids:
        return _units_of_map(spec)
    if spec.parts:
        return _units_of_parts(spec, _node_count(spec))
    need, count = _alike(spec)
    return tuple(
        Unit(
            index=index,
            gpus=need.gpus,
            cpus=need.cpus,
            mem_bytes=need.mem_bytes,
            arch=need.arch,
            gpu_ids=need.gpu_ids,
            exclusive=need.exclusive,
        )
        for index in range(count)
    )


def groups_of_request(spec: JobSpec) -> tuple[Group, ...]:
    """Return the groups of a request, without a value for each unit of a large one."""
    if spec.node_gpu_ids or spec.parts:
        return groups_of(units_of(spec))
    need, count = _alike(spec)
    return (Group(need, 0, count),)


def groups_of(units: tuple[Unit, ...]) -> tuple[Group, ...]:
    """Return runs of units that need the same."""
    groups = []
    for need, members in groupby(units, key=lambda unit: unit.need):
        same = list(members)
        groups.append(Group(need, same[0].index, len(same)))
    return tuple(groups)


def gpus_of(spec: JobSpec) -> int:
    """Return how many GPUs a request asks for in all."""
    return sum(group.need.gpus * group.count for group in groups_of_request(spec))


def _alike(spec: JobSpec) -> tuple[Need, int]:
    """Return what each node must give and how many nodes, for a request whose units are all alike."""
    nodes = _node_count(spec)
    gpus = _gpus_per_node(spec, nodes)
    gpu_ids = tuple(sorted(spec.gpu_ids))
    need = Need(gpus, spec.cpus, spec.mem_per_node_bytes, spec.arch, gpu_ids, exclusive=spec.exclusive)
    return need, nodes


def _units_of_map(spec: JobSpec) -> tuple[Unit, ...]:
    if spec.parts or spec.gpu_ids or spec.gpus_per_node is not None:
        raise InvalidRequest(
            "gpu-contradiction", "--node-gpu-ids already says which GPUs: leave the other GPU flags out."
        )
    total = sum(len(ids) for ids in spec.node_gpu_ids.values())
    if spec.gpus not in (None, total) or spec.nodes not in (None, len(spec.node_gpu_ids)):
        raise InvalidRequest(
            "gpu-contradiction",
            f"--node-gpu-ids names {wording.count(total, 'GPU')} on "
            f"{wording.count(len(spec.node_gpu_ids), 'node')}: leave --gpus and --nodes "
            f"out.",
        )
    strange = sorted(set(spec.nodelist) ^ set(spec.node_gpu_ids)) if spec.nodelist else []
    if strange:
        raise InvalidRequest(
            "node-contradiction",
            f"{strange[0]} is in only one of --node-gpu-ids and --nodelist: leave --nodelist out.",
        )
    return tuple(
        Unit(
            index=index,
            gpus=len(_distinct(ids, "--node-gpu-ids")),
            cpus=spec.cpus,
            mem_bytes=spec.mem_per_node_bytes,
            arch=spec.arch,
            gpu_ids=tuple(sorted(ids)),
            node=NodeId(name),
            exclusive=spec.exclusive,
        )
        for index, (name, ids) in enumerate(spec.node_gpu_ids.items())
    )


def _units_of_parts(spec: JobSpec, nodes: int) -> tuple[Unit, ...]:
    if (
        spec.gpus is not None
        or spec.gpus_per_node is not None
        or spec.gpu_ids
        or spec.cpus
        or spec.mem_per_node_bytes
        or spec.arch
    ):
        raise InvalidRequest(
            "part-contradiction",
            "The parts say what is asked for: leave gpus, cpus, memory and arch of the whole out.",
        )
    if nodes == 1:
        return (_summed(spec),)
    if nodes != len(spec.parts):
        raise InvalidRequest(
            "part-contradiction",
            f"{nodes} nodes need {nodes} parts, one for each; there are {len(spec.parts)}.",
        )
    # Parts that need the most come first, so that a smaller one does not take their node.
    ordered = sorted(spec.parts, key=lambda part: (not part.arch, -part.gpus, -part.cpus, -part.mem_bytes))
    return tuple(
        Unit(
            index=index,
            gpus=part.gpus,
            cpus=part.cpus,
            mem_bytes=part.mem_bytes,
            arch=part.arch,
            exclusive=spec.exclusive,
        )
        for index, part in enumerate(ordered)
    )


def _summed(spec: JobSpec) -> Unit:
    parts = spec.parts
    archs = sorted({part.arch for part in parts if part.arch})
    if len(archs) > 1:
        raise InvalidRequest(
            "arch-contradiction",
            f"Its parts ask for {' and '.join(archs)} on one node: give them one architecture, or --nodes "
            f"{len(parts)}.",
        )
    return Unit(
        index=0,
        gpus=sum(part.gpus for part in parts),
        cpus=sum(part.cpus for part in parts),
        mem_bytes=sum(part.mem_bytes for part in parts),
        arch=archs[0] if archs else "",
        exclusive=spec.exclusive,
    )


def _node_count(spec: JobSpec) -> int:
    if spec.nodes is None:
        return len(set(spec.nodelist)) or 1
    if spec.nodelist and spec.nodes > len(set(spec.nodelist)):
        raise InvalidRequest(
            "node-contradiction",
            f"--nodes {spec.nodes} needs at least as many names in --nodelist; it has "
            f"{len(set(spec.nodelist))}.",
        )
    return spec.nodes


def _gpus_per_node(spec: JobSpec, nodes: int) -> int:
    if spec.gpu_ids:
        return _count_of_ids(spec, nodes)
    if spec.gpus_per_node is not None:
        if spec.gpus is not None and spec.gpus != spec.gpus_per_node * nodes:
            raise InvalidRequest(
                "gpu-contradiction",
                f"--gpus {spec.gpus} is not {nodes} × --gpus-per-node {spec.gpus_per_node}: leave one of "
                f"them out.",
            )
        return spec.gpus_per_node
    if spec.gpus is None:
        return 1
    if spec.gpus % nodes:
        raise InvalidRequest(
            "gpu-contradiction",
            f"--gpus {spec.gpus} cannot be shared evenly by {nodes} nodes: give --gpus-per-node instead.",
        )
    return spec.gpus // nodes


def _count_of_ids(spec: JobSpec, nodes: int) -> int:
    count = len(_distinct(spec.gpu_ids, "--gpu-ids"))
    if spec.gpus_per_node not in (None, count) or spec.gpus not in (None, count, count * nodes):
        raise InvalidRequest(
            "gpu-contradiction",
            (
                f"--gpu-ids names {wording.count(count, 'GPU')} on each node: leave --gpus and "
                f"--gpus-per-node out."
            ),
        )
    return count


def _distinct(ids: tuple[int, ...], flag: str) -> tuple[int, ...]:
    if len(set(ids)) != len(ids):
        raise InvalidRequest("gpu-contradiction", f"{flag} names a GPU twice: name each once.")
    return ids
