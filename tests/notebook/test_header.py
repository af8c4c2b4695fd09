"""The header of a job as HTML and as a line, in every state, and what it costs with a large cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.api.frames import NodeReading
from mgpu_jupyter.client.live import LiveState, View
from mgpu_jupyter.client.mock import a_node
from mgpu_jupyter.model.explanations import Offer, Where
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.gauges import LiveGauges
from mgpu_jupyter.notebook.header import done_html, html_of
from mgpu_jupyter.notebook.header_text import (
    Facts,
    Load,
    Waits,
    clock,
    in_time,
    places,
    readiness,
    shortened,
    stopwatch,
    text_of,
)

NOW = time.time()


def a_job(state: JobState, nodes: int = 2, gpus: int = 4) -> models.Job:
    started = state is not JobState.QUEUED
    names = tuple(NodeId(f"gpu-{number:02}") for number in range(1, nodes + 1)) if started else ()
    placements = tuple(
        models.Placement(
            node=node,
            rank=rank,
            gpus=tuple(GpuUuid(f"{node}-{index}") for index in range(gpus)),
            gpu_indices=tuple(range(gpus)),
            started_at=NOW - 2537,
            ended_at=NOW if state.is_final else None,
        )
        for rank, node in enumerate(names)
    )
    return models.Job(
        id=JobId("K7P2M9QX"),
        state=state,
        user="me",
        name="train-7b",
        command="x",
        nodes=names,
        gpus=nodes * gpus,
        exit_code=0 if state is JobState.COMPLETED else None,
        attempt=1,
        submitted_at=NOW - 3000,
        started_at=NOW - 2537 if started else None,
        ended_at=NOW if state.is_final else None,
        reason="",
        time_limit_s=10_800.0,
        placements=placements,
    )


def without_style(page: str) -> str:
    return page.partition("</style>")[2]


def test_waiting() -> None:
    at = NOW + 2280
    waits = Waits(place=2, of=6, reason="Waits for 4 free H100 on each of 2 nodes.", expected_at=at)
    offer = Offer(
        text="2 × 2 H100", flags=("--gpus-per-node", "2"), patch={}, where=(Where(node=NodeId("gpu-03")),)
    )
    facts = Facts(job=a_job(JobState.QUEUED), now=NOW, waits=waits, offers=(offer,))
    line = (
        f"mgpu K7P2M9QX waiting, 2nd of 6, starts about {clock(at)}: waits for 4 free H100 on each of 2 nodes"
    )
    assert text_of(facts) == line
    page = without_style(html_of(facts))
    words = (
        "Waiting",
        "2nd of 6 in the queue",
        f"starts ≈ <b>{clock(at)}</b>",
        "in 38 min",
        waits.reason,
        "Start now instead",
        "Stop cancels",
    )
    assert [word for word in (*words, "2 × 2 H100 on gpu-03") if word not in page] == []
    assert "Stop cancels" not in html_of(replace(facts, widgets=2))
    asked = without_style(html_of(replace(facts, explained=("2 jobs are ahead of it: A, B.",))))
    assert "2 jobs are ahead of it: A, B." in asked


def test_running_and_starting_are_of_one_height() -> None:
    load = Load(busy=(80.0, None, 89.4), memory=(50e9, 57.1 * 2**30), memory_total=80 << 30)
    running = without_style(html_of(Facts(job=a_job(JobState.RUNNING), now=NOW, load=load)))
    starting = without_style(html_of(Facts(job=a_job(JobState.STARTING), now=NOW)))
    assert (running.count('<div class="mgpu-row'), starting.count('<div class="mgpu-row')) == (2, 2)
    words = (
        "Running",
        "gpu-01 ×4, gpu-02 ×4",
        "00:42:17",
        "of 03:00:00",
        "89 %",
        "<b>57.1</b> of 80 GiB",
        "8 GPUs on 2 nodes",
        "polyline",
    )
    assert [word for word in words if word not in running] == []
    assert (
        text_of(Facts(job=a_job(JobState.RUNNING), now=NOW))
        == "mgpu K7P2M9QX running on gpu-01 ×4, gpu-02 ×4"
    )
    stopping = Facts(job=a_job(JobState.RUNNING), now=NOW, cancelling=True)
    assert ("Stopping" in html_of(stopping), text_of(stopping)) == (
        True,
        "mgpu K7P2M9QX stopping on gpu-01 ×4, gpu-02 ×4",
    )


def test_over() -> None:
    job = a_job(JobState.FAILED)
    bad = tuple(
        replace(one, exit_code=1) if one.rank == 1 else replace(one, signal=15, ended_at=NOW + 1)
        for one in job.placements
    )
    page = without_style(html_of(Facts(job=replace(job, placements=bad), now=NOW, last_lines=("boom <b>",))))
    words = (
        "Failed",
        "rank 1 on gpu-02 ended first, <b>exit 1</b>",
        "boom &lt;b&gt;",
        "Rank 0: stopped because rank 1 failed",
        "42 m 17 s",
    )
    assert [word for word in words if word not in page] == []
    assert "1 h 00 m" not in page
    assert "Time limit" in html_of(Facts(job=a_job(JobState.TIMEOUT), now=NOW))
    assert "Cancelled" in html_of(Facts(job=a_job(JobState.CANCELLED), now=NOW))
    assert html_of(Facts(job=a_job(JobState.COMPLETED), now=NOW)) == ""
    done = without_style(done_html(a_job(JobState.COMPLETED), ["asked 8, used 1.3"]))
    assert [
        word
        for word in ("Done in <b>42 m 17 s</b>", "8 GPUs, exit 0", "asked 8, used 1.3", "train-7b")
        if word not in done
    ] == []


def test_what_users_wrote_is_escaped() -> None:
    evil = "<img src=x onerror=alert(1)>"
    job = replace(a_job(JobState.RUNNING), name=evil)
    queued = replace(a_job(JobState.QUEUED), name=evil)
    pages = html_of(Facts(job=job, now=NOW, trouble=evil)) + html_of(
        Facts(job=queued, now=NOW, waits=Waits(reason=evil))
    )
    assert "<img" not in pages + done_html(replace(a_job(JobState.COMPLETED), name=evil), [evil])


def test_words() -> None:
    assert [stopwatch(seconds) for seconds in (0, 3661, 90_061)] == ["00:00:00", "01:01:01", "1-01:01:01"]
    assert [in_time(seconds) for seconds in (-1, 40, 2280, 7500)] == [
        "any moment",
        "in 40 s",
        "in 38 min",
        "in 2 h 05 min",
    ]
    assert len(shortened("x" * 100)) == 40
    assert places(a_job(JobState.RUNNING, nodes=16)) == "gpu-01 ×4, gpu-02 ×4, gpu-03 ×4 and 13 more"


class FakeReader:
    """A view, and what was looked at in it."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.closed = False

    def close(self) -> None:
        self.closed = True


class CountingView(View):
    looked: list[str]

    def reading(self, node_id: str) -> NodeReading:
        self.looked.append(node_id)
        return super().reading(node_id)


def a_large_view() -> CountingView:
    nodes = {node.id: node for node in (a_node(f"gpu-{number:02}", 8) for number in range(1, 101))}
    readings = {
        name: NodeReading(gpus={str(index): (89, 54_000, 60, 400) for index in range(8)}) for name in nodes
    }
    queue = (*(JobId(f"J{number:07}") for number in range(999)), JobId("K7P2M9QX"))
    view = CountingView(version=1, state=LiveState.LIVE, nodes=nodes, readings=readings, queue=queue)
    view.looked = []
    return view


@pytest.mark.parametrize("nodes", [1, 100])
def test_a_header_looks_at_its_own_gpus_alone(nodes: int) -> None:
    """With 1,000 queued jobs and 100 nodes of 8 GPUs: what is read and sent depends on the job, not on the
    cluster.
    """
    view = a_large_view()
    now = [100.0]
    gauges = LiveGauges(_opened(view), clock=lambda: now[0])
    assert gauges.waits(a_job(JobState.QUEUED)) == Waits(place=1000, of=1000)
    job = a_job(JobState.RUNNING, nodes=nodes, gpus=8)
    for _ in range(200):
        now[0] += 1
        load = gauges.load(job)
    assert (len(load.busy), load.busy[-1], load.memory_total) == (120, 89.0, 80 << 30)
    assert len(view.looked) == 200 * nodes
    assert len(html_of(Facts(job=job, now=NOW, load=load))) < 16_000
    gauges.close()


def _opened(view: View) -> Callable[[], FakeReader]:  # a reader as far as gauges need one
    return lambda: FakeReader(view)


def test_how_far_the_nodes_are_with_the_start() -> None:
    job = a_job(JobState.STARTING)

    def told(*steps: str, job: models.Job = job) -> str:
        placements = tuple(replace(one, step=step) for one, step in zip(job.placements, steps, strict=True))
        return readiness(replace(job, placements=placements))

    assert told("", "") == "gpu-01 ×4, gpu-02 ×4"
    assert told("ready", "asked") == "gpu-01 ×4 ready, gpu-02 ×4 being asked"
    assert told("meeting", "meeting") == "gpu-01 ×4, gpu-02 ×4 checking the connection between nodes"
    many = a_job(JobState.STARTING, nodes=6)
    assert told(*["started"] * 5, "launching", job=many) == "5 nodes started, 1 node launching"
    page = html_of(
        Facts(
            job=replace(job, placements=tuple(replace(one, step="ready") for one in job.placements)), now=NOW
        )
    )
    assert "gpu-01 ×4, gpu-02 ×4 ready" in page


def test_when_it_is_killed() -> None:
    at = NOW + 9.6
    facts = Facts(job=replace(a_job(JobState.STOPPING), kill_at=at, reason="Cancelled by me."), now=NOW)
    words = f"killed at {time.strftime('%H:%M:%S', time.localtime(at))} if it does not end"
    assert [word for word in (f"{words} · Cancelled by me<", "in 10 s") if word not in html_of(facts)] == []
    assert text_of(facts) == f"mgpu K7P2M9QX stopping on gpu-01 ×4, gpu-02 ×4; {words}"


def test_what_the_other_ranks_of_a_failed_job_said() -> None:
    job = a_job(JobState.FAILED, nodes=3)
    bad = tuple(
        replace(one, exit_code=1) if one.rank == 1 else replace(one, signal=15, ended_at=NOW + 1)
        for one in job.placements
    )
    facts = Facts(job=replace(job, placements=bad), now=NOW, other_lines=((0, ("a<",)), (2, ("a<",))))
    alike = without_style(html_of(facts))
    assert "Ranks 0, 2: stopped because rank 1 failed" in alike
    assert "(same 1 line on all 2)" in alike
    assert alike.count("a&lt;") == 1
    assert without_style(html_of(replace(facts, other_lines=((0, ("a",)), (2, ()))))).count("<details") == 1
    assert "<details" not in html_of(replace(facts, other_lines=()))
