"""All that decisions are made from, in one place with one owner and one writer."""

from __future__ import annotations

from collections.abc import Mapping

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.scheduler.explain.notes import Notes
from mgpu_jupyter.scheduler.meeting import Meeting
from mgpu_jupyter.scheduler.model import Job, Node, Policy
from mgpu_jupyter.scheduler.placement.pool import Pool
from mgpu_jupyter.scheduler.placement.strategies import Strategy
from mgpu_jupyter.scheduler.planning.estimates import Estimates
from mgpu_jupyter.scheduler.planning.plan import Planner
from mgpu_jupyter.scheduler.planning.queue import Queue
from mgpu_jupyter.scheduler.planning.quotas import Quotas
from mgpu_jupyter.scheduler.planning.shares import Shares
from mgpu_jupyter.scheduler.site import Site


class ClusterState:
    """Jobs that are not over, nodes, and what is derived from both: the books keep it in step."""

    def __init__(self, policy: Policy | None = None, strategies: Mapping[str, Strategy] | None = None) -> None:
        self.policy = policy or Policy()
        self.strategies = strategies or {}
        settings = self.policy.scheduling
        self.site = Site(settings, self.strategies)
        self.jobs: dict[JobId, Job] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.pool = Pool()
        self.queue = Queue()
        self.planner = Planner(self.queue, self.pool, settings.planning)
        self.quotas = Quotas(self.site)
        self.shares = Shares(settings)
        self.estimates = Estimates()
        self.notes = Notes()
        self.dependents: dict[str, dict[JobId, None]] = {}
        """For each job that others wait for: those."""
        self.news: list[Job] = []
        """Jobs that started to run or ended with the event that is being handled."""
        self.deadlines: list[tuple[float, JobId, int]] = []
        self.warnings: list[tuple[float, JobId, int, float]] = []
        """When which attempt is warned of which deadline."""
        self.deadline_of: dict[JobId, float] = {}
        """The deadlines of jobs that want to be warned."""
        self.delayed: list[tuple[float, JobId]] = []
        self.probes: list[tuple[float, NodeId]] = []
        """When which node is tried again."""
        self.leases: list[tuple[float, NodeId]] = []
        """When to look at the leases of jobs on nodes that are away."""
        self.preparations: list[tuple[float, JobId, int]] = []
        """Until when which attempt may be prepared."""
        self.meetings: dict[JobId, Meeting] = {}
        """Nodes of attempts that are about to find each other; kept in memory only, since nothing of them runs yet."""
        self.now = 0.0
        """The time of the newest event."""
        self.ordered_at = 0.0
        """When priorities were computed last."""
        self.last_turn = ""
        """The node that `round_robin` took last."""
        self.epoch = 0
        self.number = 0
        self.wants_pass = False
        """Something may have become free, or the order changed: look at all that waits."""

    @property
    def pass_is_due(self) -> bool:
        """Tell whether a pass could start something."""
        return self.wants_pass or bool(self.planner.fresh)
