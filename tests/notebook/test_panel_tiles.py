"""Tiles, plots and nodes of the panel, as HTML and words."""

from __future__ import annotations

import re

import msgspec

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.client.words import moment
from mgpu_jupyter.model import explanations as api
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.notebook.panel import gpu_views
from mgpu_jupyter.notebook.panel.explained import explained_html, first_line
from mgpu_jupyter.notebook.panel.marks import Tile, esc, middle, plot, tile, wall
from mgpu_jupyter.notebook.panel.track import Track
from tests.notebook.panel_world import NOW, gpu, node
from tests.notebook.test_panel_views import Tags, seen


def test_an_answer_says_where_and_what_happens_until_then() -> None:
    plan = (
        api.Planned(
            job_id=JobId("WAIT0001"),
            nodes=(NodeId("gpu-03"), NodeId("gpu-04")),
            start_at=NOW + 60,
            end_at=NOW + 90,
        ),
        api.Planned(job_id=JobId("RUNS0001"), nodes=(NodeId("gpu-03"),), end_at=NOW + 60),
        api.Planned(job_id=JobId("NEXT0001"), nodes=(NodeId("gpu-04"),), start_at=NOW + 30),
    )
    ahead = (api.Ahead(job_id=JobId("NEXT0001"), user="user1", gpus=32, priority=1.5),)
    told = api.Explanation(
        verdict="not_now",
        code="",
        text="",
        job_id=JobId("WAIT0001"),
        expected=api.Forecast(at=NOW + 60),
        plan=plan,
        ahead=ahead,
        ahead_count=1,
    )
    at, soon = moment(NOW + 60, NOW), moment(NOW + 30, NOW)
    assert first_line(told, NOW) == f"Starts at about {at}, in 1 m 00 s, on gpu-03 and gpu-04."
    text = Tags(explained_html(told, NOW, "x", title_of=lambda one: f"name of {one}")).text
    assert (
        f"What happens until thenname of RUNS0001gpu-03until {at}name of NEXT0001gpu-04from ≈ {soon} "
        f"without an end" in text
    )
    assert "Ahead in the queue 1 job, with their priorityname of NEXT0001user132 GPUs1.50" in text


def test_each_state_has_its_own_tile() -> None:
    told = seen()
    online, draining = node("a"), node("b", state=NodeState.DRAINING)
    cases = {
        "free": (online, gpu(0)),
        "mine": (online, gpu(0, job_id="J", user="me", state="held")),
        "others": (online, gpu(0, job_id="J", user="user1", state="held")),
        "outside": (online, gpu(0, state="outside")),
        "unhealthy": (online, gpu(0, state="unhealthy")),
        "closed": (draining, gpu(0)),
    }
    assert {name: told.tile(*case).state for name, case in cases.items()} == {name: name for name in cases}
    assert told.tile(draining, gpu(0, job_id="J", user="me", state="held")).state == "mine"
    assert told.tile(online, gpu(0, state="settling")).state == "closed"
    levels = [told.tile(online, gpu(0, memory_used_bytes=used)).memory for used in (None, 0, 40 * 10**9)]
    assert levels == [None, 0.0, 0.5]
    assert len({re.sub(r'class="mgpu-t \w+"', "", tile(told.tile(*case))) for case in cases.values()}) >= 3


def test_levels_are_whole_pixels_and_idle_still_shows_its_owner() -> None:
    assert 'class="l"' not in tile(Tile("mine", 0.0))
    assert '<rect class="l" x="1" y="8" width="12" height="7"/>' in tile(Tile("mine", 50.0))
    assert 'height="14"' in tile(Tile("others", 250.0))
    assert '<rect class="u" x="0" y="17" width="7" height="2"/>' in tile(Tile("free", memory=0.5))
    assert 'class="mgpu-t free sim"' in tile(Tile("free", simulated=True))
    assert 'class="mgpu-t free pick"' in tile(Tile("free", picked=True))
    assert 'height="40"' in wall([Tile("free")] * 9, "nine")


def test_a_plot_has_one_point_a_pixel_and_gaps_stay_gaps() -> None:
    times = [NOW + number for number in range(600)]
    drawn = plot(times, [50.0] * 600, span=(NOW, NOW + 600), label="x", mine=True)
    assert drawn.count("L") < 2 * 110
    assert drawn.count('class="n"') == 1
    gap = plot(
        [NOW, NOW + 2, NOW + 300, NOW + 302],
        [1.0, 2.0, 3.0, 4.0],
        span=(NOW, NOW + 600),
        label="x",
        mine=True,
    )
    assert gap.count('class="n"') == 2
    steps = {
        step: plot([NOW, NOW + step], [1.0, 2.0], span=(NOW, NOW + 7), label="x", mine=True).count(
            'class="n"'
        )
        for step in (6, 7, 8)
    }
    assert steps == {6: 1, 7: 2, 8: 1}, (
        "three readings of two seconds may be missing; what is past the end is not drawn"
    )
    assert plot([], [], span=(NOW, NOW + 1), label="none", mine=False).count('class="n"') == 0
    assert plot([NOW], [None], span=(NOW, NOW + 1), label="none", mine=False).count('class="n"') == 0


def test_a_track_is_bounded() -> None:
    track: Track[int] = Track(600.0)
    for second in range(2_000):
        track.add(0, NOW + second, 1.0)
    times, values = track.lines[0]
    assert len(times) == len(values) < 700
    assert times[-1] == NOW + 1_999
    track.add(0, NOW + 1_999.5, 5.0)
    assert track.lines[0][0][-1] == NOW + 1_999
    whole: Track[int] = Track(None, most=100)
    for second in range(1_000):
        whole.add(0, NOW + second, 1.0)
    assert len(whole.lines[0][0]) <= 100
    assert whole.lines[0][0][0] == NOW


def test_names_are_cut_in_the_middle_and_unseen_characters_are_shown_as_such() -> None:
    assert middle("train-llama-7b-lora-v17", 11) == "train-l…v17"
    assert middle("short", 11) == "short"
    assert esc("a\x1b[0m<b>\u202e") == "a\ufffd[0m&lt;b&gt;\ufffd"


def test_nodes_are_found_and_sorted() -> None:
    full = [gpu(index, job_id="J", user="me", state="held") for index in range(8)]
    told = seen(nodes=[node("b"), node("a", full), node("c", 4, state=NodeState.OFFLINE)])
    assert gpu_views.nodes_in_order(told, "name", "") == ["a", "b", "c"]
    assert gpu_views.nodes_in_order(told, "free first", "") == ["b", "a", "c"]
    assert gpu_views.nodes_in_order(told, "mine first", "h100") == ["a", "b", "c"]
    assert gpu_views.nodes_in_order(told, "name", "offline") == ["c"]
    assert (told.free, told.all_gpus) == (8, 20)
    assert gpu_views.said(told.tiles(NodeId("a"))) == "8 mine"


def test_a_node_in_words() -> None:
    told = seen(
        nodes=[
            node(
                "gpu-02",
                [gpu(0, utilisation_percent=92.0, memory_used_bytes=56_800_000_000, temperature_c=63.0)],
            )
        ]
    )
    text = Tags(gpu_views.node_html(told, NodeId("gpu-02"), {0: ([NOW - 5], [92.0])}, NOW - 600)).text
    assert "gpu-02 \xa01 × H100 80GB, rack A, switch 1, online" in text
    assert "92 %52.9 GiB63 °Cfree" in text
    assert "no GPUs" in gpu_views.walls_html(seen(nodes=[node("x", 0)]), [NodeId("x")])
    states = [NodeState.OFFLINE, NodeState.UNHEALTHY, NodeState.SUSPECT, NodeState.MAINTENANCE]
    said = [Tags(gpu_views.note(told, node("x", state=state))).text.strip() for state in states]
    assert said == [f"offline since {moment(NOW, NOW)}", "unhealthy", "not heard for 0 s", "maintenance"]


def test_mig_instances_are_fields_of_one_tile_and_many_gpus_have_more_lines() -> None:
    parts = [gpu(1000 + number, uuid=f"MIG-{number}", mig_parent="GPU-0") for number in range(2)]
    parts[0] = msgspec.structs.replace(
        parts[0], job_id="J", user="me", state="held", utilisation_percent=50.0
    )
    told = seen(nodes=[node("m", [*parts, gpu(1)]), node("w", 16)])
    first, second = told.wall(NodeId("m"))
    assert ([part.state for part in first.parts], second.parts) == (["mine", "free"], ())
    drawn = gpu_views.walls_html(told, [NodeId("m")])
    assert drawn.count('class="mgpu-t') == 3
    assert 'aria-label="m: 2 free, 1 mine"' in drawn
    assert [gpu_views.lines_of(told, [NodeId(name)]) for name in ("m", "w")] == [1, 2]
    assert gpu_views.walls_html(told, [NodeId("w")], 2).count('class="mgpu-t') == 16
    assert "height:46px" in gpu_views.walls_html(told, [NodeId("m")], 2)
