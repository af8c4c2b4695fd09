"""What decides about placement: jobs of one shape are placed alike, so one answer serves them. Values."""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.constraint import Expression, parse_constraint
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.launchers import meets
from mgpu_jupyter.model.units import Group, groups_of_request


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a node must be, whatever its load: failing one of these means never."""

    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    partition: str = ""
    gpu_type: str = ""
    gpu_mem_bytes: int = 0
    constraint: Expression | None = None
    home: str = ""
    user: str = ""
    account: str = ""
    """Who asks; empty where nobody is excluded from anything, so that all users share shapes."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A request as placement sees it."""

    groups: tuple[Group, ...]
    rules: Rules = Rules()
    strategy: str = ""
    prefer: tuple[str, ...] = ()
    failed_nodes: tuple[NodeId, ...] = ()
    """Nodes where it failed to start; they are tried last."""
    meets: bool = False
    """Whether its nodes must reach each other."""

    @property
    def nodes(self) -> int:
        """How many nodes it asks for."""
        return sum(group.count for group in self.groups)

    @property
    def gpus(self) -> int:
        """How many GPUs it asks for in all."""
        return sum(group.count * group.need.gpus for group in self.groups)

    @property
    def taken_gpus(self) -> int:
        """How many GPUs it takes from others where each node has one."""
        return sum(group.count * (group.need.gpus or group.need.exclusive) for group in self.groups)


def shape_of(
    spec: JobSpec,
    *,
    failed_nodes: tuple[NodeId, ...] = (),
    partition: str = "",
    strategy: str = "",
    user: str = "",
    account: str = "",
) -> Shape:
    """Return the shape of a request, with what the site adds to it."""
    rules = Rules(
        nodelist=tuple(sorted(set(spec.nodelist))),
        exclude=tuple(sorted(set(spec.exclude))),
        partition=partition,
        gpu_type=spec.gpu_type.casefold(),
        gpu_mem_bytes=spec.gpu_mem_bytes,
        constraint=parse_constraint(spec.constraint),
        home=spec.home if spec.gpu_ids and not spec.nodelist else "",
        user=user,
        account=account,
    )
    prefer = tuple(sorted(set(spec.prefer)))
    return Shape(
        groups=groups_of_request(spec),
        rules=rules,
        strategy=strategy,
        prefer=prefer,
        failed_nodes=failed_nodes,
        meets=meets(spec),
    )
