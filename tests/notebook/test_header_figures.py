"""What a header knows of queue and GPUs, how much of the output a cell keeps, and its lines."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api.frames import NodeReading
from mgpu_jupyter.client.live import LiveState, View
from mgpu_jupyter.client.mock import a_node
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook import budget, notes
from mgpu_jupyter.notebook.budget import Budget
from mgpu_jupyter.notebook.gauges import LiveGauges, NoGauges
from mgpu_jupyter.notebook.header_text import (
    Load,
    Waits,
)
from mgpu_jupyter.notebook.style import chart
from tests.notebook.test_header import a_job
from tests.notebook.test_header_words import WAITS
from tests.notebook.visible import visible


class Reader:
    def __init__(self, view: View) -> None:
        self.view, self.closed = view, 0

    def close(self) -> None:
        self.closed += 1


def test_load_is_read_once_a_second_and_anew_for_each_attempt() -> None:
    clock_s = [100.0]
    node = a_node("gpu-01", 4)

    told = NodeReading(gpus={"0": (80.0, 1000), "1": (40.0, None), "9": (1.0, 1)})  # type: ignore[call-arg,dict-item]
    view = View(state=LiveState.LIVE, nodes={node.id: node}, readings={node.id: told})
    reader = Reader(view)
    gauges = LiveGauges(lambda: reader, lambda: clock_s[0])  # type: ignore[arg-type,return-value]
    job = a_job(JobState.RUNNING, 1)
    first = Load(busy=(60.0,), memory=(1000.0 * 1024 * 1024,), memory_total=node.gpus[0].memory_bytes)
    assert gauges.load(job) == first
    clock_s[0] += 0.5
    assert gauges.load(job) == first
    clock_s[0] += 0.5
    assert gauges.load(job).busy == (60.0, 60.0)
    clock_s[0] += 5
    assert gauges.load(replace(job, state=JobState.STOPPING)).busy == (60.0, 60.0)
    assert gauges.load(replace(job, placements=())).busy == (60.0, 60.0, None)
    again = replace(job, attempt=2)
    clock_s[0] += 5
    assert gauges.load(again) == first
    gauges.close()
    gauges.close()
    assert reader.closed == 1


def test_a_place_is_the_newest_that_is_known() -> None:
    class Waiting:
        place, of, reason, expected_at = 3, 7, "New.", 9.0

    class Known(View):
        now: Any = Waiting()

        def waiting(self, job_id: JobId) -> Any:
            return self.now

    view = Known()
    gauges = LiveGauges(lambda: Reader(view))  # type: ignore[arg-type,return-value]
    job = replace(WAITS, place=5, reason="Old.", expected_start_at=8.0)
    assert gauges.waits(job) == Waits(place=3, of=7, reason="New.", expected_at=9.0)
    Waiting.place, Waiting.of, Waiting.reason, Waiting.expected_at = None, 0, "", None  # type: ignore[assignment]
    old = Waits(place=5, reason="Old.", expected_at=8.0)
    assert gauges.waits(job) == NoGauges().waits(job) == old
    Known.now = None
    assert gauges.waits(job) == old
    assert NoGauges().load(job) == Load()


# --- how much is kept -----------------------------------------------------------------------------------


def test_a_budget_of_lines() -> None:
    one = Budget(lines=3, chars=1000)
    assert [one.take(""), one.take("a\n"), one.take("b"), one.note("J")] == ["", "a\n", "b", ""]
    assert one.take("c\nd\ne\nf\n") == "c\nd\n"
    assert one.take("g\n") == ""
    assert (one.left_out_lines, one.left_out_chars, one.tail()) == (3, 6, "e\nf\ng\n")
    assert one.note("J") == "3 more lines (6 B) are left out here: %mgpu_logs J shows the whole output."
    one.renew()
    assert (one.take("a\n"), one.note("J"), one.tail()) == ("a\n", "", "")


def test_a_budget_of_letters() -> None:
    one = Budget(lines=100, chars=10)
    assert one.take("\x1b[31m123456789") == "\x1b[31m12345\x1b[0m\n"
    assert one.note("J") == "1 more line (4 B) is left out here: %mgpu_logs J shows the whole output."
    assert one.take("0\nx") == ""
    assert one.tail() == "67890\nx"
    line = Budget(lines=100, chars=10)
    assert line.take("123\n456\n789\n") == "123\n456\n"
    assert Budget(limited=False, lines=1, chars=1).take("a\nb\nc\n") == "a\nb\nc\n"


def test_a_budget_of_displays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_DISPLAYS", 2)
    one = Budget()
    assert [one.take_display() for _ in range(4)] == [True, True, False, False]
    assert one.note("J") == "2 more displays are left out: %mgpu_logs J shows the whole output."
    free = Budget(limited=False)
    assert all(free.take_display() for _ in range(4))


def test_the_end_of_what_is_left_out_is_kept() -> None:
    one = Budget(lines=1, chars=10)
    one.take("x" * 20)
    one.take("\n" + "".join(f"{number}\n" for number in range(60)))
    assert one.tail().splitlines() == [str(number) for number in range(10, 60)]


def test_lines_of_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    plain = notes.PlainNotes()
    for text in ("one", "one", "two\x1b"):
        plain.show_waiting(text)
    plain.clear_waiting()
    plain.fold("three", ["more"])
    assert capsys.readouterr().err == "one\ntwo\ufffd\nthree\n"
    assert notes.bundle("a <b>")["text/plain"] == "a <b>"
    assert visible(notes.bundle("a <b>")["text/html"]) == ["a <b>"]


def test_lines_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, Any, dict[str, Any]]] = []

    class Handle:
        def update(self, data: Any, **options: Any) -> None:
            shown.append(("update", data["text/plain"], options))

    def display(data: Any, **options: Any) -> Handle:
        shown.append(("display", data["text/plain"], options))
        return Handle()

    monkeypatch.setattr(notes, "display", display)
    rich = notes.RichNotes()
    rich.clear_waiting()
    rich.say("a")
    rich.show_waiting("b")
    rich.show_waiting("c")
    rich.clear_waiting()
    rich.show_waiting("d")
    rich.fold("e", ["f", "g"])
    raw = {"raw": True}
    assert shown == [
        ("display", "a", raw),
        ("display", "b", raw | {"display_id": True}),
        ("update", "c", raw),
        ("update", "", raw),
        ("display", "d", raw | {"display_id": True}),
        ("display", "e", raw),
    ]


def test_a_chart() -> None:
    def drawn(*values: float | None, most: float = 100.0) -> str:
        return chart(values, most, "busy", "50 %").partition('<polyline points="')[2].partition('"')[0]

    assert drawn() == drawn(50.0) == drawn(1.0, 2.0, most=0.0) == ""
    assert drawn(0.0, 50.0, 100.0) == "186.8,19.0 188.4,10.0 190.0,1.0"
    assert drawn(-5.0, None, 500.0) == "186.8,19.0 190.0,1.0"
    assert len(drawn(*[1.0] * 121).split()) == 120
    page = chart((0.0, 100.0), 100.0, "busy", "50 %")
    assert page == (
        '<svg class="mgpu-chart mgpu-chart-busy" height="20" viewBox="0 0 190 20" preserveAspectRatio="none" '
        'role="img" aria-label="50 %"><path d="M188.4,20L188.4,19.0 190.0,1.0 190.0,20Z"/>'
        '<polyline points="188.4,19.0 190.0,1.0"/></svg>'
    )
