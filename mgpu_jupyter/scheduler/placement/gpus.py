"""Which GPUs of one node a unit gets: those that NVLink joins best, else the lowest. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from mgpu_jupyter.scheduler.placement.slots import Slot

MAX_TRIED = 5_000  # all ways to take 8 of 16 are 12,870: beyond this, grow a group from each GPU instead


def pick(slot: Slot, free: int, wanted: int) -> int:
    """Return `wanted` of the `free` GPUs, as bits."""
    if wanted == 1:
        return free & -free
    bits = [bit for bit in range(len(slot.gpus)) if free >> bit & 1]
    if wanted >= len(bits):
        return free
    if wanted > 1 and any(slot.gpus[bit].nvlinks for bit in bits):
        bits = _best_linked(slot, bits, wanted)
    return sum(1 << bit for bit in bits[:wanted])


def _best_linked(slot: Slot, bits: list[int], wanted: int) -> list[int]:
    """Return the group with the most links within; of equals, the one that leaves the most links among the rest; then the lowest."""
    links = _links(slot)
    ways = 1
    for step in range(wanted):
        ways = ways * (len(bits) - step) // (step + 1)
    groups: list[tuple[int, ...]] = [_grown(links, first, bits, wanted) for first in bits]
    if ways <= MAX_TRIED:
        groups = list(combinations(bits, wanted))

    worth = [(_within(links, group), _within(links, [bit for bit in bits if bit not in group])) for group in groups]
    return list(groups[worth.index(max(worth))])


def _grown(links: dict[tuple[int, int], int], first: int, bits: list[int], wanted: int) -> tuple[int, ...]:
    group = [first]
    while len(group) < wanted:
        rest = [bit for bit in bits if bit not in group]
        group.append(max(rest, key=lambda bit: (sum(links.get((bit, other), 0) for other in group), -bit)))
    return tuple(sorted(group))


def _within(links: dict[tuple[int, int], int], group: Sequence[int]) -> int:
    return sum(links.get(pair, 0) for pair in combinations(group, 2))


def _links(slot: Slot) -> dict[tuple[int, int], int]:
    place = {gpu.uuid: bit for bit, gpu in enumerate(slot.gpus)}
    return {(bit, place[uuid]): number for bit, gpu in enumerate(slot.gpus) for uuid, number in gpu.nvlinks.items() if uuid in place}
