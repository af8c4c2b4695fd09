"""What a cell says above and below a job's output, as a person reads it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api.histories import GpuUsage, JobUsage
from mgpu_jupyter.model.explanations import (
    Offer,
    Where,
)
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook import actions
from mgpu_jupyter.notebook.errors import interruption, rendered, shorten
from mgpu_jupyter.notebook.header import done_html, html_of
from mgpu_jupyter.notebook.header_text import (
    Facts,
    Load,
    Waits,
    clock,
    in_time,
    node_names,
    place_text,
    places,
    ranges,
    readiness,
    shortened,
    small,
    stopwatch,
    text_of,
)
from mgpu_jupyter.notebook.header_updates import memory_hint
from tests.notebook.test_header import NOW, a_job
from tests.notebook.visible import visible

WAITS = a_job(JobState.QUEUED)
LATER = NOW + 2280


# --- the header -----------------------------------------------------------------------------------------


def words(
    state: JobState, nodes: int = 2, gpus: int = 4, *, facts: dict[str, Any] | None = None, **job: Any
) -> list[str]:
    """Return the header of a job, without what it is called."""
    page = html_of(Facts(job=replace(a_job(state, nodes, gpus), **job), now=NOW, **(facts or {})))
    return [text for text in visible(page) if text not in ("train-7b", "K7P2M9QX")]


@pytest.mark.parametrize(
    ("waits", "told"),
    [
        (Waits(), ["Waiting", "Stop cancels", "Looks for a place."]),
        (Waits(place=2, reason="Busy."), ["Waiting", "2nd in the queue", "Stop cancels", "Busy."]),
        (
            Waits(place=2, of=6, expected_at=LATER),
            [
                *("Waiting", "2nd of 6 in the queue", "starts ≈", clock(LATER), "in 38 min"),
                *("Stop cancels", "Looks for a place."),
            ],
        ),
    ],
)
def test_a_job_that_waits(waits: Waits, told: list[str]) -> None:
    assert words(JobState.QUEUED, facts={"waits": waits}) == told


def test_offers_and_reasons_of_a_job_that_waits() -> None:
    offer = Offer(text="1 GPU", flags=("--gpus", "1"), patch={}, where=(Where(node=NodeId("n1"), gpus=(0,)),))
    bare = Offer(text="2 GPUs", flags=("--gpus", "2"), patch={})
    facts = {"offers": (offer, bare, offer), "explained": ("One.", "Two."), "trouble": "Lost.", "stop": ""}
    told = words(JobState.QUEUED, facts=facts)
    assert told[:4] == ["Waiting", "Looks for a place.", "One.", "Two."]
    assert told[4] == "Start now instead:"
    assert told[5].startswith("1 GPU on n1")
    assert told[6:] == ["--gpus 1", "2 GPUs", "--gpus 2", "Lost."]


def signs(facts: Facts) -> tuple[str, str]:
    """Return the glyph and the kind of a header."""
    page = html_of(facts)
    return page.partition("mgpu-g mgpu-g-")[2].partition('"')[0], page.partition("mgpu-head mgpu-")[
        2
    ].partition('"')[0]


def test_signs_and_room_for_buttons() -> None:
    held = replace(WAITS, reason_code="held")
    assert signs(Facts(job=held, now=NOW)) == ("held", "waiting")
    for state, found in (
        (JobState.QUEUED, ("queued", "waiting")),
        (JobState.STARTING, ("starting", "starting")),
        (JobState.RUNNING, ("running", "running")),
        (JobState.STOPPING, ("stopping", "stopping")),
        (JobState.CANCELLED, ("cancelled", "over")),
        (JobState.TIMEOUT, ("timeout", "over")),
    ):
        assert signs(Facts(job=a_job(state), now=NOW)) == found
    assert signs(Facts(job=a_job(JobState.RUNNING), now=NOW, cancelling=True)) == ("stopping", "stopping")
    for state, cancelling, lab in (
        (JobState.QUEUED, False, 2),
        (JobState.STARTING, False, 1),
        (JobState.RUNNING, False, 2),
        (JobState.RUNNING, True, 1),
        (JobState.STOPPING, False, 1),
    ):
        page = html_of(Facts(job=a_job(state), now=NOW, widgets=3, cancelling=cancelling))
        rooms = [
            part.partition('"')[0] for part in page.partition("</style>")[2].split("mgpu-room mgpu-room-")[1:]
        ]
        assert rooms == [str(lab), "3"]


GPUS = "8 GPUs on 2 nodes"


def test_a_job_that_runs() -> None:
    told = ["Running", "gpu-01 ×4, gpu-02 ×4", "00:42:17", "of 03:00:00", "Stop cancels"]
    ranks = ["Ranks", "0", "1"]
    assert words(JobState.RUNNING) == [*told, GPUS, "GPU", "Memory", *ranks]
    load = Load(busy=(80.0, 89.4, None))
    assert words(JobState.RUNNING, facts={"load": load}) == [
        *(*told, GPUS, "GPU", "(89 %)", "89 %", "Memory"),
        *ranks,
    ]
    assert words(JobState.RUNNING, 1, 0, time_limit_s=None) == [
        *("Running", "gpu-01", "00:42:17", "Stop cancels", "no GPU")
    ]
    assert words(JobState.RUNNING, 1, 1)[-3:] == ["1 GPU on 1 node", "GPU", "Memory"]
    assert words(JobState.RUNNING, started_at=None)[2] == "00:00:00"
    assert words(JobState.RUNNING, 17)[-1] == "Ranks 0–16"
    assert words(JobState.RUNNING, 16)[-1] == "15"


def test_ranks_that_ended() -> None:
    job = a_job(JobState.RUNNING, 4)
    ends: tuple[dict[str, Any], ...] = (
        {},
        {"ended_at": NOW},
        {"ended_at": NOW, "exit_code": 1},
        {"ended_at": NOW, "signal": 9},
    )
    ranks = tuple(replace(one, **end) for one, end in zip(job.placements, ends, strict=True))
    page = html_of(Facts(job=replace(job, placements=ranks[::-1]), now=NOW)).partition("</style>")[2]
    chips = [part.partition("</span>")[0] for part in page.split('<span class="mgpu-chip')[1:]]
    assert chips == [
        '" title="gpu-01">0',
        ' mgpu-ended" title="gpu-02">1',
        ' mgpu-bad" title="gpu-03">2',
        ' mgpu-bad" title="gpu-04">3',
    ]


def test_a_job_that_starts_and_one_that_stops() -> None:
    assert words(JobState.STARTING, reason="Fetches files.")[:4] == [
        *("Starting", "gpu-01 ×4, gpu-02 ×4, fetches files", "42 m 17 s", "Stop cancels")
    ]
    fresh = replace(a_job(JobState.STARTING), started_at=NOW - 5, placements=())
    assert "5.0 s" in visible(html_of(Facts(job=fresh, now=NOW)))
    assert words(JobState.STOPPING, reason="Its limit is over.")[:3] == [
        *("Stopping", "gpu-01 ×4, gpu-02 ×4 · Its limit is over", "Stop cancels")
    ]
    at = NOW + 10
    killed = f"killed at {time.strftime('%H:%M:%S', time.localtime(at))} if it does not end"
    assert words(JobState.STOPPING, kill_at=at)[:3] == ["Stopping", killed, "in 10 s"]
    assert words(JobState.STOPPING, kill_at=NOW - 1)[2] == "now"
    stopping = replace(a_job(JobState.STOPPING), kill_at=at)
    assert (
        text_of(Facts(job=stopping, now=NOW)) == f"mgpu K7P2M9QX stopping on gpu-01 ×4, gpu-02 ×4; {killed}"
    )


def test_jobs_that_are_over() -> None:
    log = "Full log"
    assert words(JobState.CANCELLED) == ["Cancelled", "gpu-01, gpu-02", "after 42 m 17 s", log]
    assert words(JobState.CANCELLED, started_at=None) == ["Cancelled", "before it started", log]
    assert words(JobState.TIMEOUT) == ["Time limit", "3 h 00 m reached", "after 42 m 17 s", log]
    again = words(JobState.TIMEOUT, time_limit_s=None, facts={"run_again": actions.RUN_CELL})
    assert again == ["Time limit", "0 ms reached", "after 42 m 17 s", log, "Run again"]
    assert words(JobState.COMPLETED) == []


def test_the_line_of_a_job_that_completed() -> None:
    job = a_job(JobState.COMPLETED)
    assert visible(done_html(job, ("asked 8 <b>",))) == [
        *("Done in", "42 m 17 s", "on gpu-01, gpu-02, 8 GPUs, exit 0", "·", "asked 8 <b>", "·"),
        *("train-7b", "train-7b", "·", "K7P2M9QX"),
    ]
    bare = replace(job, name="", nodes=(), exit_code=None, placements=())
    assert visible(done_html(bare)) == [
        "Done in",
        "42 m 17 s",
        ", 8 GPUs, exit 0",
        "·",
        "K7P2M9QX",
        "K7P2M9QX",
    ]
    simulated = replace(job, placements=(replace(job.placements[0], simulated=True),))
    assert "on gpu-01, gpu-02, 8 simulated GPUs, exit 0" in visible(done_html(simulated))


def button(page: str) -> list[tuple[str, str, str]]:
    """Return what buttons do, with what, and where they are seen."""
    return [
        (
            part.partition('data-commandlinker-command="')[2].partition('"')[0],
            part.partition('data-commandlinker-args="')[2].partition('"')[0].replace("&quot;", "'"),
            part.partition('title="')[2].partition('"')[0],
        )
        for part in page.split("<button ")[1:]
    ]


def test_what_buttons_do() -> None:
    of_job = "{'id': 'K7P2M9QX'}"
    why = ("mgpu:explain-job", of_job, "Why train-7b waits, and what would start it sooner")
    cancel = ("mgpu:cancel-job", of_job, "Cancel train-7b")
    opened = ("mgpu:open-job", of_job, "Open train-7b beside the notebook")
    log = ("mgpu:open-job", "{'id': 'K7P2M9QX', 'tab': 'log'}", "All that it printed")

    def live(state: JobState, *, cancelling: bool = False, **job: Any) -> list[tuple[str, str, str]]:
        return button(actions.live_html(replace(a_job(state), **job), cancelling=cancelling))

    assert live(JobState.QUEUED) == [why, cancel]
    assert live(JobState.STARTING) == [cancel]
    assert live(JobState.RUNNING) == [opened, cancel]
    assert live(JobState.RUNNING, cancelling=True) == live(JobState.STOPPING) == [opened]
    assert actions.live_html(a_job(JobState.FAILED)) == ""
    assert live(JobState.STARTING, name="")[0][2] == "Cancel K7P2M9QX"
    job = a_job(JobState.CANCELLED)
    assert button(actions.over(job, "")) == [log]
    assert button(actions.over(job, actions.RUN_CELL)) == [
        log,
        (actions.RUN_CELL, "{}", "Run this cell again"),
    ]
    assert button(actions.over(job, actions.RUN_JOB)) == [
        log,
        (actions.RUN_JOB, of_job, "Submit the job once more"),
    ]
    assert " mgpu-jupyter" in actions.over(job, actions.RUN_CELL).split("<button ")[2]
    assert " mgpu-lab" in actions.over(job, actions.RUN_JOB).split("<button ")[2]


# --- words ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "00:00:00"),
        (59.9, "00:00:59"),
        (3661, "01:01:01"),
        (86_399, "23:59:59"),
        (86_400, "1-00:00:00"),
        (180_061, "2-02:01:01"),
    ],
)
def test_a_stopwatch(seconds: float, text: str) -> None:
    assert stopwatch(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "any moment"),
        (0.6, "in 1 s"),
        (89, "in 89 s"),
        (90, "in 2 min"),
        (3569, "in 59 min"),
        (3600, "in 1 h 00 min"),
        (7500, "in 2 h 05 min"),
    ],
)
def test_in_what_time(seconds: float, text: str) -> None:
    assert in_time(seconds) == text
    assert in_time(-1, "now") == "now"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("Waits for 2 GPUs.", "waits for 2 GPUs"),
        ("GPU 0 is hot. ", "GPU 0 is hot"),
        ("A job.", "a job"),
        ("X", "X"),
        ("", ""),
    ],
)
def test_a_reason_in_a_sentence(reason: str, text: str) -> None:
    assert small(reason) == text


def test_small_words() -> None:
    assert place_text(Waits(place=2)) == "2nd in queue"
    assert place_text(Waits(place=2, of=6)) == "2nd of 6"
    assert ranges([0, 1, 2, 4]) == "0–2, 4"
    assert shortened("x" * 40) == "x" * 40
    assert shortened("a" * 21 + "b" * 20) == "a" * 19 + "…" + "b" * 20
    assert clock(NOW - 86_400 * 3) == time.strftime("%d %b %H:%M", time.localtime(NOW - 86_400 * 3))
    assert [node_names(a_job(JobState.RUNNING, count)) for count in (1, 4, 5)] == [
        "gpu-01",
        "gpu-01, gpu-02, gpu-03, gpu-04",
        "gpu-01, gpu-02, gpu-03 and 2 more",
    ]
    assert places(a_job(JobState.RUNNING, 4)) == "gpu-01 ×4, gpu-02 ×4, gpu-03 ×4, gpu-04 ×4"
    assert places(a_job(JobState.RUNNING, 5)) == "gpu-01 ×4, gpu-02 ×4, gpu-03 ×4 and 2 more"


def test_gpus_of_a_node_are_counted_once() -> None:
    job = a_job(JobState.RUNNING, 1)
    twice = (job.placements[0], replace(job.placements[0], rank=1, local_rank=1))
    assert places(replace(job, placements=twice)) == "gpu-01 ×4"
    assert places(replace(job, placements=())) == "gpu-01"


def test_how_far_nodes_are() -> None:
    def told(*steps: str) -> str:
        job = a_job(JobState.STARTING, len(steps))
        placed = (replace(one, step=step) for one, step in zip(job.placements, steps, strict=True))
        return readiness(replace(job, placements=tuple(placed)))

    assert told("", "") == "gpu-01 ×4, gpu-02 ×4"
    assert told(*[""] * 5) == "gpu-01 ×4, gpu-02 ×4, gpu-03 ×4 and 2 more"
    assert told("ready", "ready") == "gpu-01 ×4, gpu-02 ×4 ready"
    assert told("ready", "") == "gpu-01 ×4 ready, gpu-02 ×4"
    assert told("asked", "launching") == "gpu-01 ×4 being asked, gpu-02 ×4 launching"
    assert told(*["ready"] * 4, "started") == "4 nodes ready, 1 node started"
    assert told(*["ready"] * 3, "started") == "gpu-01 ×4, gpu-02 ×4, gpu-03 ×4 ready, gpu-04 ×4 started"
    job = a_job(JobState.STARTING, 1)
    slow = (replace(job.placements[0], step="started"), replace(job.placements[0], rank=1, step="ready"))
    assert readiness(replace(job, placements=slow)).endswith(" ready")


def test_lines_of_text() -> None:
    assert text_of(Facts(job=WAITS, now=NOW)) == "mgpu K7P2M9QX waiting"
    told = Waits(place=1, expected_at=LATER, reason="Busy.")
    line = f"mgpu K7P2M9QX waiting, 1st in queue, starts about {clock(LATER)}: busy"
    assert text_of(Facts(job=WAITS, now=NOW, waits=told)) == line
    bare = replace(a_job(JobState.STARTING), nodes=())
    assert text_of(Facts(job=bare, now=NOW)) == "mgpu K7P2M9QX starting"
    assert text_of(Facts(job=replace(bare, state=JobState.RUNNING), now=NOW)) == "mgpu K7P2M9QX running"
    over = a_job(JobState.CANCELLED)
    assert text_of(Facts(job=over, now=NOW)) == "Cancelled after 42 m 17 s on gpu-01, gpu-02 · K7P2M9QX"


def test_interrupts_are_one_sentence() -> None:
    cancelled = interruption(a_job(JobState.CANCELLED))
    assert str(cancelled) == "Cancelled by you after 42 m 17 s on gpu-01, gpu-02 · K7P2M9QX"
    assert cancelled.__dict__["_render_traceback_"]() == [f"KeyboardInterrupt: {cancelled}"]
    assert str(interruption(a_job(JobState.COMPLETED))) == (
        "The job was completed when you interrupted · K7P2M9QX"
    )
    assert [rendered(ValueError("x")), rendered(ValueError("x"), "why")] == [
        ["ValueError: x"],
        ["ValueError: why"],
    ]
    error = ValueError("x")
    assert shorten(error) is error


@pytest.mark.parametrize(
    ("gpus", "rank", "hint"),
    [
        ([], 0, ""),
        ([(1000, 899, 0)], 0, ""),
        (
            [(1000, 900, 0), (1000, 950, 1)],
            0,
            "A GPU of rank 0 was at 90 % of its memory. Try a smaller batch, or more GPUs.",
        ),
        (
            [(1000, 900, 1), (1000, 1100, None)],
            1,
            "A GPU of rank 1 was at 100 % of its memory. Try a smaller batch, or more GPUs.",
        ),
        ([(0, 900, 0), (1000, None, 0)], 0, ""),
    ],
)
def test_a_hint_about_memory(gpus: list[tuple[int, int | None, int | None]], rank: int, hint: str) -> None:
    told = tuple(
        GpuUsage(node=NodeId("n"), index=0, uuid=GpuUuid("G"), memory_mib=size, memory_peak_mib=peak, rank=of)
        for size, peak, of in gpus
    )
    usage = JobUsage(job_id=JobId("K7P2M9QX"), state=JobState.FAILED, attempt=1, asked=1, gpus=told)
    assert memory_hint(usage, rank) == hint
    assert memory_hint(None, rank) == ""
