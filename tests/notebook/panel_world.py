"""A cluster as the mirror would show it, made of plain values, and a mirror that a test moves by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.notebook.panel.panel import Panel

GB = 10**9
NOW = 1_800_000_000.0
HOSTILE = "<img src=x onerror=alert(1)>'\"&\x1b[31m</td>\n"


class Waits(msgspec.Struct, frozen=True):
    place: int | None = None
    reason: str = ""
    expected_at: float | None = None
    code: str = ""
    of: int = 0


class FakeView:
    def __init__(
        self,
        nodes: Sequence[models.Node] = (),
        jobs: Sequence[models.Job] = (),
        state: str = "live",
        user: str = "me",
        admin: bool = False,
    ) -> None:
        self.state = state
        self.problem = ""
        self.stale_since: float | None = None
        self.retry_at: float | None = None
        self.nodes: Mapping[NodeId, models.Node] = {node.id: node for node in nodes}
        self.jobs: Mapping[JobId, models.Job] = {job.id: job for job in jobs}
        placed = sorted((job for job in jobs if job.place), key=lambda job: job.place or 0)
        self.queue = tuple(job.id for job in placed)
        self.cluster: models.Cluster | None = models.Cluster(
            name="c",
            user=user,
            admin=admin,
            nodes=len(nodes),
            nodes_online=len(nodes),
            gpus=0,
            gpus_free=0,
            simulated=True,
            jobs={},
            notice="",
            seq=1,
        )

    def gpus(self, node_id: NodeId) -> tuple[models.Gpu, ...]:
        return self.nodes[node_id].gpus

    def waiting(self, job_id: JobId) -> Waits | None:
        job = self.jobs[job_id]
        return Waits(job.place, job.reason, job.expected_start_at) if job.state is JobState.QUEUED else None


class FakeMirror:
    """Hands out readers; `show` is what a change of the cluster does."""

    def __init__(self, view: FakeView) -> None:
        self.view = view
        self.readers: list[FakeReader] = []

    def reader(
        self, on_change: Callable[[Any, Any], None] | None = None, per_second: float = 2.0
    ) -> FakeReader:
        reader = FakeReader(self, on_change)
        self.readers.append(reader)
        return reader

    def show(self, view: FakeView) -> None:
        self.view = view
        for reader in self.readers:
            if reader.on_change is not None:
                reader.on_change(view, None)


class FakeReader:
    def __init__(self, mirror: FakeMirror, on_change: Callable[[Any, Any], None] | None) -> None:
        self._mirror = mirror
        self.on_change = on_change

    @property
    def view(self) -> FakeView:
        return self._mirror.view

    def close(self) -> None:
        if self in self._mirror.readers:
            self._mirror.readers.remove(self)


def gpu(index: int, **fields: object) -> models.Gpu:
    made = models.Gpu(
        index=index,
        uuid=GpuUuid(f"GPU-{index:08}"),
        name="NVIDIA H100 80GB",
        memory_bytes=80 * GB,
        simulated=False,
        utilisation_percent=0.0,
        memory_used_bytes=0,
        temperature_c=40.0,
    )
    return replace(made, **fields)


def node(name: str, gpus: Sequence[models.Gpu] | int = 8, **fields: object) -> models.Node:
    made = models.Node(
        id=NodeId(name),
        state=NodeState.ONLINE,
        reason="",
        host=name,
        address="127.0.0.1",
        arch="x86_64",
        cpus=8,
        memory_bytes=64 * GB,
        gpus=tuple(gpu(index) for index in range(gpus)) if isinstance(gpus, int) else tuple(gpus),
        rack="A",
        switch="1",
        last_seen_at=NOW,
    )
    return replace(made, **fields)


def job(job_id: str, state: JobState = JobState.QUEUED, **fields: object) -> models.Job:
    made = models.Job(
        id=JobId(job_id),
        state=state,
        user="me",
        name=f"job-{job_id}",
        command="python train.py",
        nodes=(),
        gpus=4,
        exit_code=None,
        attempt=0 if state is JobState.QUEUED else 1,
        submitted_at=NOW - 100,
        started_at=None if state is JobState.QUEUED else NOW - 90,
        ended_at=None,
        reason="",
    )
    return replace(made, **fields)


def tab(panel: Panel, number: int) -> Any:
    return panel._tabs[number]


def settle(panel: Panel) -> None:
    """Wait until all that was handed over is done."""
    done = threading.Event()
    panel.loop.post(done.set)
    assert done.wait(60)


def texts(panel: Panel) -> list[str]:
    return [slot.row.key for slot in tab(panel, 0).slots if slot.row is not None]
