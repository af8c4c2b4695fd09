"""Changes of how much a request asks for: fewer nodes, fewer GPUs on each, other nodes. Tries none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.wording import count
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.units import Group
from mgpu_jupyter.scheduler.state import ClusterState

FEW = 8
"""How many alternatives of one kind are worth a try."""

NO_COST = 0.1


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one flag, or of flags that mean one thing."""

    family: str
    text: str
    flag: str
    patch: dict[str, Any]
    loss: float
    """How much of what was asked for is given up, from 0 to 1."""
    flags: int = 1
    """How many flags it changes."""


# --- how much ------------------------------------------------------------------------------------


def of_size(state: ClusterState, spec: JobSpec, groups: tuple[Group, ...]) -> Iterator[Change]:
    """Yield fewer nodes, or fewer GPUs on each, which fit into what is free."""
    if spec.parts:
        yield from of_parts(spec, nodes_of(groups))
        return
    if spec.gpu_ids or spec.node_gpu_ids:
        return
    nodes, each = nodes_of(groups), groups[0].need.gpus
    total = nodes * each
    free = sorted((slot.free for slot in state.pool.slots.values() if slot.up), reverse=True)
    # As many nodes could give at most this many each, if nothing else were asked of them: more fails.
    most_each = free[nodes - 1] if nodes <= len(free) else 0
    for fewer in _downwards(min(each - 1, most_each)):
        patch = (
            {"gpus": fewer, "gpus_per_node": None} if nodes == 1 else {"gpus": None, "gpus_per_node": fewer}
        )
        flag = f"--gpus {fewer}" if nodes == 1 else f"--gpus-per-node {fewer}"
        yield Change(
            family="gpus",
            text=_sizes(nodes, fewer, nodes, each),
            flag=flag,
            patch=patch,
            loss=1 - fewer / each,
        )
    for fewer in _downwards(min(nodes - 1, sum(number >= each for number in free))):
        patch = {"nodes": fewer, "gpus": None, "gpus_per_node": each}
        flag = f"--nodes {fewer} --gpus-per-node {each}"
        yield Change(
            family="nodes",
            text=_sizes(fewer, each, nodes, each),
            flag=flag,
            patch=patch,
            loss=1 - fewer / nodes,
        )
    yield from _of_both(free, nodes, each)
    most = len(spec.nodelist) or len(state.pool.slots)
    splits = [other for other in range(1, min(total, most) + 1) if total % other == 0 and other != nodes]
    for other in sorted(splits, key=lambda one: abs(one - nodes))[:FEW]:
        patch = {"nodes": other, "gpus": total, "gpus_per_node": None}
        text = _sizes(other, total // other, nodes, each)
        loss = NO_COST * abs(other - nodes) / max(other, nodes)
        yield Change(
            family="split", text=text, flag=f"--nodes {other} --gpus {total}", patch=patch, loss=loss
        )


def _of_both(free: list[int], nodes: int, each: int) -> Iterator[Change]:
    """Yield fewer nodes with fewer GPUs on each."""
    sizes = [
        (some, gpus)
        for some in _downwards(min(nodes - 1, len(free)))
        for gpus in _downwards(min(each - 1, free[some - 1]))
    ]
    for fewer, gpus in sizes:
        patch = {"nodes": fewer, "gpus": None, "gpus_per_node": gpus}
        flag = f"--nodes {fewer} --gpus-per-node {gpus}"
        loss = 1 - fewer * gpus / (nodes * each)
        yield Change(
            family="size", text=_sizes(fewer, gpus, nodes, each), flag=flag, patch=patch, loss=loss, flags=2
        )


def _downwards(most: int) -> list[int]:
    """Return numbers to try from this one down to 1: the first few, then with growing gaps."""
    numbers = list(range(most, max(0, most - FEW), -1))
    while numbers and numbers[-1] > 1:
        numbers.append(numbers[-1] // 2)
    return numbers


def nodes_of(groups: tuple[Group, ...]) -> int:
    """Return how many nodes a request asks for."""
    return sum(group.count for group in groups)


def of_parts(spec: JobSpec, nodes: int) -> Iterator[Change]:
    """Yield a request of several parts on one node or on more, or without an architecture."""
    parts = len(spec.parts)
    other = parts if nodes == 1 else 1
    if parts > 1:
        text = f"its {parts} parts on {count(other, 'node')} instead of {nodes}"
        yield Change(family="split", text=text, flag=f"--nodes {other}", patch={"nodes": other}, loss=NO_COST)
    if any(part.arch for part in spec.parts):
        anywhere = tuple(replace(part, arch="") for part in spec.parts)
        yield Change(
            family="arch",
            text="without the architecture",
            flag="without --arch",
            patch={"parts": anywhere},
            loss=0.5,
        )


def _sizes(nodes: int, gpus: int, old_nodes: int, old_gpus: int) -> str:
    if nodes == old_nodes == 1:
        return f"{count(gpus, 'GPU')} instead of {old_gpus}"
    return f"{count(nodes, 'node')} × {count(gpus, 'GPU')} instead of {old_nodes} × {old_gpus}"


# --- which nodes ---------------------------------------------------------------------------------


def of_nodes(spec: JobSpec, groups: tuple[Group, ...]) -> Iterator[Change]:
    """Yield requests with fewer conditions on their nodes."""
    for name in spec.exclude[:FEW]:
        rest = tuple(one for one in spec.exclude if one != name)
        loss = 0.2 / len(spec.exclude)
        yield Change(
            family="exclude",
            text=f"without --exclude {name}",
            flag=f"without --exclude {name}",
            patch={"exclude": rest},
            loss=loss,
        )
    if len(spec.exclude) > 1:
        yield Change(
            family="exclude",
            text="without --exclude",
            flag="without --exclude",
            patch={"exclude": ()},
            loss=0.2,
        )
    if spec.nodelist and not spec.node_gpu_ids:
        names = ",".join(spec.nodelist if len(spec.nodelist) <= FEW else (*spec.nodelist[:FEW], "…"))
        patch = {"nodelist": (), "prefer": spec.nodelist, "nodes": nodes_of(groups)}
        flag = f"--prefer {names} instead of --nodelist"
        yield Change(
            family="nodelist",
            text=f"--prefer {names} instead of --nodelist {names}",
            flag=flag,
            patch=patch,
            loss=0.25,
        )
