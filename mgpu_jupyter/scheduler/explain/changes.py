"""Small changes of a request that may let it start: which there are, how much each loses, and how it is said. Tries none of them.

Changes of one *family* are alternatives of one kind, the least loss first: of those that work only the first is worth an offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import floor
from typing import Any

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.units import Group, groups_of_request
from mgpu_jupyter.scheduler.placement.slots import Slot
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.scheduler.words import count

FEW = 8
"""How many alternatives of one kind are worth a try."""
MIB, GIB = 1 << 20, 1 << 30
_NO_COST = 0.1


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One flag, or flags that say one thing, changed."""

    family: str
    text: str
    flag: str
    patch: dict[str, Any]
    loss: float
    """How much of what was asked for is given up, from 0 to 1."""
    flags: int = 1
    """How many things it changes."""


def changes_of(state: ClusterState, spec: JobSpec, planned_s: float) -> list[Change]:
    """Return all changes of one flag, the least loss first; `planned_s` is how long the job is planned to run."""
    groups = groups_of_request(spec)
    found = (
        *_of_size(state, spec, groups),
        *_of_nodes(spec, groups),
        *_of_kind(state, spec),
        *_of_gpu_ids(state, spec, groups),
        *_of_host(state, spec),
        *_of_time(state, spec, planned_s),
    )
    return sorted(found, key=lambda change: change.loss)


def applied(spec: JobSpec, changes: Iterable[Change]) -> JobSpec:
    """Return the request with the changes made."""
    return replace(spec, **{field: value for change in changes for field, value in change.patch.items()})


# --- how much ------------------------------------------------------------------------------------


def _of_size(state: ClusterState, spec: JobSpec, groups: tuple[Group, ...]) -> Iterator[Change]:
    if spec.parts:
        yield from _of_parts(spec, _nodes(groups))
        return
    if spec.gpu_ids or spec.node_gpu_ids:
        return
    nodes, each = _nodes(groups), groups[0].need.gpus
    total = nodes * each
    free = sorted((slot.free for slot in state.pool.slots.values() if slot.up), reverse=True)
    # So many each of as many nodes could give, if nothing else were asked of them: more need not be tried.
    most_each = free[nodes - 1] if nodes <= len(free) else 0
    for fewer in _downwards(min(each - 1, most_each)):
        patch = {"gpus": fewer, "gpus_per_node": None} if nodes == 1 else {"gpus": None, "gpus_per_node": fewer}
        flag = f"--gpus {fewer}" if nodes == 1 else f"--gpus-per-node {fewer}"
        yield Change(family="gpus", text=_sizes(nodes, fewer, nodes, each), flag=flag, patch=patch, loss=1 - fewer / each)
    for fewer in _downwards(min(nodes - 1, sum(number >= each for number in free))):
        patch = {"nodes": fewer, "gpus": None, "gpus_per_node": each}
        flag = f"--nodes {fewer} --gpus-per-node {each}"
        yield Change(family="nodes", text=_sizes(fewer, each, nodes, each), flag=flag, patch=patch, loss=1 - fewer / nodes)
    yield from _of_both(free, nodes, each)
    most = len(spec.nodelist) or len(state.pool.slots)
    splits = [other for other in range(1, min(total, most) + 1) if total % other == 0 and other != nodes]
    for other in sorted(splits, key=lambda one: abs(one - nodes))[:FEW]:
        patch = {"nodes": other, "gpus": total, "gpus_per_node": None}
        text = _sizes(other, total // other, nodes, each)
        loss = _NO_COST * abs(other - nodes) / max(other, nodes)
        yield Change(family="split", text=text, flag=f"--nodes {other} --gpus {total}", patch=patch, loss=loss)


def _of_both(free: list[int], nodes: int, each: int) -> Iterator[Change]:
    """Yield fewer nodes with fewer GPUs on each."""
    sizes = [(some, gpus) for some in _downwards(min(nodes - 1, len(free))) for gpus in _downwards(min(each - 1, free[some - 1]))]
    for fewer, gpus in sizes:
        patch = {"nodes": fewer, "gpus": None, "gpus_per_node": gpus}
        flag = f"--nodes {fewer} --gpus-per-node {gpus}"
        loss = 1 - fewer * gpus / (nodes * each)
        yield Change(family="size", text=_sizes(fewer, gpus, nodes, each), flag=flag, patch=patch, loss=loss, flags=2)


def _downwards(most: int) -> list[int]:
    """Return numbers to try from this one down to 1: the first few, then ever fewer of them."""
    numbers = list(range(most, max(0, most - FEW), -1))
    while numbers and numbers[-1] > 1:
        numbers.append(numbers[-1] // 2)
    return numbers


def _nodes(groups: tuple[Group, ...]) -> int:
    return sum(group.count for group in groups)


def _of_parts(spec: JobSpec, nodes: int) -> Iterator[Change]:
    parts = len(spec.parts)
    other = parts if nodes == 1 else 1
    if parts > 1:
        text = f"its {parts} parts on {count(other, 'node')} instead of {nodes}"
        yield Change(family="split", text=text, flag=f"--nodes {other}", patch={"nodes": other}, loss=_NO_COST)
    if any(part.arch for part in spec.parts):
        anywhere = tuple(replace(part, arch="") for part in spec.parts)
        yield Change(family="arch", text="without the architecture", flag="without --arch", patch={"parts": anywhere}, loss=0.5)


def _sizes(nodes: int, gpus: int, old_nodes: int, old_gpus: int) -> str:
    if nodes == old_nodes == 1:
        return f"{count(gpus, 'GPU')} instead of {old_gpus}"
    return f"{count(nodes, 'node')} × {count(gpus, 'GPU')} instead of {old_nodes} × {old_gpus}"


# --- which nodes ---------------------------------------------------------------------------------


def _of_nodes(spec: JobSpec, groups: tuple[Group, ...]) -> Iterator[Change]:
    for name in spec.exclude[:FEW]:
        rest = tuple(one for one in spec.exclude if one != name)
        loss = 0.2 / len(spec.exclude)
        yield Change(
            family="exclude", text=f"without --exclude {name}", flag=f"without --exclude {name}", patch={"exclude": rest}, loss=loss
        )
    if len(spec.exclude) > 1:
        yield Change(family="exclude", text="without --exclude", flag="without --exclude", patch={"exclude": ()}, loss=0.2)
    if spec.nodelist and not spec.node_gpu_ids:
        names = ",".join(spec.nodelist if len(spec.nodelist) <= FEW else (*spec.nodelist[:FEW], "…"))
        patch = {"nodelist": (), "prefer": spec.nodelist, "nodes": _nodes(groups)}
        flag = f"--prefer {names} instead of --nodelist"
        yield Change(family="nodelist", text=f"--prefer {names} instead of --nodelist {names}", flag=flag, patch=patch, loss=0.25)


def _of_kind(state: ClusterState, spec: JobSpec) -> Iterator[Change]:
    lesser = sorted({gpu.memory_bytes for slot in state.pool.slots.values() for gpu in slot.gpus if gpu.memory_bytes < spec.gpu_mem_bytes})
    for size in lesser[: -FEW - 1 : -1]:
        text = f"--gpu-mem {_size(size)} instead of {_size(spec.gpu_mem_bytes)}"
        loss = 0.5 * (1 - size / spec.gpu_mem_bytes)
        yield Change(family="gpu-mem", text=text, flag=f"--gpu-mem {_size(size)}", patch={"gpu_mem_bytes": size}, loss=loss)
    plain: tuple[tuple[str, str, object], ...] = (
        ("gpu-mem", "gpu_mem_bytes", 0),
        ("gpu-type", "gpu_type", ""),
        ("constraint", "constraint", ""),
        ("arch", "arch", ""),
        ("partition", "partition", ""),
    )
    for name, field, nothing in plain:
        if getattr(spec, field) != nothing:
            yield Change(family=name, text=f"without --{name}", flag=f"without --{name}", patch={field: nothing}, loss=0.5)
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
            yield Change(family="gpu-ids", text=text, flag=f'--node-gpu-ids "{told}"', patch={"node_gpu_ids": others}, loss=0.2)
        sizes = {group.need.gpus for group in groups}
        if len(sizes) == 1:
            each, names = sizes.pop(), tuple(spec.node_gpu_ids)
            patch = {"node_gpu_ids": {}, "nodelist": names, "gpus_per_node": each, "gpus": None}
            flag = f"--nodelist {','.join(names)} --gpus-per-node {each}"
            yield Change(family="gpu-ids", text=f"{flag} instead of --node-gpu-ids", flag=flag, patch=patch, loss=0.3)
            patch = {"node_gpu_ids": {}, "nodes": len(names), "prefer": names, "gpus_per_node": each, "gpus": None, "nodelist": ()}
            flag = f"--nodes {len(names)} --gpus-per-node {each} --prefer {','.join(names)}"
            yield Change(family="gpu-ids", text=f"{flag} instead of --node-gpu-ids", flag=flag, patch=patch, loss=0.4)
        return
    if not spec.gpu_ids:
        return
    ids = ",".join(map(str, spec.gpu_ids))
    for slot in _slots_of_ids(state, spec):
        others_here = _free_ids(state, slot.id, len(spec.gpu_ids), spec)
        if others_here:
            told = ",".join(map(str, others_here))
            text = f"--gpu-ids {told} instead of {ids}"
            yield Change(family="gpu-ids", text=text, flag=f"--gpu-ids {told}", patch={"gpu_ids": others_here}, loss=0.2)
    each = len(spec.gpu_ids)
    patch = {"gpu_ids": (), "gpus": None, "gpus_per_node": each, "nodes": _nodes(groups)}
    text = f"any {count(each, 'GPU')} instead of --gpu-ids {ids}"
    yield Change(family="gpu-ids", text=text, flag=f"--gpus-per-node {each} instead of --gpu-ids", patch=patch, loss=0.3)


def _slots_of_ids(state: ClusterState, spec: JobSpec) -> Iterator[Slot]:
    """Yield the nodes of which `--gpu-ids` speaks, a few of them."""
    slots = state.pool.slots
    if spec.nodelist:
        near = (slots[NodeId(name)] for name in spec.nodelist if name in slots)
    else:
        near = (slot for slot in slots.values() if spec.home not in state.pool.homes or slot.host == spec.home)
    return islice(near, FEW)


def _free_ids(state: ClusterState, name: str, wanted: int, spec: JobSpec) -> tuple[int, ...]:
    """Return the first so many free GPUs of a node by index, or none when there are fewer."""
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
            yield Change(family="cpus", text=text, flag=f"--cpus {cpus}", patch={"cpus": cpus}, loss=0.5 * (1 - cpus / spec.cpus))
        yield Change(family="cpus", text="without --cpus", flag="without --cpus", patch={"cpus": 0}, loss=0.5)
    if spec.mem_per_node_bytes:
        wanted = spec.mem_per_node_bytes
        sizes = {slot.free_mem // unit * unit for slot in up for unit in (GIB if slot.free_mem >= GIB else MIB,)}
        for size in sorted((size for size in sizes if 0 < size < wanted), reverse=True)[:FEW]:
            text = f"{_size(size)} of memory instead of {_size(wanted)}"
            patch = {"mem_per_node_bytes": size}
            yield Change(family="mem", text=text, flag=f"--mem-per-node {_size(size)}", patch=patch, loss=0.5 * (1 - size / wanted))
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
        yield Change(family="time", text=text, flag=f"-t {told}", patch={"time_limit_s": float(limit)}, loss=loss)
    if spec.hold:
        yield Change(family="hold", text="without --hold", flag="without --hold", patch={"hold": False}, loss=0.0)
    if spec.begin_at > state.now:
        yield Change(family="begin", text="without --begin", flag="without --begin", patch={"begin_at": 0.0}, loss=0.0)


def _nice(seconds: float) -> int:
    """Return a limit that ends before the time is up even if the offer is taken a little later."""
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
