"""All that decisions are made from, in one place with one owner and one writer."""

from __future__ import annotations

from collections.abc import Mapping

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.scheduler.meeting import Meeting
from mgpu_jupyter.scheduler.model import Job, Node, Policy
from mgpu_jupyter.scheduler.placement.pool import Pool
from mgpu_jupyter.scheduler.placement.strategies import Strategy
from mgpu_jupyter.scheduler.planning.estimates import Estimates
from mgpu_jupyter.scheduler.planning.plan import Planner
from mgpu_jupyter.scheduler.planning.queue import Lane, Queue
from mgpu_jupyter.scheduler.planning.quotas import Quotas
from mgpu_jupyter.scheduler.planning.shares import Shares
from mgpu_jupyter.scheduler.site import Site

ClaimKey = tuple[str, str, str, str | None, int]
"""Who asks for how much: user, account, QoS, array, GPUs. Quotas give all of one key the same answer."""


class ToldReasons:
    """The last answers to waiting jobs."""

    def __init__(self) -> None:
        self.aside: list[Job] = []
        """Jobs that left the queue with the present event: held, delayed, or waiting for others."""
        self.promised: dict[JobId, float] = {}
        self.refused: dict[ClaimKey, None] = {}
        self.lanes: dict[Lane, tuple[float, object]] = {}
        """For each lane, what the pass found (`until`, as a kind) and what was recorded."""
        self.left: list[Lane] = []
        """Of those, the ones that the last waiting job left with the event that is being handled."""
        self.looks = 0.0
        """How many nodes may be examined, as of `looked_at`."""
        self.looked_at = 0.0
        self.turn = 0
        """The lane to examine next when none has changed."""


class ClusterState:
    """Jobs that are not over, nodes, and what is derived from both: the books keep it in step."""

    def __init__(
        self, policy: Policy | None = None, strategies: Mapping[str, Strategy] | None = None
    ) -> None:
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
        self.notes = ToldReasons()
        self.dependents: dict[str, dict[JobId, None]] = {}
        """For each job that others depend on: those others."""
        self.news: list[Job] = []
        """Jobs that started to run or ended with the present event."""
        self.deadlines: list[tuple[float, JobId, int]] = []
        self.warnings: list[tuple[float, JobId, int, float]] = []
        """When which attempt is warned of which deadline."""
        self.deadline_of: dict[JobId, float] = {}
        """The deadlines of jobs that asked for a warning."""
        self.delayed: list[tuple[float, JobId]] = []
        self.probes: list[tuple[float, NodeId]] = []
        """When which node is tried again."""
        self.leases: list[tuple[float, NodeId]] = []
        """When to look at the leases of jobs on nodes that are away."""
        self.silences: list[tuple[float, NodeId]] = []
        """When which node that is not heard counts as offline."""
        self.preparations: list[tuple[float, JobId, int]] = []
        """The deadline for the preparation of each attempt."""
        self.meetings: dict[JobId, Meeting] = {}
        """Nodes of attempts that are about to meet; in memory only, since nothing of them runs yet."""
        self.now = 0.0
        """The time of the newest event."""
        self.ordered_at = 0.0
        """When priorities were computed last."""
        self.last_turn = ""
        """The node that `round_robin` took last."""
        self.epoch = 0
        self.number = 0
        self.wants_pass = False
        """Something may have become free, or the order changed: a pass over all waiting jobs is needed."""

    @property
    def pass_is_due(self) -> bool:
        """Tell whether a pass could start something."""
        return self.wants_pass or bool(self.planner.fresh)
