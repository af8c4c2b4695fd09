"""What the panel shows, without widgets: order and words of rows, tiles, plots, the form's line, a job's log.
Hostile text stays text.
"""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.client.parser import Help
from mgpu_jupyter.client.queue_columns import COLUMNS
from mgpu_jupyter.client.queue_rows import Row
from mgpu_jupyter.client.words import moment, span
from mgpu_jupyter.model import explanations as api
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.notebook.panel import Wanted, gpu_views, job_views, read_line, rows, submit_views
from mgpu_jupyter.notebook.panel.explained import explained_html, first_line
from mgpu_jupyter.notebook.panel.form import Form, More
from mgpu_jupyter.notebook.panel.job_views import Log, log_html
from mgpu_jupyter.notebook.panel.panel import stale_html
from mgpu_jupyter.notebook.panel.seen import Seen
from mgpu_jupyter.notebook.panel.submit_tab import cell_button
from tests.notebook.panel_world import HOSTILE, NOW, FakeView, gpu, job, node


class Tags(HTMLParser):
    """Collects what a browser would make of a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def seen(
    *, nodes: list[models.Node] | None = None, jobs: list[models.Job] | None = None, **fields: object
) -> Seen:
    return Seen(FakeView(nodes or [], jobs or [], **fields), NOW)  # type: ignore[arg-type]


def check_harmless(text: str) -> Tags:
    found = Tags(text)
    assert "img" not in found.tags
    assert not [name for name in found.attributes if name.startswith("on")]
    return found


def test_rows_are_under_way_then_in_place_then_aside() -> None:
    told = seen(
        jobs=[
            job("HELD0001", reason_code="held"),
            job("SECOND01", place=2),
            job("FIRST001", place=1, user="user1"),
            job("LATER001", JobState.RUNNING, started_at=NOW - 5),
            job("EARLY001", JobState.RUNNING, started_at=NOW - 50),
            job("OVER0001", JobState.COMPLETED),
        ]
    )
    assert [row.key for row in rows.rows_of(told, mine=False, text="")] == [
        "EARLY001",
        "LATER001",
        "FIRST001",
        "SECOND01",
        "HELD0001",
    ]
    assert [row.key for row in rows.rows_of(told, mine=True, text="")] == [
        "EARLY001",
        "LATER001",
        "SECOND01",
        "HELD0001",
    ]
    assert [row.key for row in rows.rows_of(told, mine=False, text="User1 queued")] == ["FIRST001"]
    assert rows.rows_of(told, mine=False, text="user9") == []
    assert rows.nothing("user9") == "No job matches “user9”."


def cell(told: Seen, row: Row, name: str) -> str:
    (column,) = (column for column in COLUMNS if column.name == name)
    return column.words(row, told)


def test_waiting_jobs_of_an_array_are_one_row() -> None:
    told = seen(
        jobs=[
            job(f"ARRAY{number:03}", array_id="ARRAY000", array_index=number, place=5 - number, gpus=1)
            for number in range(1, 4)
        ]
    )
    (row,) = rows.rows_of(told, mine=False, text="")
    assert (row.key, row.count, row.place, cell(told, row, "size")) == ("ARRAY000", 3, 1, "3×1")


def test_the_words_of_a_row() -> None:
    busy = [gpu(0, job_id="RUN00001", user="me", state="held", utilisation_percent=80.0)]
    busy.append(gpu(1, job_id="RUN00001", user="me", state="held", utilisation_percent=98.0))
    runs = job("RUN00001", JobState.RUNNING, nodes=("gpu-01",), started_at=NOW - 42 * 60, gpus=2)
    waits = job(
        "WAIT0001",
        place=1,
        reason="Waits for 4 free H100 on each of 2 nodes.",
        expected_start_at=NOW + 60,
        nodes_wanted=2,
        gpus=8,
    )
    told = seen(
        nodes=[node("gpu-01", busy)],
        jobs=[runs, waits, job("HELD0001", reason_code="held"), job("PLAIN001", place=2)],
    )
    first, second, third, held = rows.rows_of(told, mine=False, text="")
    assert [cell(told, row, "when") for row in (first, second, third, held)] == [
        "42 m",
        f"≈ {moment(NOW + 60, NOW)}",
        "–",
        "held",
    ]
    assert [cell(told, row, "why") for row in (first, second, third, held)] == [
        "gpu-01; 89 % busy",
        "waits for 4 free H100 on each of 2 nodes",
        "it is the next to be looked at",
        "held; starts only when released",
    ]
    assert (cell(told, first, "size"), cell(told, second, "size")) == ("1×2", "2×4")
    assert [span(seconds) for seconds in (5, 65, 3 * 3600 + 240, 76 * 3600)] == [
        "5 s",
        "1 m",
        "3 h 04 m",
        "3 d 4 h",
    ]


def test_hostile_names_stay_text_everywhere() -> None:
    held = gpu(0, job_id="HOSTILE1", user=HOSTILE, state="held", name=HOSTILE, reason=HOSTILE)
    bad = models.NodeOrders(state=NodeState.DRAINING, reason=HOSTILE, by=HOSTILE, at=NOW)
    nodes = [
        node(
            "n1",
            [held, gpu(1, state="outside", reason=HOSTILE)],
            state=NodeState.DRAINING,
            orders=bad,
            rack=HOSTILE,
        )
    ]
    jobs = [
        job("HOSTILE1", JobState.RUNNING, name=HOSTILE, user=HOSTILE, nodes=("n1",)),
        job("HOSTILE2", reason=HOSTILE, name=HOSTILE),
    ]
    told = seen(nodes=nodes, jobs=jobs)
    for row in rows.rows_of(told, mine=False, text=""):
        found = check_harmless(rows.row_html(told, row, chosen=True))
        assert "<img" in found.text
    for text in (
        gpu_views.node_html(told, NodeId("n1"), {}, NOW),
        gpu_views.walls_html(told, [NodeId("n1")]),
        rows.nothing(HOSTILE),
        job_views.head_html(told, jobs[0]),
        job_views.head_html(told, jobs[1]),
        job_views.efficiency_html(4, 1.3, HOSTILE, HOSTILE),
        submit_views.magic_html(
            Form(
                name=HOSTILE, command=HOSTILE, code=HOSTILE, more=More(flags=HOSTILE, values={"env": HOSTILE})
            )
        ),
        submit_views.answer_html(None, HOSTILE, NOW, checking=False),
        submit_views.answer_html(
            api.Explanation(verdict="never", code="x", text=HOSTILE), "", NOW, checking=True
        ),
        cell_button(HOSTILE),
        explained_html(_answer(HOSTILE), NOW, HOSTILE),
        job_views.plots_html(
            [job_views.GpuLine(HOSTILE, 0, [NOW], [5.0], 5.0)], NOW, NOW + 5, 2.0, mine=True
        ),
    ):
        check_harmless(text)
    log = Log()
    log.feed(0, "stdout", (HOSTILE + "\n").encode())
    check_harmless(log_html(log, None, HOSTILE))
    view = FakeView(state="stale")
    view.problem = HOSTILE
    check_harmless(stale_html(view, NOW))


def _answer(text: str) -> api.Explanation:
    out = api.Excluded(check="gpus", text=text, never=True, count=9, nodes=(NodeId("n1"),))
    return api.Explanation(
        verdict="not_now",
        code="busy",
        text=text,
        expected=api.Forecast(at=NOW + 2280),
        ahead_count=1,
        ahead=(api.Ahead(job_id="AHEAD001", user=text, gpus=2),),  # type: ignore[arg-type]
        units=(api.UnitAnswer(first=0, count=1, needs=text, missing=1, would_do=0, excluded=(out,)),),
        terms=(api.Term(name=text, amount=1.0, points=2.0),),
        priority=2.0,
        offers=(api.Offer(text=text, flags=(text,), patch={"gpus": 1}),),
    )


def test_the_first_line_of_an_answer() -> None:
    at = moment(NOW + 2280, NOW)
    assert first_line(_answer("Because."), NOW) == f"Starts at about {at}, in 38 m 00 s."
    assert first_line(api.Explanation(verdict="never", code="", text="No."), NOW) == "Can never start here."
    now = api.Explanation(verdict="now", code="", text="", where=(api.Where(node=NodeId("n1"), gpus=(6, 7)),))
    assert first_line(now, NOW) == "Starts now on n1 (GPUs 6, 7)."
    assert first_line(api.Explanation(verdict="not_now", code="", text="x"), NOW) == "Start not known."
    assert "No small change starts it sooner." in explained_html(
        api.Explanation(verdict="not_now", code="", text="x"), NOW, "j"
    )


def test_offers_are_text_in_an_answer_unless_they_stand_below_it() -> None:
    told = _answer("Fewer GPUs.")
    offer = "<b>Fewer GPUs.</b>"
    assert [offer in explained_html(told, NOW, "j", as_text=shown) for shown in (True, False)] == [
        True,
        False,
    ]
    assert offer in explained_html(told, NOW, "j")


def test_a_log_is_read_as_people_see_it() -> None:
    log = Log()
    log.feed(0, "stdout", b"one\n\x1b[31mred\x1b[0m\n10%\r50%\r100%\npart")
    log.feed(0, "stdout", b"ial\n")
    for rank in range(3):
        log.feed(rank, "stdout", b"same\n")
    log.feed(1, "stdout", "unended ü".encode()[:-1])
    assert [(line.text, line.ranks) for line in log.shown(None)] == [
        ("one", [0]),
        ("red", [0]),
        ("100%", [0]),
        ("partial", [0]),
        ("same", [0, 1, 2]),
        ("unended ", [1]),
    ]
    assert [line.text for line in log.shown(2)] == ["same"]
    assert job_views.ranks_text([2, 0, 1]) == "0–2"
    assert job_views.count_text(log, None) == "last 6 of 7 lines"
    assert "No output yet." in log_html(Log(), None)
    for number in range(5_000):
        log.feed(0, "stdout", f"line {number}\n".encode())
    assert (len(log.shown(0)), log.lines.maxlen) == (200, 400)
    assert len(job_views.plain("x" * 10_000)) == 2_001


def test_the_timeline_has_a_part_for_each_time() -> None:
    place = models.Placement(node=NodeId("n"), rank=0, gpus=(), gpu_indices=(), started_at=NOW - 83)
    over = job(
        "OVER0001",
        JobState.COMPLETED,
        placements=(place,),
        started_at=NOW - 88,
        ended_at=NOW,
        exit_code=0,
        nodes=("gpu-03",),
    )
    text = Tags(job_views.timeline_html(over, NOW)).text
    assert text.startswith("queued 12 sstarting 5.0 sran 1 m 23 s")
    runs = job("RUNS0001", JobState.RUNNING, time_limit_s=600.0)
    assert "left 8 m 30 s" in job_views.timeline_html(runs, NOW)
    assert Tags(job_views.timeline_html(job("WAIT0001"), NOW)).text.startswith("queued 1 m 40 s")
    assert job_views.state_line(seen(jobs=[over]), over) == "completed, exit 0, gpu-03, 4 GPUs, 1 m 28 s"


def test_efficiency_in_words() -> None:
    assert "asked <b>4</b>, used <b>1.3</b>" in job_views.efficiency_html(
        4, 1.3, "GPUs 2 and 3 were idle. --gpus 2 would have done.", ""
    )
    assert "<code>--gpus 2</code> would have done" in job_views.efficiency_html(
        4, 1.3, "GPUs 2 and 3 were idle. --gpus 2 would have done.", ""
    )
    assert "used <b>not known yet</b>" in job_views.efficiency_html(4, None, "", "")
    assert "no GPU" in job_views.efficiency_html(0, None, "", "")


def test_the_line_of_the_magic() -> None:
    assert read_line("") == Wanted("queue", "")
    assert read_line("GPUs") == Wanted("gpus", "")
    assert read_line("job 7qx1cv4n") == Wanted("job", "7QX1CV4N")
    assert isinstance(read_line("--help"), Help)
    with pytest.raises(InvalidRequest, match="There is no tab 'cluster'"):
        read_line("cluster")
    with pytest.raises(InvalidRequest, match="as in `%mgpu_panel job 7QX1CV4N`"):
        read_line("gpus 7QX1CV4N")


def test_stale_is_said() -> None:
    view = FakeView(state="stale")
    view.stale_since, view.retry_at = NOW - 42, NOW + 8
    assert "Running jobs go on. Trying again in 8 s." in stale_html(view, NOW)
    assert "Connecting…" in stale_html(FakeView(state="connecting"), NOW)
