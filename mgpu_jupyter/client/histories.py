"""What the client asks about the past: of the cluster, of a node, of a job; and what is expected on a node."""

from __future__ import annotations

from mgpu_jupyter.api.live import ClusterHistory, JobUsage, NodeHistory
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.model.explanations import NodeOutlook


class HistoryCalls:
    """The methods of `Client` about the past, and one about what is to come."""

    caller: Caller

    def cluster_history(self, *, span: float = 86_400.0, points: int = 300) -> ClusterHistory:
        """Return GPUs in use and busy, waiting jobs, wait times and ends of the last `span` seconds."""
        return self.caller.call(Request(path="cluster/history", query=_query(span, points)), ClusterHistory)

    def node_history(self, node_id: str, *, span: float = 600.0, points: int = 300) -> NodeHistory:
        """Return how busy a node and its GPUs were in the last `span` seconds."""
        return self.caller.call(Request(path=f"nodes/{node_id}/history", query=_query(span, points)), NodeHistory)

    def node_outlook(self, node_id: str) -> NodeOutlook:
        """Return who waits and is expected on a node."""
        return self.caller.call(Request(path=f"nodes/{node_id}/outlook"), NodeOutlook)

    def usage(self, job_id: str, *, points: int = 300) -> JobUsage:
        """Return what a job asked for and what it used, GPU by GPU."""
        return usage_of(self.caller, job_id, points)


def usage_of(caller: Caller, job_id: str, points: int) -> JobUsage:
    """Return what a job used."""
    return caller.call(Request(path=f"jobs/{job_id}/usage", query={"points": str(points)}), JobUsage)


def _query(span: float, points: int) -> dict[str, str]:
    return {"span": str(round(span)), "points": str(points)}
