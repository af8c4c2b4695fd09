"""Which of the suitable nodes is taken: one small function for each strategy, best first. Pure.

A strategy of a site's own is a function `(wanted, candidates) -> node ids, best first`, registered under the
entry-point group `mgpu.strategies`. It sees values only; nodes that it leaves out come last, and names it
makes up are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.scheduler.model import Load
from mgpu_jupyter.scheduler.placement.slots import Slot

FILL_FIRST = "fill_first"
SPREAD = "spread"
TOPOLOGY = "topology"
ROUND_ROBIN = "round_robin"
BUILT_IN = (FILL_FIRST, SPREAD, TOPOLOGY, ROUND_ROBIN)
ENTRY_POINTS = "mgpu.strategies"


class Wanted(msgspec.Struct, frozen=True):
    """What the nodes are for: how many, and what each gives."""

    nodes: int
    gpus: int
    cpus: int
    mem_bytes: int


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is suitable."""

    node_id: NodeId
    free_gpus: int
    gpus: int
    free_cpus: int
    free_mem_bytes: int
    load: Load
    failures: int
    rack: str
    switch: str
    labels: dict[str, str]


Strategy = Callable[[Wanted, Sequence[Candidate]], Iterable[str]]


def by_fill(slots: list[Slot]) -> list[Slot]:
    """Return the fullest first."""
    return sorted(slots, key=lambda slot: (slot.free, slot.id))


def by_fill_and_place(slots: list[Slot], wanted: int) -> list[Slot]:
    """Return the fullest first; of equals at the end of those that are wanted, those near each other."""
    fullest = by_fill(slots)
    if not 1 < wanted < len(fullest):
        return fullest
    free = fullest[wanted - 1].free
    first = [slot for slot in fullest if slot.free < free]
    equal = [slot for slot in fullest if slot.free == free]
    rest = fullest[len(first) + len(equal) :]
    return [*first, *by_place(equal, wanted - len(first), first), *rest]


def by_place(equal: list[Slot], wanted: int, beside: Sequence[Slot]) -> list[Slot]:
    """Return nodes that are equal but for where they are: first those on a switch, then those in a rack, of
    the ones that the job has already; with none, as `by_topology` does.
    """
    ranked = by_topology(equal, wanted)
    switches = {(slot.rack, slot.switch) for slot in beside if slot.switch}
    racks = {slot.rack for slot in beside if slot.rack}
    if switches or racks:
        ranked.sort(key=lambda slot: ((slot.rack, slot.switch) not in switches, slot.rack not in racks))
    return ranked


def by_spread(slots: list[Slot]) -> list[Slot]:
    """Return the emptiest first; among equals the one with the least measured load."""
    return sorted(slots, key=lambda slot: (-slot.free, slot.load.score + slot.failures, slot.id))


def by_turn(slots: list[Slot], last: str) -> list[Slot]:
    """Return nodes in the order of their names, beginning after the one that had the last turn."""
    return sorted(slots, key=lambda slot: (slot.id <= last, slot.id))


def by_topology(slots: list[Slot], wanted: int) -> list[Slot]:
    """Return nodes of one switch first if one has enough of them, else of one rack, else of as few places
    as possible.
    """
    fullest = by_fill(slots)
    if wanted == 1:
        return fullest
    switches = Counter((slot.rack, slot.switch) for slot in slots if slot.switch)
    racks = Counter(slot.rack for slot in slots if slot.rack)
    switch = _tightest(switches, wanted)
    if switch is not None:
        return sorted(fullest, key=lambda slot: (slot.rack, slot.switch) != switch)
    rack = _tightest(racks, wanted)
    # A rack, or without one the racks with the most room first; within, the switches with the most room.
    return sorted(
        fullest,
        key=lambda slot: (
            slot.rack != rack if rack is not None else -racks[slot.rack],
            slot.rack,
            -switches[slot.rack, slot.switch],
            slot.switch,
        ),
    )


def by_own(slots: list[Slot], strategy: Strategy, wanted: Wanted) -> list[Slot]:
    """Return nodes as a site's own strategy orders them; one that fails leaves the order of `fill_first`."""
    fullest = by_fill(slots)
    try:
        names = list(strategy(wanted, [_candidate(slot) for slot in fullest]))
    except Exception:  # noqa: BLE001 - foreign code must not stop the queue
        return fullest
    place = {name: position for position, name in reversed(list(enumerate(names)))}
    return sorted(fullest, key=lambda slot: place.get(slot.id, len(names)))


def _tightest(counts: Counter[tuple[str, str]] | Counter[str], wanted: int) -> tuple[str, str] | str | None:
    enough = [(number, place) for place, number in counts.items() if number >= wanted]
    return min(enough, default=(0, None))[1]


def _candidate(slot: Slot) -> Candidate:
    return Candidate(
        node_id=slot.id,
        free_gpus=slot.free,
        gpus=len(slot.gpus),
        free_cpus=slot.free_cpus,
        free_mem_bytes=slot.free_mem,
        load=slot.load,
        failures=slot.failures,
        rack=slot.rack,
        switch=slot.switch,
        labels=slot.labels,
    )
