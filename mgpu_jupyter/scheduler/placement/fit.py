"""First fit: every unit of a job on a node of its own, all or none, and a reason when it cannot be.

Filters that mean *never* (no change of load can help) come before filters that mean *not now*. Every unit is tried even after
one failed, so that the answer counts all that is missing.
"""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.units import Unit, units_of
from mgpu_jupyter.scheduler.model import Reason
from mgpu_jupyter.scheduler.placement.scratch import Assigned, Scratch, Slot

NODES_NAMED_IN_A_REASON = 4  # more make a sentence that nobody reads
GPUS_NAMED_IN_A_REASON = 2


class Shape(msgspec.Struct, frozen=True):
    """What decides about placement: two jobs of one shape are placed alike."""

    units: tuple[Unit, ...]
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    failed_nodes: tuple[NodeId, ...] = ()


class Placed(msgspec.Struct, frozen=True):
    """Every unit has a node."""

    assigned: tuple[Assigned, ...]


class NotNow(msgspec.Struct, frozen=True):
    """It could run, but not at this moment."""

    reason: Reason


class Never(msgspec.Struct, frozen=True):
    """No node that is known could ever run it."""

    reason: Reason


def shape_of(spec: JobSpec, failed_nodes: tuple[NodeId, ...] = ()) -> Shape:
    """Return the shape of a request."""
    return Shape(units_of(spec), tuple(sorted(spec.nodelist)), tuple(sorted(spec.exclude)), failed_nodes)


def place(shape: Shape, scratch: Scratch) -> Placed | NotNow | Never:
    """Reserve a node for every unit, or say why not; a refusal leaves `scratch` as it was."""
    if not scratch.slots:
        return NotNow(Reason("no-nodes", "No node has joined yet: start JupyterLab's own agent or run mgpu_node on a GPU machine."))
    capable = find_capable(shape, scratch.slots)
    if isinstance(capable, Never):
        return capable
    capable.sort(key=lambda slot: (slot.id in shape.failed_nodes, slot.id))
    missing = sum(not _place_unit(unit, capable, scratch) for unit in shape.units)
    if missing:
        scratch.rollback()
        return NotNow(_not_now(shape, capable, missing))
    return Placed(scratch.commit())


def find_capable(shape: Shape, slots: list[Slot]) -> list[Slot] | Never:
    """Return the nodes that could run a unit if nothing else did, or why there are too few of them."""
    allowed = [slot for slot in slots if _is_allowed(slot, shape)]
    capable = [slot for slot in allowed if _is_capable(slot, shape.units[0])]
    return capable if len(capable) >= len(shape.units) else Never(_never(shape, slots, allowed, capable))


def _place_unit(unit: Unit, slots: list[Slot], scratch: Scratch) -> bool:
    taken = scratch.reserved_nodes()
    for slot in slots:
        if slot.takes_work and slot.id not in taken and len(slot.free_gpus) >= unit.gpus and slot.free_cpus >= unit.cpus:
            scratch.reserve(unit.index, slot, unit.gpus, unit.cpus)
            return True
    return False


def _is_allowed(slot: Slot, shape: Shape) -> bool:
    return slot.id not in shape.exclude and (not shape.nodelist or slot.id in shape.nodelist)


def _is_capable(slot: Slot, unit: Unit) -> bool:
    return slot.gpus_total >= unit.gpus and slot.cpus_total >= unit.cpus


def _never(shape: Shape, slots: list[Slot], allowed: list[Slot], capable: list[Slot]) -> Reason:
    unit, wanted = shape.units[0], len(shape.units)
    unknown = [name for name in shape.nodelist if name not in {slot.id for slot in slots}]
    if unknown:
        return Reason("unknown-node", f"Waits for {_names(unknown)} to join: no such node is known yet; see `mgpu nodes`.", never=True)
    if len(allowed) < wanted:
        text = f"Needs {_count(wanted, 'node')}, but only {len(allowed)} may be used: ask for fewer --nodes."
        return Reason("too-few-nodes", text, never=True)
    what = _what(unit)
    if capable:
        text = f"Needs {what} on each of {wanted} nodes, but only {len(capable)} are that large: ask for less, or add a machine."
    else:
        largest = max(allowed, key=lambda slot: (slot.gpus_total, slot.cpus_total))
        has = f"{_count(largest.gpus_total, 'GPU')} and {_count(largest.cpus_total, 'CPU')}"
        text = f"Needs {what} on one node, but the largest, {largest.id}, has {has}: ask for less, or use --nodes."
    return Reason("too-large", text, never=True)


def _not_now(shape: Shape, capable: list[Slot], missing: int) -> Reason:
    unit, wanted = shape.units[0], len(shape.units)
    up = [slot for slot in capable if slot.takes_work]
    if len(up) < wanted:
        away = [f"{slot.id} is {slot.state}" for slot in capable if not slot.takes_work]
        return Reason("nodes-away", f"Waits for {_count(wanted - len(up), 'node')} to take work again: {_names(away)}.")
    where = f"on each of {wanted} nodes ({missing} missing)" if wanted > 1 else "on one node"
    free = [f"{slot.id} has {len(slot.free_gpus)}" for slot in up] if unit.gpus else [f"{slot.id} has {slot.free_cpus}" for slot in up]
    blocked = [text for slot in up for text in slot.blocked] if unit.gpus else []
    more = "".join(f" {text}" for text in blocked[:GPUS_NAMED_IN_A_REASON])
    return Reason("busy", f"Waits for {_what(unit)} free {where}: {_names(free)}.{more}")


def _what(unit: Unit) -> str:
    parts = [_count(unit.gpus, "GPU")] if unit.gpus or not unit.cpus else []
    return " and ".join(parts + ([_count(unit.cpus, "CPU")] if unit.cpus else []))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _names(words: list[str]) -> str:
    shown = ", ".join(words[:NODES_NAMED_IN_A_REASON])
    rest = len(words) - NODES_NAMED_IN_A_REASON
    return f"{shown} and {rest} more" if rest > 0 else shown
