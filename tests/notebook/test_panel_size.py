"""The panel with 1,000 waiting jobs and 100 nodes of 8 GPUs, by counts: `make bench-panel` has the times.

What is sent for one change must not grow with the cluster, and what is made for a page must not grow with the
queue.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from mgpu_jupyter import Client
from mgpu_jupyter.api import models
from mgpu_jupyter.client.mock import MockTransport
from mgpu_jupyter.notebook.panel.gpus_tab import CHUNK
from mgpu_jupyter.notebook.panel.panel import Panel
from mgpu_jupyter.notebook.panel.parts import Section
from tests.notebook.panel_world import FakeMirror, FakeView, gpu, job, node, settle, tab

NODES, GPUS, JOBS = 100, 8, 1_000


def nodes(changed: int | None = None) -> list[models.Node]:
    made = [node(f"gpu-{number:03}", GPUS) for number in range(NODES)]
    if changed is not None:
        busy = gpu(0, job_id="RUNS0001", user="me", state="held", utilisation_percent=50.0)
        made[changed] = replace(made[changed], gpus=(busy, *made[changed].gpus[1:]))
    return made


@pytest.fixture(scope="module")
def jobs() -> list[models.Job]:
    return [job(f"WAIT{number:04}", place=number + 1, user="user1") for number in range(JOBS)]


@pytest.fixture
def mirror(jobs: list[models.Job]) -> FakeMirror:
    return FakeMirror(FakeView(nodes(), jobs))


@pytest.fixture
def panel(mirror: FakeMirror, request: pytest.FixtureRequest) -> Iterator[Panel]:
    made = Panel(Client(transport=MockTransport()), mirror, {}, tab=request.param)
    made.open()
    settle(made)
    yield made
    made.close()


def sections(of: object) -> list[Section]:
    return [one for one in vars(of).values() if isinstance(one, Section)]


@pytest.mark.parametrize("panel", ["queue"], indirect=True)
def test_one_job_that_changes_sends_one_row(panel: Panel, mirror: FakeMirror, jobs: list[models.Job]) -> None:
    queue = tab(panel, 0)
    assert (len(queue.slots), queue.more.description) == (10, "990 more")
    before = [slot.cells.sent for slot in queue.slots]
    changed = [
        replace(one, reason="Waits for something else.") if number in (3, 700) else one
        for number, one in enumerate(jobs)
    ]
    mirror.show(FakeView(nodes(), changed))
    settle(panel)
    assert [slot.cells.sent - old for slot, old in zip(queue.slots, before, strict=True)] == [
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
        0,
    ]
    assert max(len(slot.cells.value) for slot in queue.slots) < 1_500


@pytest.mark.parametrize("panel", ["gpus"], indirect=True)
def test_one_node_that_changes_sends_its_chunk(
    panel: Panel, mirror: FakeMirror, jobs: list[models.Job]
) -> None:
    gpus = tab(panel, 1)
    assert len(gpus.walls) == NODES // CHUNK
    before = [wall.sent for wall in gpus.walls]
    mirror.show(FakeView(nodes(changed=57), jobs))
    settle(panel)
    assert [wall.sent - old for wall, old in zip(gpus.walls, before, strict=True)] == [
        0,
        0,
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
    ]
    assert sum(len(wall.value) for wall in gpus.walls) < 300_000
    assert sum(len(section.value) for section in sections(gpus)) < 20_000
