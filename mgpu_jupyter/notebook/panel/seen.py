"""What a panel shows, as plain values: jobs in their order, nodes with their newest readings. Asks nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.notebook.panel.marks import Tile, TileState

CLOSED = (NodeState.DRAINING, NodeState.MAINTENANCE, NodeState.OFFLINE, NodeState.SUSPECT, NodeState.UNHEALTHY)
UNDER_WAY = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)
STATE_CODES: Mapping[str, TileState] = {"outside": "outside", "unhealthy": "unhealthy"}


class Waiting(Protocol):
    """What the mirror knows of a job that waits."""

    @property
    def place(self) -> int | None:
        """1 is next."""

    @property
    def reason(self) -> str:
        """Why."""

    @property
    def expected_at(self) -> float | None:
        """When it is to start."""


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
        """When it was heard last."""

    @property
    def retry_at(self) -> float | None:
        """When it tries again."""

    @property
    def cluster(self) -> models.Cluster | None:
        """Who asks whom."""

    @property
    def nodes(self) -> Mapping[NodeId, models.Node]:
        """All nodes; their readings may be old."""

    @property
    def jobs(self) -> Mapping[JobId, models.Job]:
        """All active jobs, and some that ended."""

    @property
    def queue(self) -> tuple[JobId, ...]:
        """What waits, in order."""

    def gpus(self, node_id: NodeId) -> tuple[models.Gpu, ...]:
        """Return a node's GPUs with their newest readings."""

    def waiting(self, job_id: JobId) -> Waiting | None:
        """Return why and until when a job waits."""


class Seen:
    """One moment of the cluster; what costs something is worked out when it is asked for, once."""

    def __init__(self, view: Live, now: float | None = None, clock: Callable[[], float] = time.time) -> None:
        self.view = view
        self.now = clock() if now is None else now
        self.user = view.cluster.user if view.cluster else ""
        self.admin = bool(view.cluster and view.cluster.admin)
        self._gpus: dict[NodeId, tuple[models.Gpu, ...]] = {}
        self._tiles: dict[NodeId, tuple[Tile, ...]] = {}

    @property
    def jobs(self) -> Mapping[JobId, models.Job]:
        """The jobs that are known."""
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
        """Return the tiles of a node's wall: MIG instances stand in the tile of the GPU that they are parts of."""
        tiles, gpus = self.tiles(node_id), self.gpus(node_id)
        if not any(gpu.mig_parent for gpu in gpus):
            return tiles
        groups: dict[str, list[Tile]] = {}
        for gpu, tile in zip(gpus, tiles, strict=True):
            groups.setdefault(gpu.mig_parent or gpu.uuid, []).append(tile)
        parents = {gpu.mig_parent for gpu in gpus}
        return tuple(
            msgspec.structs.replace(group[0], parts=tuple(group)) if parent in parents else group[0] for parent, group in groups.items()
        )

    def tile(self, node: models.Node, gpu: models.Gpu) -> Tile:
        """Return how a GPU is shown."""
        return Tile(
            state=self._state(node, gpu),
            busy=gpu.utilisation_percent,
            memory=None if gpu.memory_used_bytes is None else gpu.memory_used_bytes / max(gpu.memory_bytes, 1),
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
        """How many GPUs could be handed out now; counted without readings, so that 100 nodes cost nothing."""
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
        """Tell whose job it is."""
        return job.user == self.user

    def may_change(self, job: models.Job) -> bool:
        """Tell whether the person may order something about a job."""
        return self.admin or self.is_mine(job)


class Picked(msgspec.Struct, frozen=True):
    """A GPU that a form asks for."""

    node: str
    index: int
