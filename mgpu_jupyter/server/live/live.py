"""Feeds histories from what the master shows: the nodes once a second, and every job that changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api.histories import ClusterHistory, JobUsage, NodeHistory
from mgpu_jupyter.master.master import Master
from mgpu_jupyter.master.node_views import NodeView
from mgpu_jupyter.master.ports import JobFilter, Reader, SavedJob
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.server.hub import Hub
from mgpu_jupyter.server.live.board import Board
from mgpu_jupyter.server.live.chronicle import ENDED_KEPT, Chronicle, Life, curves_of, life_of, waits_of
from mgpu_jupyter.server.live.node_histories import NodeHistories, plain
from mgpu_jupyter.server.live.readings import Rounding
from mgpu_jupyter.server.live.rings import Points, Tiers
from mgpu_jupyter.server.live.usage import Usages, write_usage

log = logging.getLogger("mgpu.live")

FEED_S = 1.0
PAGE = 1_000
CLUSTER_STEPS = ((5.0, 720), (60.0, 1_440), (600.0, 4_320))
"""An hour, a day, thirty days."""
NO_CUT = 1_000_000

_T = TypeVar("_T")
Look = Callable[[Callable[[Reader], _T]], Awaitable[_T]]


class Live:
    """Histories and the queue's board of a running master. Belongs to the server's loop."""

    def __init__(self, master: Master, hub: Hub, board: Board, log_root: Path, writer: Executor) -> None:
        self.rounding = Rounding()
        self.board = board
        self._master = master
        self._hub = hub
        self._writer = writer
        self._nodes = NodeHistories()
        self._usages = Usages(log_root)
        self._chronicle = Chronicle()
        self._cluster = Tiers(CLUSTER_STEPS, 2)
        self._fed: dict[NodeId, tuple[object, object]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._listening = ExitStack()

    def start(self, look: Look[list[SavedJob]]) -> None:
        """Begin to record."""
        loop = asyncio.get_running_loop()
        self._listening.enter_context(self._hub.listen(self._take_jobs))
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._load(look))]

    def stop(self) -> None:
        """End the tasks that were started."""
        self._listening.close()
        self.board.close()
        for task in self._tasks:
            task.cancel()

    # --- for handlers ---------------------------------------------------------------------------

    def node(self, node: NodeView, span_s: float, points: int) -> NodeHistory:
        """Return the history of a node."""
        now = self._master.clock()
        return self._nodes.read(node, now - span_s, now, points)

    def usage(self, job: Job, points: int) -> JobUsage:
        """Return how a job used its GPUs."""
        return self._usages.read(job, points)

    async def cluster(self, user: str, span_s: float, points: int) -> ClusterHistory:
        """Return the history of the cluster; computed outside the loop."""
        now = self._master.clock()
        readings = self._cluster.read(now - span_s, now, NO_CUT)
        reckon = partial(
            cluster_history, self._chronicle.lives(), readings, user, (now - span_s, now), points
        )
        return await asyncio.get_running_loop().run_in_executor(None, reckon)

    # --- input ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self.feed(self._master.clock())
            await asyncio.sleep(FEED_S)

    def feed(self, at: float) -> None:
        """Take what nodes reported since the last call."""
        nodes = self._master.nodes()
        online = [node for node in nodes if node.state == NodeState.ONLINE]
        for node in nodes:
            samples, load = self._fed.get(node.id, (None, None))
            if node.state not in _HEARD or (samples is node.samples and load is node.load):
                continue
            self._fed[node.id] = (node.samples, node.load)
            self._nodes.take(node, at)
            if samples is not node.samples:
                self._usages.take(node, at)
        if len(self._fed) > len(nodes):
            known = {node.id for node in nodes}
            self._fed = {node_id: fed for node_id, fed in self._fed.items() if node_id in known}
            self._nodes.forget_all_but(known)
            self.rounding.forget_all_but(known)
        busy = sum(plain(sample.utilisation_percent) or 0.0 for node in online for sample in node.samples)
        self._cluster.add(at, (float(sum(len(node.facts.gpus) for node in online)), busy / 100.0))

    def _take_jobs(self, jobs: Sequence[SavedJob]) -> None:
        for saved in jobs:
            self._take(saved.job)

    def _take(self, job: Job) -> None:
        self._chronicle.take(job)
        nodes: dict[str, NodeView] = {}
        for placement in job.placements:
            if (view := self._master.node(placement.node_id)) is not None:
                nodes[placement.node_id] = view
        if (file := self._usages.changed(job, nodes, self._master.clock())) is not None:
            self._writer.submit(write_usage, *file)

    async def _load(self, look: Look[list[SavedJob]]) -> None:
        """Read from the store what happened before this master started."""
        lives: list[tuple[JobId, Life]] = []
        before: int | None = None
        try:
            while len(lives) < ENDED_KEPT:
                page = await look(partial(_page, before=before))
                for saved in page:
                    lives.append((saved.job.id, life_of(saved.job)))
                    if saved.job.state in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING):
                        self._take(saved.job)
                if len(page) < PAGE:
                    break
                before = page[-1].job.number
        except MgpuError as error:
            log.warning("the past of the cluster was not read: %s", error)
        self._chronicle.load(reversed(lives))


_HEARD = frozenset(state for state in NodeState if state not in (NodeState.OFFLINE, NodeState.SUSPECT))


def _page(reader: Reader, before: int | None) -> list[SavedJob]:
    return reader.jobs(JobFilter(before=before, limit=PAGE))


def cluster_history(
    lives: list[Life], readings: Points, user: str, span: tuple[float, float], points: int
) -> ClusterHistory:
    """Return the history of the cluster from the times of its jobs and its own readings."""
    since, until = span
    step_s = (until - since) / points
    curves = curves_of(lives, user, since, until, points)
    gpus, busy = _on_steps(readings, since, step_s, points)
    waits, median_s, p95_s = waits_of(lives, since)
    ended = {state: sum(counts) for state, counts in curves.ended.items()}
    judged = sum(ended.values()) - ended[JobState.CANCELLED]
    told = [(used, there) for used, there in zip(busy, gpus, strict=True) if used is not None and there]
    return ClusterHistory(
        step_s=round(step_s, 3),
        times=tuple(round(since + step_s * index, 1) for index in range(points)),
        gpus=tuple(None if value is None else round(value) for value in gpus),
        in_use=tuple(curves.in_use),
        mine=tuple(curves.mine),
        busy=tuple(None if value is None else round(value, 2) for value in busy),
        waiting=tuple(curves.waiting),
        wanted=tuple(curves.wanted),
        ended={state: tuple(counts) for state, counts in curves.ended.items()},
        waits=waits,
        median_wait_s=median_s,
        p95_wait_s=p95_s,
        ended_total=sum(ended.values()),
        succeeded_percent=round(100.0 * ended[JobState.COMPLETED] / judged, 1) if judged else None,
        busy_mean_percent=round(100.0 * sum(used for used, _ in told) / sum(there for _, there in told), 1)
        if told
        else None,
    )


def _on_steps(
    readings: Points, since: float, step_s: float, count: int
) -> tuple[list[float | None], list[float | None]]:
    """Return readings as means over other steps; a finer step has the reading that covers it."""
    columns: list[list[list[float]]] = [[[] for _ in range(count)] for _ in range(2)]
    reach = max(1, round(readings.step_s / step_s))
    for number, at in enumerate(readings.times):
        first = int((at - since) // step_s)
        for place in range(max(0, first), min(count, first + reach)):
            for column, values in zip(columns, readings.columns, strict=True):
                if (value := values[number]) is not None:
                    column[place].append(value)
    gpus, busy = ([sum(values) / len(values) if values else None for values in column] for column in columns)
    return gpus, busy
