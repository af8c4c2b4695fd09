"""The past in columns: of the cluster, of a node, of a job. Everybody sees the queue and the nodes, and so what became of them."""

from __future__ import annotations

from mgpu_jupyter.api import live
from mgpu_jupyter.server.handlers.base import Guarded, job_id_of

DEFAULT_POINTS = 300
DAY_S = 86_400
NODE_SPAN_S = 600


class _History(Guarded):
    """What all of these have in common."""

    def span(self, default: int) -> int:
        """Return how far to look back."""
        return self.number("span", default, live.LEAST_SPAN_S, live.MAX_SPAN_S)

    def points(self) -> int:
        """Return how many points are wanted at most."""
        return self.number("points", DEFAULT_POINTS, 1, live.MAX_POINTS)


class ClusterHistoryHandler(_History):
    """The cluster over a time."""

    path = "cluster/history"

    async def get(self) -> None:
        """Tell what was in use, waited and ended."""
        self.answer(await self.service.live.cluster(self.person.name, self.span(DAY_S), self.points()))


class NodeHistoryHandler(_History):
    """One node over a time."""

    path = "nodes/{node_id}/history"

    def get(self, node_id: str) -> None:
        """Tell what was read of it."""
        self.answer(self.service.live.node(self.node(node_id), self.span(NODE_SPAN_S), self.points()))


class UsageHandler(_History):
    """One job over its run time."""

    path = "jobs/{job_id}/usage"

    def get(self, job_id: str) -> None:
        """Tell what it made of its GPUs."""
        self.answer(self.service.live.usage(self.service.saved_job(job_id_of(job_id)).job, self.points()))
