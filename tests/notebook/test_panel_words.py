"""What the tabs of the panel say, as a person reads it: nodes, GPUs, answers, a job's times and log."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.client.words import moment
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.notebook.panel import gpu_views
from mgpu_jupyter.notebook.panel.marks import mean
from mgpu_jupyter.notebook.panel.seen import Seen
from tests.notebook.panel_world import NOW, FakeView, gpu, job, node
from tests.notebook.visible import visible

N1, N2 = NodeId("n1"), NodeId("n2")
MINE, OTHERS = JobId("MINE0001"), JobId("OTHR0001")


def seen(*nodes: models.Node, jobs: tuple[models.Job, ...] = (), **fields: Any) -> Seen:
    return Seen(FakeView(nodes, jobs, **fields), NOW)  # type: ignore[arg-type]


GPUS = (
    gpu(0, job_id=MINE, user="me", utilisation_percent=50.0),
    gpu(1, job_id=OTHERS, user="ann", reason="slow"),
    gpu(2),
    gpu(3, state="outside", reason="python of bob"),
    gpu(4, state="unhealthy", reason="It is hot."),
    gpu(5, state="settling"),
    gpu(6, job_id=JobId("GONE0001"), user=""),
    gpu(7, job_id=MINE, user="me", state="unhealthy", reason="Hot."),
)
JOBS = (job(MINE, JobState.RUNNING, nodes=(N1,), name="a" * 50), job(OTHERS, JobState.RUNNING, user="ann"))


# --- GPUs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "state", "words"),
    [
        (0, "mine", f"me, {'a' * 40}"),
        (1, "others", "ann, job-OTHR0001; slow"),
        (2, "free", "free"),
        (3, "outside", "in use outside mgpu; not handed out; python of bob"),
        (4, "unhealthy", "unhealthy; It is hot."),
        (5, "closed", "the memory of its last job is not back"),
        (6, "others", "somebody, GONE0001"),
        (7, "unhealthy", f"me, {'a' * 40}; Hot."),
    ],
)
def test_who_has_a_gpu(number: int, state: str, words: str) -> None:
    world = seen(node("n1", GPUS), jobs=JOBS)
    shown = world.tile(world.nodes[N1], GPUS[number])
    assert shown.state == state
    assert "".join(visible(gpu_views.holder_html(world, GPUS[number], shown))) == words


@pytest.mark.parametrize("state", [one for one in NodeState if one is not NodeState.ONLINE])
def test_a_node_that_takes_no_jobs_is_closed(state: NodeState) -> None:
    world = seen(node("n1", 1, state=state))
    (shown,) = world.tiles(N1)
    assert shown.state == "closed"
    assert gpu_views.holder_html(world, gpu(0), shown) == "closed: the node takes no jobs"
    assert (world.free, gpu_views.free_of(world.nodes[N1])) == (0, 0)


AT = NOW - 3600


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ["online"]),
        ({"state": NodeState.OFFLINE, "last_seen_at": AT}, ["(failed)", f"offline since {moment(AT, NOW)}"]),
        ({"state": NodeState.OFFLINE, "last_seen_at": None}, ["(failed)", "offline"]),
        ({"state": NodeState.UNHEALTHY, "reason": "Hot <b>."}, ["(failed)", "unhealthy: Hot <b>."]),
        ({"state": NodeState.UNHEALTHY}, ["(failed)", "unhealthy"]),
        ({"state": NodeState.SUSPECT, "last_seen_at": NOW - 12.4}, ["(warning)", "not heard for 12 s"]),
        ({"state": NodeState.SUSPECT, "last_seen_at": None}, ["(warning)", "not heard"]),
        ({"state": NodeState.DRAINING}, ["(warning)", "draining"]),
        (
            {"state": NodeState.DRAINING, "orders": models.NodeOrders(reason="New disk", by="ann", at=AT)},
            ["(warning)", f"draining: “New disk” by ann, since {moment(AT, NOW)}"],
        ),
        (
            {"state": NodeState.MAINTENANCE, "orders": models.NodeOrders(reason="Disk")},
            ["(warning)", "maintenance: “Disk”"],
        ),
    ],
)
def test_the_state_of_a_node(fields: dict[str, Any], words: list[str]) -> None:
    one = node("n1", 1, **fields)
    assert visible(gpu_views.note(seen(one), one)) == words


def test_a_node_gpu_by_gpu() -> None:
    gpus = (
        gpu(0, job_id=MINE, user="me", utilisation_percent=49.6, temperature_c=61.4, memory_used_bytes=None),
        gpu(1, utilisation_percent=None, temperature_c=None, memory_used_bytes=None),
    )
    page = gpu_views.node_html(seen(node("n1", gpus), jobs=JOBS), N1, {0: ((NOW,), (50.0,))}, NOW - 600)
    assert visible(page) == [
        *("n1", "2 × H100 80GB, rack A, switch 1, online"),
        *("GPU", "Busy, 10 min", "Memory", "Temp.", "Holder"),
        *("0", "(GPU 0 busy over 10 minutes, now 50 %)", "50 %", "61 °C", f"me, {'a' * 40}"),
        *("1", "(GPU 1 busy over 10 minutes, now not known)", "free"),
    ]
    rows = [row.partition(">")[0] for row in page.split("<tr ")[1:]]
    assert rows == ['data-gpu="0" data-state="mine"', 'data-gpu="1" data-state="free"']
    assert page.count('class="mgpu-plot mine"') == 1
    empty = node("n1", 0, gpu_note="NVML is missing.", rack="", switch="")
    assert visible(gpu_views.node_html(seen(empty), N1, {}, NOW)) == [
        "n1",
        "no GPUs, online",
        "NVML is missing.",
    ]
    bare = node("n1", 0)
    assert visible(gpu_views.node_html(seen(bare), N1, {}, NOW))[-1] == "no GPUs"


def test_what_gpus_a_node_has() -> None:
    gpus = (gpu(0), gpu(1), gpu(2, name="A100", simulated=True), gpu(3, name="Simulated GPU", simulated=True))
    assert gpu_views.models_of(node("n1", gpus)) == "2 × H100 80GB, 1 × A100 (simulated), 1 × Simulated GPU"


@pytest.mark.parametrize(
    ("sort", "text", "found"),
    [
        ("name", "", ["a", "b", "c"]),
        ("free first", "", ["c", "a", "b"]),
        ("mine first", "", ["b", "a", "c"]),
        ("name", "rack2", ["b", "c"]),
        ("name", "RACK2 h100", ["b"]),
        ("name", "rack2 offline", []),
        ("name", "switch9", ["c"]),
        ("name", "online", ["a", "b", "c"]),
    ],
)
def test_the_order_of_nodes(sort: Any, text: str, found: list[str]) -> None:
    mine = gpu(0, job_id=MINE, user="me")
    world = seen(
        node("c", (gpu(0, name="A100"), gpu(1, name="A100")), rack="rack2", switch="switch9"),
        node("b", (mine, gpu(1, job_id=OTHERS, user="ann")), rack="rack2"),
        node("a", (gpu(0), gpu(1, user="me", state="outside")), rack="rack1"),
    )
    assert gpu_views.nodes_in_order(world, sort, text) == found


def test_walls_of_nodes() -> None:
    world = seen(node("n1", 12), node("n2", GPUS), node("n3", 0), node("n4", 99), jobs=JOBS)
    assert [gpu_views.lines_of(world, names) for names in ((), (N1,), (N2,), ("n3",), (N1, "n4"))] == [
        1,
        2,
        1,
        1,
        4,
    ]  # type: ignore[list-item]
    assert [gpu_views.row_height(lines) for lines in (1, 2, 4)] == [26, 46, 86]
    one = gpu_views.walls_html(world, (N1, NodeId("n3")))
    assert visible(one) == ["(n1: 12 free)", "no GPUs"]
    assert (one.count("<g "), one.count("<div"), "height:" in one) == (8, 2, False)
    two = gpu_views.walls_html(world, (N1, N2), 2)
    assert visible(two) == [
        "(n1: 12 free)",
        "(n2: 1 free, 1 mine, 2 others’, 1 outside, 2 unhealthy, 1 closed)",
    ]
    assert (two.count("<g "), two.count('style="height:46px"')) == (20, 2)


def test_counts_of_gpus() -> None:
    world = seen(node("n1", GPUS), node("n2", 2), node("n3", 2, state=NodeState.DRAINING))
    assert (world.free, world.all_gpus) == (3, 12)
    assert world.gpus(NodeId("none")) == ()


def test_whose_job_it_is_and_how_busy() -> None:
    both = (gpu(0, job_id=MINE, utilisation_percent=50.0), gpu(1, job_id=MINE, utilisation_percent=100.0))
    other = (gpu(0, job_id=MINE, utilisation_percent=None), gpu(1, job_id=OTHERS, utilisation_percent=1.0))
    mine = job(MINE, JobState.RUNNING, nodes=(N1, N2, N1))
    world = seen(node("n1", both), node("n2", other), jobs=(mine,))
    assert (world.busy(mine), world.is_mine(mine), world.may_change(mine)) == (75.0, True, True)
    stranger = replace(mine, user="ann", nodes=("n9",))
    assert (world.busy(stranger), world.is_mine(stranger), world.may_change(stranger)) == (None, False, False)
    assert seen(admin=True).may_change(stranger)
    assert (mean([]), mean([None]), mean([1.0, None, 2.0])) == (None, None, 1.5)


def test_why_and_when_as_the_mirror_knows_it() -> None:
    waits = job("WAIT0001", reason="Old.", expected_start_at=1.0)
    world = seen(jobs=(replace(waits, reason="New.", expected_start_at=2.0),))
    assert (world.reason(waits), world.expected(waits)) == ("New.", 2.0)
    runs = job("RUNS0001", JobState.RUNNING, reason="Old.", expected_start_at=1.0)
    world = seen(jobs=(runs,))
    assert (world.reason(runs), world.expected(runs), world.start(runs)) == ("Old.", 1.0, "")


def test_parts_of_one_gpu_stand_in_its_tile() -> None:
    gpus = (
        gpu(0, mig_parent="GPU-A"),
        gpu(1, mig_parent="GPU-A", job_id=MINE, user="me"),
        gpu(2, uuid=GpuUuid("GPU-B")),
    )
    world = seen(node("n1", gpus))
    first, second = world.wall(N1)
    assert [part.state for part in first.parts] == ["free", "mine"]
    assert (first.state, second.parts, second.state) == ("free", (), "free")
    plain = seen(node("n1", 3))
    assert plain.wall(N1) == plain.tiles(N1)
