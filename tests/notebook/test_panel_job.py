"""A job in the panel, as a person reads it: its state, times, log and GPUs."""

from __future__ import annotations

import time

import pytest

from mgpu_jupyter.api import models
from mgpu_jupyter.client.words import moment
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.panel import job_views
from mgpu_jupyter.notebook.panel.job_views import GpuLine, Log
from tests.notebook.panel_world import NOW, job
from tests.notebook.test_panel_words import MINE, N1, N2, seen
from tests.notebook.visible import visible


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (job(MINE, place=2, reason="Waits for 4 GPUs."), "2nd in queue, waits for 4 GPUs"),
        (job(MINE), "waits"),
        (job(MINE, JobState.RUNNING, nodes=(N2, N1, N1)), "running, n1, n2, 4 GPUs, 1 m"),
        (job(MINE, JobState.STARTING, nodes=(N1,), started_at=None), "starting, n1, 4 GPUs"),
        (
            job(MINE, JobState.COMPLETED, nodes=(N1,), ended_at=NOW - 50, exit_code=0),
            "completed, exit 0, n1, 4 GPUs, 40 s",
        ),
        (
            job(MINE, JobState.COMPLETED, nodes=(N1,), ended_at=NOW, started_at=None, exit_code=2),
            "completed, exit 2, n1, 4 GPUs, 0 ms",
        ),
        (job(MINE, JobState.CANCELLED, started_at=None), "cancelled before it started"),
    ],
)
def test_the_state_of_a_job(one: models.Job, words: str) -> None:
    world = seen(jobs=(one,))
    assert job_views.state_line(world, one) == words
    sign = "queued" if one.state is JobState.QUEUED else one.state.value
    assert visible(job_views.head_html(world, one)) == [f"({sign})", "job-MINE0001", MINE, words]


def test_the_head_of_a_job() -> None:
    def tone(one: models.Job, user: str = "me") -> str:
        page = job_views.head_html(seen(jobs=(one,), user=user), one)
        return page.partition('"mgpu-glyph ')[2].partition('"')[0]

    runs = job(MINE, JobState.RUNNING)
    assert [tone(runs), tone(runs, "ann"), tone(job(MINE)), tone(job(MINE, JobState.FAILED))] == [
        *("mine", "", "", "bad")
    ]
    held = job(MINE, reason_code="held", name="x" * 61)
    assert visible(job_views.head_html(seen(jobs=(held,)), held))[:2] == ["(held)", "x" * 60]


def a_place(started_at: float | None) -> models.Placement:
    return models.Placement(node=N1, rank=0, gpus=(), gpu_indices=(), started_at=started_at)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (job(MINE), ["queued 1 m 40 s", f"since {moment(NOW - 100, NOW)}"]),
        (
            job(MINE, JobState.RUNNING, placements=(a_place(NOW - 60), a_place(NOW - 80))),
            ["queued 10 s", "starting 30 s", "running 1 m 00 s", f"since {moment(NOW - 100, NOW)}"],
        ),
        (
            job(MINE, JobState.RUNNING, placements=(a_place(NOW - 89.96),), time_limit_s=100.0),
            ["queued 10 s", "running 1 m 30 s", "left 10 s", f"since {moment(NOW - 100, NOW)}"],
        ),
        (
            job(MINE, JobState.STARTING, placements=(a_place(None),)),
            ["queued 10 s", "starting 1 m 30 s", f"since {moment(NOW - 100, NOW)}"],
        ),
        (
            job(MINE, JobState.RUNNING, time_limit_s=80.0),
            ["queued 10 s", "running 1 m 30 s", "left 0 ms", f"since {moment(NOW - 100, NOW)}"],
        ),
        (
            job(MINE, JobState.COMPLETED, ended_at=NOW - 50, time_limit_s=1000.0),
            ["queued 10 s", "ran 40 s", time.strftime("%H:%M:%S", time.localtime(NOW - 50))],
        ),
        (
            job(MINE, JobState.CANCELLED, started_at=None, ended_at=NOW - 50),
            ["queued 50 s", time.strftime("%H:%M:%S", time.localtime(NOW - 50))],
        ),
    ],
)
def test_a_timeline(one: models.Job, words: list[str]) -> None:
    page = job_views.timeline_html(one, NOW)
    assert visible(page) == words
    assert page.partition('aria-label="')[2].partition('"')[0] == ", ".join(words[:-1])


def test_parts_of_a_timeline_are_as_wide_as_their_time() -> None:
    page = job_views.timeline_html(job(MINE, JobState.RUNNING, time_limit_s=190.0), NOW)
    assert [part.partition('"></i>')[0] for part in page.split('<div style="flex:')[1:]] == [
        '0.070 0 auto"><i class="qu',
        '0.470 0 auto"><i class="live',
        '0.520 0 auto"><i class="le',
    ]
    over = job_views.timeline_html(job(MINE, JobState.COMPLETED, ended_at=NOW), NOW)
    assert 'class="ru"' in over
    empty = job_views.timeline_html(job(MINE, submitted_at=NOW), NOW)
    assert "flex:0.020 0 auto" in empty


def test_a_log_by_rank() -> None:
    log = Log()
    assert visible(job_views.log_html(log, None)) == ["No output yet."]
    assert visible(job_views.log_html(log, None, "It waits.")) == ["It waits."]
    for rank in range(3):
        log.feed(rank, "stdout", b"ready\n")
    log.feed(0, "stdout", b"ready\n\x1b[31m10%\r20%\r\nhal")
    log.feed(0, "stderr", b"err\n")
    log.feed(0, "stdout", b"f")
    rows = ["0–2", "ready", "0", "ready", "0", "20%", "0", "err", "0", "half"]
    assert visible(job_views.log_html(log, None)) == rows
    assert visible(job_views.log_html(log, None, "A note.")) == [*rows, "A note."]
    assert visible(job_views.log_html(log, 2)) == ["0–2", "ready"]
    assert job_views.count_text(log, None) == "last 5 of 6 lines"
    assert job_views.count_text(log, 0) == "last 5 lines"
    assert job_views.count_text(Log(whole=False), None) == "last 0 lines"


def test_a_log_is_bounded() -> None:
    log = Log()
    log.feed(0, "stdout", b"".join(b"%d\n" % number for number in range(401)))
    shown = [line.text for line in log.shown(None)]
    assert (shown[0], shown[-1], len(shown)) == ("201", "400", 200)
    assert (len(log.lines), log.count) == (400, 401)
    assert job_views.count_text(log, None) == "last 200 of 401 lines"
    assert job_views.plain("x" * 2000) == "x" * 2000
    assert job_views.plain("x" * 2001) == "x" * 2000 + "…"
    assert job_views.plain("a\x1b]0;title\x07b\x1b[0m\x1bM\r") == "ab"


def test_efficiency() -> None:
    assert visible(job_views.efficiency_html(0, None, "", "")) == ["It asked for no GPU."]
    assert visible(job_views.efficiency_html(4, None, "", "")) == ["asked", "4", ", used", "not known yet"]
    page = job_views.efficiency_html(4, 1.26, "Use --gpus 2 <b>.", "Readings are missing.")
    assert visible(page) == [
        *("asked", "4", ", used", "1.3", "Use", "--gpus 2", "<b>.", "Readings are missing.")
    ]


def test_plots_of_gpus() -> None:
    gpus = (
        GpuLine("n1 0", 0, (NOW,), (80.0,), 79.6),
        GpuLine("n1 1", None, (), (), 20.0, idle=True),
        GpuLine("n1 2", 2, (), (), None),
    )
    page = job_views.plots_html(gpus, NOW - 10, NOW, 2.0, mine=True)
    labels = [word for word in visible(page) if word.startswith("(")]
    assert labels == [
        "(n1 0 busy, mean 80 percent)",
        "(n1 1 busy, mean 20 percent)",
        "(n1 2 busy, mean not known)",
    ]
    assert page.count('class="right top"') == 1
    assert [word for word in visible(page) if word.endswith(" %")] == ["80 %", "20 %"]
