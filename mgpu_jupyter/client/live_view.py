"""The cluster as one kernel sees it: event frames in, immutable views out. Pure: no socket and no thread.

A view shares its tables with the model; a table is copied once when it changes after a view was taken, so
that a view costs nothing, and an update costs what changed and one copy of the tables concerned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import frames, models
from mgpu_jupyter.api.frames import EventFrame, GoneFrame, NodeReading, QueueFrame, SamplesFrame, Why
from mgpu_jupyter.model.job import JobState

ENDED_KEPT = 500
MIB = 1 << 20
NO_READING = NodeReading()


class LiveState(StrEnum):
    """The state of a mirror."""

    CONNECTING = "connecting"
    LIVE = "live"
    STALE = "stale"
    STOPPED = "stopped"


class WaitingNow(NamedTuple):
    """Why a job waits, and its place."""

    place: int | None
    """1 is next; None for a job that is not in the queue (held, after another, not before a time)."""
    of: int
    """How many are in the queue."""
    code: str
    reason: str
    expected_at: float | None


class Changes(NamedTuple):
    """What changed since the last call."""

    jobs: frozenset[JobId] = frozenset()
    nodes: frozenset[NodeId] = frozenset()
    readings: frozenset[NodeId] = frozenset()
    queue: bool = False
    state: bool = False

    def __bool__(self) -> bool:
        return any(self[:])

    def __or__(self, other: object) -> Changes:
        if not isinstance(other, Changes):
            return NotImplemented
        return Changes(
            self.jobs | other.jobs,
            self.nodes | other.nodes,
            self.readings | other.readings,
            self.queue or other.queue,
            self.state or other.state,
        )


class View:
    """The cluster at one moment. It never changes; keep it as long as you like."""

    def __init__(
        self,
        *,
        version: int = 0,
        state: LiveState = LiveState.CONNECTING,
        problem: str = "",
        stale_since: float | None = None,
        retry_at: float | None = None,
        cluster: models.Cluster | None = None,
        nodes: Mapping[NodeId, models.Node] | None = None,
        jobs: Mapping[JobId, models.Job] | None = None,
        readings: Mapping[NodeId, NodeReading] | None = None,
        queue: tuple[JobId, ...] = (),
        why: Mapping[JobId, int] | None = None,
        reasons: Mapping[int, Why] | None = None,
        expected: Mapping[JobId, float] | None = None,
    ) -> None:
        self.version = version
        """Rises with every change."""
        self.state = state
        self.problem = problem
        """One sentence when it is not live."""
        self.stale_since = stale_since
        """When the server was last heard (seconds since 1970), while it is not."""
        self.retry_at = retry_at
        """When the next try to connect begins."""
        self.cluster = cluster
        self.nodes: Mapping[NodeId, models.Node] = MappingProxyType(nodes or {})
        self.jobs: Mapping[JobId, models.Job] = MappingProxyType(jobs or {})
        self.queue = queue
        self._readings = readings or {}
        self._why = why or {}
        self._reasons = reasons or {}
        self._expected = expected or {}

    def reading(self, node_id: str) -> NodeReading:
        """Return the newest readings of a node, all of them."""
        return self._readings.get(NodeId(node_id), NO_READING)

    def gpus(self, node_id: str) -> tuple[models.Gpu, ...]:
        """Return the GPUs of a node with their newest readings."""
        node = self.nodes.get(NodeId(node_id))
        if node is None:
            return ()
        read = self.reading(node_id).gpus
        return tuple(_with_reading(gpu, read.get(str(gpu.index))) for gpu in node.gpus)

    def waiting(self, job_id: str) -> WaitingNow | None:
        """Return why a job waits; None for one that does not."""
        job, name = self.jobs.get(JobId(job_id)), JobId(job_id)
        place = self._places.get(name)
        if place is not None and (job is None or job.state is JobState.QUEUED):
            why = self._reasons.get(self._why.get(name, 0), Why("", ""))
            return WaitingNow(place, len(self.queue), why.code, why.text, self._expected.get(name))
        if job is None or job.state is not JobState.QUEUED:
            return None
        return WaitingNow(None, len(self.queue), job.reason_code, job.reason, job.expected_start_at)

    @cached_property
    def _places(self) -> dict[JobId, int]:
        return {job_id: place for place, job_id in enumerate(self.queue, 1)}


def _with_reading(gpu: models.Gpu, reading: tuple[int | None, ...] | None) -> models.Gpu:
    if reading is None:
        return gpu
    busy, memory, temperature, power = reading
    return replace(
        gpu,
        utilisation_percent=busy,
        memory_used_bytes=None if memory is None else memory * MIB,
        temperature_c=temperature,
        power_w=power,
    )


class Model:
    """The tables behind the views. Used by one thread."""

    def __init__(self) -> None:
        self.seq = -1
        """Where to continue after a break."""
        self.queue_version = 1
        self._version = 0
        self._cluster: models.Cluster | None = None
        self._nodes: dict[NodeId, models.Node] = {}
        self._jobs: dict[JobId, models.Job] = {}
        self._readings: dict[NodeId, NodeReading] = {}
        self._queue: tuple[JobId, ...] = ()
        self._why: dict[JobId, int] = {}
        self._reasons: dict[int, Why] = {}
        self._expected: dict[JobId, float] = {}
        self._ended: deque[JobId] = deque()
        self._shared: set[str] = set()
        self._changed_jobs: set[JobId] = set()
        self._changed_nodes: set[NodeId] = set()
        self._changed_readings: set[NodeId] = set()
        self._queue_changed = False

    def take_changes(self) -> Changes:
        """Return what changed since the last call."""
        changes = Changes(
            frozenset(self._changed_jobs),
            frozenset(self._changed_nodes),
            frozenset(self._changed_readings),
            queue=self._queue_changed,
        )
        self._changed_jobs, self._changed_nodes, self._changed_readings, self._queue_changed = (
            set(),
            set(),
            set(),
            False,
        )
        return changes

    def everything(self) -> Changes:
        """Return everything as changes, for a reader that has seen nothing."""
        return Changes(
            frozenset(self._jobs), frozenset(self._nodes), frozenset(self._readings), queue=True, state=True
        )

    def view(
        self,
        state: LiveState,
        *,
        problem: str = "",
        stale_since: float | None = None,
        retry_at: float | None = None,
    ) -> View:
        """Return a view of the present state."""
        self._version += 1
        self._shared = {"nodes", "jobs", "readings", "queue"}
        return View(
            version=self._version,
            state=state,
            problem=problem,
            stale_since=stale_since,
            retry_at=retry_at,
            cluster=self._cluster,
            nodes=self._nodes,
            jobs=self._jobs,
            readings=self._readings,
            queue=self._queue,
            why=self._why,
            reasons=self._reasons,
            expected=self._expected,
        )

    def begin(
        self, cluster: models.Cluster, nodes: Iterable[models.Node], jobs: Iterable[models.Job]
    ) -> None:
        """Replace everything by a snapshot; jobs that were seen to end are kept."""
        self._own("nodes", "jobs", "readings")
        self.seq = cluster.seq
        self._cluster = cluster
        self._changed_nodes |= self._nodes.keys()
        self._changed_jobs |= self._jobs.keys()
        self._nodes = {node.id: node for node in nodes}
        self._jobs = {job_id: job for job_id, job in self._jobs.items() if job.state.is_final}
        self._jobs.update((job.id, job) for job in jobs)
        self._readings = {node_id: _reading_of(node) for node_id, node in self._nodes.items()}
        self._changed_nodes |= self._nodes.keys()
        self._changed_readings |= self._nodes.keys()
        self._changed_jobs |= self._jobs.keys()

    def take(self, frame: EventFrame) -> None:
        """Take a frame; `reset` is handled by the caller."""
        if isinstance(frame, frames.JobFrame):
            self._take_job(frame.job)
        elif isinstance(frame, frames.NodeFrame):
            self._own("nodes", "readings")
            self._nodes[frame.node.id] = frame.node
            # Later readings are differences to `samples`, so these stay.
            self._readings.setdefault(frame.node.id, _reading_of(frame.node))
            self._changed_nodes.add(frame.node.id)
        elif isinstance(frame, SamplesFrame):
            self._take_samples(frame)
        elif isinstance(frame, QueueFrame):
            self._take_queue(frame)
        elif isinstance(frame, GoneFrame):
            self._take_gone(frame)
        if not isinstance(frame, frames.SamplesFrame | frames.QueueFrame | frames.PingFrame):
            self.seq = max(self.seq, frame.seq)

    def _own(self, *names: str) -> None:
        """Copy tables that a view shares before they change."""
        for name in self._shared.intersection(names):
            match name:
                case "nodes":
                    self._nodes = dict(self._nodes)
                case "jobs":
                    self._jobs = dict(self._jobs)
                case "readings":
                    self._readings = dict(self._readings)
                case "queue":
                    self._why, self._reasons = dict(self._why), dict(self._reasons)
                    self._expected = dict(self._expected)
        self._shared.difference_update(names)

    def _take_job(self, job: models.Job) -> None:
        known = self._jobs.get(job.id)
        if known is not None and known.seq > job.seq:  # the snapshot was newer
            return
        self._own("jobs")
        self._jobs[job.id] = job
        self._changed_jobs.add(job.id)
        if job.state.is_final:
            self._ended.append(job.id)
            while len(self._ended) > ENDED_KEPT:
                old = self._ended.popleft()
                if (
                    old not in self._ended
                    and (gone := self._jobs.get(old)) is not None
                    and gone.state.is_final
                ):
                    del self._jobs[old]
                    self._changed_jobs.add(old)

    def _take_samples(self, frame: SamplesFrame) -> None:
        self._own("readings")
        for node_id, news in frame.nodes.items():
            old = self._readings.get(node_id, NO_READING)
            self._readings[node_id] = NodeReading(
                cpu=old.cpu if news.cpu is None else news.cpu,
                memory_available_mib=old.memory_available_mib
                if news.memory_available_mib is None
                else news.memory_available_mib,
                gpus=old.gpus | news.gpus,
            )
        self._changed_readings |= frame.nodes.keys()

    def _take_queue(self, frame: QueueFrame) -> None:
        self._own("queue")
        self._queue_changed = True
        self.queue_version = frame.version
        if frame.base is None:
            self._queue, self._why, self._reasons, self._expected = (), {}, {}, {}
        order = list(self._queue)
        if frame.removed:
            gone = set(frame.removed)
            order = [job_id for job_id in order if job_id not in gone]
            stay = {job_id for _, run in frame.inserted for job_id in run}
            for job_id in gone - stay:
                self._why.pop(job_id, None)
                self._expected.pop(job_id, None)
        for index, run in frame.inserted:
            order[index:index] = run
        self._queue = tuple(order)
        self._reasons.update((int(number), why) for number, why in frame.reasons.items())
        self._why.update(frame.why)
        for job_id, start in frame.expected.items():
            if start is None:
                self._expected.pop(job_id, None)
            else:
                self._expected[job_id] = start

    def _take_gone(self, frame: GoneFrame) -> None:
        self._own("nodes", "jobs", "readings")
        for node_id in frame.nodes:
            self._nodes.pop(node_id, None)
            self._readings.pop(node_id, None)
        for job_id in frame.jobs:
            self._jobs.pop(job_id, None)
        self._changed_nodes |= set(frame.nodes)
        self._changed_jobs |= set(frame.jobs)


def _reading_of(node: models.Node) -> NodeReading:
    return NodeReading(
        cpu=_whole(node.cpu_percent),
        memory_available_mib=_mib(node.memory_available_bytes),
        gpus={
            str(gpu.index): (
                _whole(gpu.utilisation_percent),
                _mib(gpu.memory_used_bytes),
                _whole(gpu.temperature_c),
                _whole(gpu.power_w),
            )
            for gpu in node.gpus
        },
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _mib(value: int | None) -> int | None:
    return None if value is None else round(value / MIB)
