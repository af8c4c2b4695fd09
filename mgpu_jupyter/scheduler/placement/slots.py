"""One node as placement sees it: what is free, who holds what until when, what is promised. Mutable; owned by
the pool.
"""

from __future__ import annotations

from copy import copy

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.model import GpuInfo
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.model.units import Need
from mgpu_jupyter.scheduler.model import Load, Node

MAX_REMEMBERED = 100
"""How many requested kinds of GPUs a node remembers, with those of its GPUs that match."""


SEATS = 1 << 30
"""How many jobs a node has room for: one takes a seat, one with `--exclusive` all of them."""


class Hold:
    """What one job has on one node. GPUs are bits, in the order in which the node names them."""

    __slots__ = ("cpus", "gpus", "mask", "mem_bytes", "seats", "taken")

    def __init__(self, mask: int, cpus: int, mem_bytes: int, *, whole: int | None = None) -> None:
        self.mask = mask
        self.gpus = mask.bit_count()
        self.cpus = cpus
        self.mem_bytes = mem_bytes
        self.taken = mask if whole is None else whole
        """GPUs that nobody else gets: its own, or, with `--exclusive`, the `whole` of the node."""
        self.seats = 1 if whole is None else SEATS


class Slot:
    """One node: its totals, what is left of them, and who has the rest."""

    __slots__ = (
        "_by_index",
        "_eligible",
        "arch",
        "blocked",
        "bucket",
        "cpus",
        "failures",
        "free",
        "free_cpus",
        "free_mask",
        "free_mem",
        "full_mask",
        "gpus",
        "holds",
        "host",
        "id",
        "incarnation",
        "kind",
        "labels",
        "lists",
        "load",
        "mem_bytes",
        "partitions",
        "promises",
        "rack",
        "seats",
        "state",
        "switch",
        "up",
        "usable",
    )

    def __init__(self, node: Node, partitions: frozenset[str]) -> None:
        facts = node.facts
        self.id: NodeId = node.id
        self.host = facts.host
        self.incarnation = facts.incarnation
        self.arch = facts.arch
        self.labels = node.labels
        self.rack, self.switch = facts.rack, facts.switch
        self.gpus: tuple[GpuInfo, ...] = facts.gpus
        self.cpus, self.mem_bytes = facts.cpus, facts.memory_bytes
        self.partitions = partitions
        gpus = tuple((gpu.index, gpu.name, gpu.memory_bytes) for gpu in facts.gpus)
        self.kind = (
            facts.arch,
            tuple(sorted(self.labels.items())),
            gpus,
            facts.cpus,
            facts.memory_bytes,
            partitions,
        )
        """What the node is, apart from its name and who may use it: nodes of one kind can serve the same."""
        self.full_mask = (1 << len(facts.gpus)) - 1
        self.holds: dict[JobId, Hold] = {}
        self.promises: list[Promised] = []
        self.bucket = -1
        """Its place in the pool's index: free GPUs, or -1 for none."""
        self._by_index = {gpu.index: 1 << bit for bit, gpu in enumerate(facts.gpus)}
        self._eligible: dict[tuple[str, int], int] = {}
        self.free_mask, self.free_cpus, self.free_mem = self.full_mask, self.cpus, self.mem_bytes
        self.seats = SEATS
        self.refresh(node)

    def refresh(self, node: Node) -> None:
        """Take over what changes without a new Hello: state, lists, load, GPUs that are out."""
        is_quiet = node.is_quiet and node.state is NodeState.ONLINE
        self.state, self.up = "not being heard" if is_quiet else node.state.value, node.takes_work
        self.lists = node.lists
        self.load: Load = node.load
        self.failures = node.failures
        self.blocked = {
            gpu.index: node.blocked[gpu.uuid].text for gpu in self.gpus if gpu.uuid in node.blocked
        }
        self.usable = self.full_mask & ~self.mask_of(tuple(self.blocked))
        held = 0
        for hold in self.holds.values():
            held |= hold.taken
        self.free_mask = self.usable & ~held
        self.free = self.free_mask.bit_count()

    def mask_of(self, indices: tuple[int, ...]) -> int:
        """Return the bits of GPUs by index; unknown ones are left out."""
        mask = 0
        for index in indices:
            mask |= self._by_index.get(index, 0)
        return mask

    def mask_of_uuids(self, uuids: tuple[str, ...]) -> int:
        """Return the bits of GPUs by UUID."""
        wanted = set(uuids)
        return sum(1 << bit for bit, gpu in enumerate(self.gpus) if gpu.uuid in wanted)

    def eligible(self, gpu_type: str, gpu_mem_bytes: int) -> int:
        """Return the bits of GPUs that are of this type and have this much memory."""
        if not gpu_type and not gpu_mem_bytes:
            return self.full_mask
        key = (gpu_type, gpu_mem_bytes)
        if key not in self._eligible:
            if len(self._eligible) >= MAX_REMEMBERED:
                self._eligible.clear()
            self._eligible[key] = sum(
                1 << bit
                for bit, gpu in enumerate(self.gpus)
                if gpu_type in gpu.name.casefold() and gpu.memory_bytes >= gpu_mem_bytes
            )
        return self._eligible[key]

    def lets(self, need: Need, end: float) -> bool:
        """Tell whether a job that starts now and ends then takes nothing from what is promised here."""
        return all(promised.at >= end or promised.leaves(need) for promised in self.promises)

    def take(self, job_id: JobId, hold: Hold, end: float) -> None:
        """Give this to a job that is expected to end then."""
        self.holds[job_id] = hold
        for promised in self.promises:
            if promised.at < end:
                promised.lose(hold.taken.bit_count(), hold.cpus, hold.mem_bytes, hold.seats)
        self.free_mask &= ~hold.taken
        self.free = self.free_mask.bit_count()
        self.free_cpus -= hold.cpus
        self.free_mem -= hold.mem_bytes
        self.seats -= hold.seats

    def give(self, job_id: JobId, end: float) -> None:
        """Free what a job has here that was expected to end then."""
        hold = self.holds.pop(job_id)
        for promised in self.promises:
            if promised.at < end:
                promised.lose(-hold.taken.bit_count(), -hold.cpus, -hold.mem_bytes, -hold.seats)
        self.free_mask |= hold.taken & self.usable
        self.free = self.free_mask.bit_count()
        self.free_cpus += hold.cpus
        self.free_mem += hold.mem_bytes
        self.seats += hold.seats

    def copy(self) -> Slot:
        """Return a copy of the node for another pool."""
        twin = copy(self)
        twin.holds, twin.promises = dict(self.holds), list(map(copy, self.promises))
        twin._eligible = dict(self._eligible)  # noqa: SLF001
        return twin


class Promised:
    """What a promise keeps free on one node from `at` to `end`, and what it leaves to others then."""

    __slots__ = ("at", "end", "exact", "need", "spare_cpus", "spare_gpus", "spare_mem", "spare_seats")

    def __init__(
        self, need: Need, at: float, end: float, spare: tuple[int, int, int, int], *, exact: bool
    ) -> None:
        self.need, self.at, self.end = need, at, end
        self.spare_gpus, self.spare_cpus, self.spare_mem, self.spare_seats = spare
        self.exact = exact
        """Whether it needs certain GPUs of the node, so that nobody else may be on it then."""

    def leaves(self, need: Need) -> bool:
        """Tell whether a job that is still there when it begins takes nothing from it."""
        return (
            not self.exact
            and not need.gpu_ids
            and need.gpus <= self.spare_gpus
            and need.cpus <= self.spare_cpus
            and need.mem_bytes <= self.spare_mem
            and seats_of(need) <= self.spare_seats
        )

    def lose(self, gpus: int, cpus: int, mem_bytes: int, seats: int) -> None:
        """Note that another job will have this when it begins."""
        self.spare_gpus -= gpus
        self.spare_cpus -= cpus
        self.spare_mem -= mem_bytes
        self.spare_seats -= seats


def seats_of(need: Need) -> int:
    """Return how many of a node's seats it takes to serve a need."""
    return SEATS if need.exclusive else 1
