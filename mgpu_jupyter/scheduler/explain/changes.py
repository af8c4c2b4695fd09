"""Small changes of a request that may let it start: which there are, how much each loses, and their flags.
Tries none of them.

Changes of one *family* are alternatives of one kind, the least loss first: of those that work only the first
is worth an offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import floor

from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.wording import count
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.units import Group, groups_of_request
from mgpu_jupyter.scheduler.explain.size_changes import FEW, Change, nodes_of, of_nodes, of_size
from mgpu_jupyter.scheduler.placement.slots import Slot
from mgpu_jupyter.scheduler.state import ClusterState

MIB, GIB = 1 << 20, 1 << 30


def changes_of(state: ClusterState, spec: JobSpec, planned_s: float) -> list[Change]:
    """Return all changes of one flag, least loss first; `planned_s` is how long the job should run."""
    groups = groups_of_request(spec)
    found = (
        *of_size(state, spec, groups),
        *of_nodes(spec, groups),
        *_of_kind(state, spec),
        *_of_gpu_ids(state, spec, groups),
        *_of_host(state, spec),
        *_of_time(state, spec, planned_s),
    )
    return sorted(found, key=lambda change: change.loss)


def applied(spec: JobSpec, changes: Iterable[Change]) -> JobSpec:
    """Return the request with the changes made."""
    return replace(spec, **{field: value for change in changes for field, value in change.patch.items()})


def _of_kind(state: ClusterState, spec: JobSpec) -> Iterator[Change]:
    lesser = sorted(
        {
            gpu.memory_bytes
            for slot in state.pool.slots.values()
            for gpu in slot.gpus
            if gpu.memory_bytes < spec.gpu_mem_bytes
        }
    )
    for size in lesser[: -FEW - 1 : -1]:
        text = f"--gpu-mem {_size(size)} instead of {_size(spec.gpu_mem_bytes)}"
        loss = 0.5 * (1 - size / spec.gpu_mem_bytes)
        yield Change(
            family="gpu-mem",
            text=text,
            flag=f"--gpu-mem {_size(size)}",
            patch={"gpu_mem_bytes": size},
            loss=loss,
        )
    plain: tuple[tuple[str, str, object], ...] = (
        ("gpu-mem", "gpu_mem_bytes", 0),
        ("gpu-type", "gpu_type", ""),
        ("constraint", "constraint", ""),
        ("arch", "arch", ""),
        ("partition", "partition", ""),
        ("exclusive", "exclusive", False),
    )
    for name, field, nothing in plain:
        if getattr(spec, field) != nothing:
            yield Change(
                family=name,
                text=f"without --{name}",
                flag=f"without --{name}",
                patch={field: nothing},
                loss=0.5,
            )
    others = [name for name in state.site.settings.partitions if name != state.site.partition_of(spec)]
    for name in others[:FEW]:
        text = f"-p {name} instead of {spec.partition}" if spec.partition else f"-p {name}"
        yield Change(family="partition", text=text, flag=f"-p {name}", patch={"partition": name}, loss=0.45)


def _of_gpu_ids(state: ClusterState, spec: JobSpec, groups: tuple[Group, ...]) -> Iterator[Change]:
    if spec.node_gpu_ids:
        others = {name: _free_ids(state, name, len(ids), spec) for name, ids in spec.node_gpu_ids.items()}
        if all(others.values()):
            told = ";".join(f"{name}:{','.join(map(str, ids))}" for name, ids in others.items())
            text = f'--node-gpu-ids "{told}" instead'
            yield Change(
                family="gpu-ids",
                text=text,
                flag=f'--node-gpu-ids "{told}"',
                patch={"node_gpu_ids": others},
                loss=0.2,
            )
        sizes = {group.need.gpus for group in groups}
        if len(sizes) == 1:
            each, names = sizes.pop(), tuple(spec.node_gpu_ids)
            patch = {"node_gpu_ids": {}, "nodelist": names, "gpus_per_node": each, "gpus": None}
            flag = f"--nodelist {','.join(names)} --gpus-per-node {each}"
            yield Change(
                family="gpu-ids", text=f"{flag} instead of --node-gpu-ids", flag=flag, patch=patch, loss=0.3
            )
            patch = {
                "node_gpu_ids": {},
                "nodes": len(names),
                "prefer": names,
                "gpus_per_node": each,
                "gpus": None,
                "nodelist": (),
            }
            flag = f"--nodes {len(names)} --gpus-per-node {each} --prefer {','.join(names)}"
            yield Change(
                family="gpu-ids", text=f"{flag} instead of --node-gpu-ids", flag=flag, patch=patch, loss=0.4
            )
        return
    if not spec.gpu_ids:
        return
    ids = ",".join(map(str, spec.gpu_ids))
    for slot in _slots_of_ids(state, spec):
        others_here = _free_ids(state, slot.id, len(spec.gpu_ids), spec)
        if others_here:
            told = ",".join(map(str, others_here))
            text = f"--gpu-ids {told} instead of {ids}"
            yield Change(
                family="gpu-ids",
                text=text,
                flag=f"--gpu-ids {told}",
                patch={"gpu_ids": others_here},
                loss=0.2,
            )
    each = len(spec.gpu_ids)
    patch = {"gpu_ids": (), "gpus": None, "gpus_per_node": each, "nodes": nodes_of(groups)}
    text = f"any {count(each, 'GPU')} instead of --gpu-ids {ids}"
    yield Change(
        family="gpu-ids",
        text=text,
        flag=f"--gpus-per-node {each} instead of --gpu-ids",
        patch=patch,
        loss=0.3,
    )


def _slots_of_ids(state: ClusterState, spec: JobSpec) -> Iterator[Slot]:
    """Yield the nodes that `--gpu-ids` is about, a few of them."""
    slots = state.pool.slots
    if spec.nodelist:
        near = (slots[NodeId(name)] for name in spec.nodelist if name in slots)
    else:
        near = (
            slot for slot in slots.values() if spec.home not in state.pool.homes or slot.host == spec.home
        )
    return islice(near, FEW)


def _free_ids(state: ClusterState, name: str, wanted: int, spec: JobSpec) -> tuple[int, ...]:
    """Return the first `wanted` free GPUs of a node by index, or none when there are fewer."""
    slot = state.pool.slots.get(NodeId(name))
    if slot is None:
        return ()
    mask = slot.free_mask & slot.eligible(spec.gpu_type.casefold(), spec.gpu_mem_bytes)
    free = [gpu.index for bit, gpu in enumerate(slot.gpus) if mask >> bit & 1]
    return tuple(free[:wanted]) if len(free) >= wanted else ()


# --- cores, memory -------------------------------------------------------------------------------


def _of_host(state: ClusterState, spec: JobSpec) -> Iterator[Change]:
    up = [slot for slot in state.pool.slots.values() if slot.up]
    if spec.cpus:
        lesser = sorted({slot.free_cpus for slot in up if 0 < slot.free_cpus < spec.cpus}, reverse=True)
        for cpus in lesser[:FEW]:
            text = f"{count(cpus, 'CPU')} instead of {spec.cpus}"
            yield Change(
                family="cpus",
                text=text,
                flag=f"--cpus {cpus}",
                patch={"cpus": cpus},
                loss=0.5 * (1 - cpus / spec.cpus),
            )
        yield Change(family="cpus", text="without --cpus", flag="without --cpus", patch={"cpus": 0}, loss=0.5)
    if spec.mem_per_node_bytes:
        wanted = spec.mem_per_node_bytes
        sizes = {
            slot.free_mem // unit * unit for slot in up for unit in (GIB if slot.free_mem >= GIB else MIB,)
        }
        for size in sorted((size for size in sizes if 0 < size < wanted), reverse=True)[:FEW]:
            text = f"{_size(size)} of memory instead of {_size(wanted)}"
            patch = {"mem_per_node_bytes": size}
            yield Change(
                family="mem",
                text=text,
                flag=f"--mem-per-node {_size(size)}",
                patch=patch,
                loss=0.5 * (1 - size / wanted),
            )
        flag = "without --mem-per-node"
        yield Change(family="mem", text=flag, flag=flag, patch={"mem_per_node_bytes": 0}, loss=0.5)


# --- when ----------------------------------------------------------------------------------------


def _of_time(state: ClusterState, spec: JobSpec, planned_s: float) -> Iterator[Change]:
    planned_s = max(planned_s, spec.time_limit_s or 0.0)
    limits = {_nice(promise.at - state.now) for promise in state.planner.promises}
    allowed = state.site.time_limit_s(spec, None)
    if allowed is not None:
        limits.add(floor(allowed))
    for limit in sorted((limit for limit in limits if 0 < limit < planned_s), reverse=True)[:FEW]:
        told = clock(limit)
        text = f"a time limit of {told} (-t {told})"
        loss = 1 - limit / planned_s if planned_s != float("inf") else 0.5
        yield Change(
            family="time", text=text, flag=f"-t {told}", patch={"time_limit_s": float(limit)}, loss=loss
        )
    if spec.hold:
        yield Change(
            family="hold", text="without --hold", flag="without --hold", patch={"hold": False}, loss=0.0
        )
    if spec.begin_at > state.now:
        yield Change(
            family="begin", text="without --begin", flag="without --begin", patch={"begin_at": 0.0}, loss=0.0
        )


def _nice(seconds: float) -> int:
    """Return a time limit that still fits if the offer is taken a little later."""
    if seconds >= 600:
        return floor((seconds - 60) / 60) * 60
    return floor(seconds * 0.9)


def clock(seconds: int) -> str:
    """Return a time limit as `-t` takes it."""
    days, rest = divmod(seconds, 86_400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def _size(number: int) -> str:
    """Return bytes as the flags take them."""
    if number % GIB == 0:
        return f"{number // GIB}G"
    return f"{number // MIB}M" if number % MIB == 0 else str(number)
