"""What a panel shows, as plain values: jobs in their order, nodes with their newest readings. Sends
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.notebook.panel.marks import Tile, TileState, mean

CLOSED = (
    NodeState.DRAINING,
    NodeState.MAINTENANCE,
    NodeState.OFFLINE,
    NodeState.SUSPECT,
    NodeState.UNHEALTHY,
)
STATE_CODES: Mapping[str, TileState] = {"outside": "outside", "unhealthy": "unhealthy"}


class Waiting(Protocol):
    """What the mirror knows of a waiting job."""

    @property
    def place(self) -> int | None:
        """1 is next."""

    @property
    def reason(self) -> str:
        """Why."""

    @property
    def expected_at(self) -> float | None:
        """When it is expected to start."""


class Live(Protocol):
    """What is needed of the mirror's view."""

    @property
    def state(self) -> str:
        """`connecting`, `live`, `stale` or `stopped`."""

    @property
    def problem(self) -> str:
        """What is wrong, in a sentence."""

    @property
    def stale_since(self) -> float | None:
        """When the server was last heard."""

    @property
    def retry_at(self) -> float | None:
        """When it tries to connect again."""

    @property
    def cluster(self) -> models.Cluster | None:
        """The pool in numbers, and the user in it."""

    @property
    def nodes(self) -> Mapping[NodeId, models.Node]:
        """All nodes; their readings may be old."""

    @property
    def jobs(self) -> Mapping[JobId, models.Job]:
        """All active jobs, and some that ended."""

    @property
    def queue(self) -> tuple[JobId, ...]:
        """The waiting jobs, in order."""

    def gpus(self, node_id: NodeId) -> tuple[models.Gpu, ...]:
        """Return a node's GPUs with their newest readings."""

    def waiting(self, job_id: JobId) -> Waiting | None:
        """Return why and until when a job waits."""


class Seen:
    """The cluster at one moment; expensive values are computed once, when first asked for."""

    def __init__(self, view: Live, now: float | None = None, clock: Callable[[], float] = time.time) -> None:
        self.view = view
        self.now = clock() if now is None else now
        self.user = view.cluster.user if view.cluster else ""
        self.admin = bool(view.cluster and view.cluster.admin)
        self._gpus: dict[NodeId, tuple[models.Gpu, ...]] = {}
        self._tiles: dict[NodeId, tuple[Tile, ...]] = {}

    @property
    def jobs(self) -> Mapping[JobId, models.Job]:
        """The known jobs."""
        return self.view.jobs

    @property
    def nodes(self) -> Mapping[NodeId, models.Node]:
        """The nodes."""
        return self.view.nodes

    def gpus(self, node_id: NodeId) -> tuple[models.Gpu, ...]:
        """Return the GPUs of a node with their newest readings."""
        found = self._gpus.get(node_id)
        if found is None:
            found = self._gpus[node_id] = self.view.gpus(node_id) if node_id in self.view.nodes else ()
        return found

    def tiles(self, node_id: NodeId) -> tuple[Tile, ...]:
        """Return the tiles of a node."""
        found = self._tiles.get(node_id)
        if found is None:
            node = self.nodes[node_id]
            found = self._tiles[node_id] = tuple(self.tile(node, gpu) for gpu in self.gpus(node_id))
        return found

    def wall(self, node_id: NodeId) -> tuple[Tile, ...]:
        """Return the tiles of a node's wall: MIG instances are drawn in the tile of their GPU."""
        tiles, gpus = self.tiles(node_id), self.gpus(node_id)
        if not any(gpu.mig_parent for gpu in gpus):
            return tiles
        groups: dict[str, list[Tile]] = {}
        for gpu, tile in zip(gpus, tiles, strict=True):
            groups.setdefault(gpu.mig_parent or gpu.uuid, []).append(tile)
        parents = {gpu.mig_parent for gpu in gpus}
        return tuple(
            msgspec.structs.replace(group[0], parts=tuple(group)) if parent in parents else group[0]
            for parent, group in groups.items()
        )

    def tile(self, node: models.Node, gpu: models.Gpu) -> Tile:
        """Return how a GPU is shown."""
        return Tile(
            state=self._state(node, gpu),
            busy=gpu.utilisation_percent,
            memory=None
            if gpu.memory_used_bytes is None
            else gpu.memory_used_bytes / max(gpu.memory_bytes, 1),
            simulated=gpu.simulated,
        )

    def _state(self, node: models.Node, gpu: models.Gpu) -> TileState:
        if gpu.job_id is not None and gpu.state != "unhealthy":
            return "mine" if gpu.user == self.user else "others"
        if gpu.state in STATE_CODES:
            return STATE_CODES[gpu.state]
        if node.state in CLOSED or gpu.state == "settling":
            return "closed"
        return "free"

    @property
    def free(self) -> int:
        """How many GPUs could be handed out now; counted without readings, so that it is cheap for 100
        nodes.
        """
        return sum(
            gpu.state == "free" and gpu.job_id is None
            for node in self.nodes.values()
            if node.state is NodeState.ONLINE
            for gpu in node.gpus
        )

    @property
    def all_gpus(self) -> int:
        """How many GPUs there are."""
        return sum(len(node.gpus) for node in self.nodes.values())

    def is_mine(self, job: models.Job) -> bool:
        """Tell whether it is the user's own job."""
        return job.user == self.user

    def reason(self, job: models.Job) -> str:
        """Return why a job waits."""
        told = self.view.waiting(job.id)
        return (told.reason if told is not None else "") or job.reason

    def expected(self, job: models.Job) -> float | None:
        """Return when a job is expected to start."""
        told = self.view.waiting(job.id)
        return told.expected_at if told is not None else job.expected_start_at

    def start(self, job: models.Job) -> str:  # noqa: ARG002 - a column of its own tells it
        """Return an empty string: the panel has a column for it."""
        return ""

    def busy(self, job: models.Job) -> float | None:
        """Return how busy the GPUs of a job are, in percent, where they report it."""
        return mean(
            gpu.utilisation_percent
            for node in set(job.nodes)
            for gpu in self.gpus(NodeId(node))
            if gpu.job_id == job.id
        )

    def may_change(self, job: models.Job) -> bool:
        """Tell whether the user may give orders about a job."""
        return self.admin or self.is_mine(job)


class Picked(msgspec.Struct, frozen=True):
    """A GPU that a form asks for."""

    node: str
    index: int
