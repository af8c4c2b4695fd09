"""What the panel answers to "why?" and says of a form, as a person reads it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.client.words import moment
from mgpu_jupyter.model.explanations import (
    Ahead,
    Excluded,
    Explanation,
    Forecast,
    Offer,
    Planned,
    Term,
    UnitAnswer,
    Where,
)
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.notebook.panel import submit_views
from mgpu_jupyter.notebook.panel.explained import explained_html, first_line, offer_html, on
from mgpu_jupyter.notebook.panel.form import Form
from mgpu_jupyter.notebook.panel.seen import Picked
from mgpu_jupyter.notebook.panel.submit_views import PickRow
from tests.notebook.panel_world import NOW, gpu, node
from tests.notebook.test_panel_words import MINE, N1, N2, OTHERS, seen
from tests.notebook.visible import visible


def told(verdict: Any = "not_now", **fields: Any) -> Explanation:
    return Explanation(**({"verdict": verdict, "code": "x", "text": "Because."} | fields))


LATER = NOW + 7200


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (told("now", where=(Where(node=N1, gpus=(0,)),)), "Starts now on n1 (GPU 0)."),
        (told("never"), "Can never start here."),
        (told("started"), "Because."),
        (told("over"), "Because."),
        (told(expected=Forecast(at=LATER)), f"Starts at about {moment(LATER, NOW)}, in 2 h 00 m."),
        (told(expected=Forecast(at=LATER, promised=True)), f"Starts by {moment(LATER, NOW)}, in 2 h 00 m."),
        (told(expected=Forecast(at=NOW - 5)), f"Starts at about {moment(NOW - 5, NOW)}, in 1.0 s."),
        (
            told(
                job_id=MINE,
                expected=Forecast(at=LATER),
                plan=(
                    Planned(job_id=OTHERS, nodes=(N2,), start_at=NOW),
                    Planned(job_id=MINE, nodes=(N1, N2), start_at=LATER),
                ),
            ),
            f"Starts at about {moment(LATER, NOW)}, in 2 h 00 m, on n1 and n2.",
        ),
        (told(expected=Forecast(later_than=LATER)), f"Starts later than {moment(LATER, NOW)}."),
        (told(), "Start not known."),
    ],
)
def test_the_first_line(answer: Explanation, line: str) -> None:
    assert first_line(answer, NOW) == line


def test_places_in_words() -> None:
    def places(count: int) -> tuple[Where, ...]:
        return tuple(Where(node=NodeId(f"n{number}"), gpus=(0, 1)) for number in range(count))

    assert on(()) == ""
    assert on(places(1)) == " on n0 (GPUs 0, 1)"
    assert on(places(3)) == " on n0 (GPUs 0, 1), n1 (GPUs 0, 1) and n2 (GPUs 0, 1)"
    assert on(places(4)).endswith("n2 (GPUs 0, 1) and n3 (GPUs 0, 1)")
    assert on(places(5)) == " on n0 (GPUs 0, 1), n1 (GPUs 0, 1), n2 (GPUs 0, 1) and 2 more"


OFFER = Offer(text="1 GPU instead of 2", flags=("--gpus", "1"), patch={"gpus": 1}, where=(Where(node=N1),))
OFFER_WORDS = ["1 GPU instead of 2", "now", "on n1", "--gpus 1"]


def test_a_whole_answer() -> None:
    out = (
        Excluded(check="gpus", text="All GPUs are taken.", never=False, count=3, nodes=(N1, N2)),
        Excluded(check="memory", text="Too small.", never=True, count=1, nodes=(NodeId("n3"),)),
    )
    answer = told(
        job_id=MINE,
        expected=Forecast(at=LATER),
        units=(UnitAnswer(first=0, count=1, needs="2 GPUs", missing=1, would_do=0, excluded=out),),
        plan=(
            Planned(job_id=MINE, nodes=(N1,), start_at=LATER),
            Planned(job_id=OTHERS, nodes=(N1, N2), end_at=LATER),
            Planned(job_id=JobId("NEXT0001"), nodes=(N1,), start_at=NOW, end_at=LATER),
            Planned(job_id=JobId("LAST0001"), nodes=(N2,)),
        ),
        ahead=(Ahead(job_id=OTHERS, user="ann", gpus=2, priority=1.5),),
        ahead_count=2,
        priority=0.75,
        terms=(Term(name="age", amount=1.0, points=1.0), Term(name="size", amount=0.0, points=0.0)),
        offers=(OFFER,) * 4,
    )
    page = explained_html(answer, NOW, "train", title_of=lambda job_id: f"job {job_id}")
    assert visible(page) == [
        "(queued)",
        f"Starts at about {moment(LATER, NOW)}, in 2 h 00 m, on n1.",
        "Because.",
        (
            "It is the latest start if jobs keep to their limits; they may end sooner. It moves if a job "
            "with higher priority comes or a node fails."
        ),
        "What happens until then",
        *("job OTHR0001", "n1, n2", f"until {moment(LATER, NOW)}"),
        *("job NEXT0001", "n1", f"from ≈ {moment(NOW, NOW)} until {moment(LATER, NOW)}"),
        *("job LAST0001", "n2", "without an end"),
        "Ahead in the queue",
        "2 jobs, with their priority",
        *("job OTHR0001", "ann", "2 GPUs", "1.50"),
        "Node by node",
        *("n1, n2 (of 3)", "All GPUs are taken."),
        *("n3", "Too small.", "not without a change"),
        "Priority 0.75",
        "age +1.00, in hours of waiting",
        "Small changes that start it now",
        *OFFER_WORDS * 3,
    ]
    below = visible(explained_html(answer, NOW, "train", as_text=False))
    assert below[-1] == "Small changes that start it now"
    assert visible(offer_html(OFFER)) == OFFER_WORDS


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (told("now"), ["(running)", "Starts now.", "Because."]),
        (told("started"), ["(running)", "Because."]),
        (told("over"), ["(completed)", "Because."]),
        (
            told("never"),
            [
                "(can never start)",
                "Can never start here.",
                "Because.",
                "Small changes that start it now",
                "No small change starts it sooner.",
            ],
        ),
        (
            told("now", ahead_count=1, terms=(Term(name="age", amount=0.0, points=0.0),)),
            [
                *("(running)", "Starts now.", "Because.", "Ahead in the queue", "1 job, with their priority"),
                *("Priority 0.00", "nothing counts, in hours of waiting"),
            ],
        ),
    ],
)
def test_short_answers(answer: Explanation, words: list[str]) -> None:
    assert visible(explained_html(answer, NOW, "x")) == words


def test_at_most_twelve_nodes_are_listed() -> None:
    out = tuple(
        Excluded(check="c", text=f"t{number}", never=False, count=1, nodes=(N1,)) for number in range(13)
    )
    plan = tuple(Planned(job_id=JobId(f"JOB{number:05}"), nodes=(N1,)) for number in range(13))
    unit = UnitAnswer(first=0, count=1, needs="", missing=1, would_do=0, excluded=out)
    words = visible(explained_html(told(units=(unit,), plan=plan), NOW, "x"))
    assert ("t11" in words, "t12" in words) == (True, False)
    assert ("JOB00011" in words, "JOB00012" in words) == (True, False)


# --- the form -------------------------------------------------------------------------------------------


def test_what_is_free() -> None:
    world = seen(node("n1", 2), node("n2", 3), node("n3", 4, state=NodeState.DRAINING))
    text = "Free now: 5 of 9, at most 3 on one node."
    assert visible(submit_views.free_html(world, Form())) == [
        f"{text} Click a free GPU to ask for exactly that one."
    ]
    assert visible(submit_views.free_html(world, Form(picks=(Picked("n1", 0),)))) == [text]
    assert visible(submit_views.free_html(seen(), Form()))[0].startswith("Free now: 0 of 0, at most 0 on")


def test_kinds_of_gpus() -> None:
    gpus = (gpu(0), gpu(1, job_id=MINE), gpu(2, state="outside"), gpu(3, name="A100"))
    world = seen(node("n1", gpus), node("n2", 2, state=NodeState.DRAINING))
    assert submit_views.types_of(world) == [("A100", 1), ("H100 80GB", 1)]


def test_rows_of_the_picker() -> None:
    world = seen(
        node("a", 1),
        node("b", (gpu(0, name="A100"),) * 3),
        node("c", 12),
        node("d", 8, state=NodeState.DRAINING),
        node("e", (gpu(0, job_id=MINE),)),
        node("f", 0),
    )

    def rows(form: Form, answer: Explanation | None = None) -> list[tuple[str, int]]:
        return [(row.node, row.first) for row in submit_views.pick_rows(world, form, answer)]

    assert rows(Form()) == [("c", 0), ("c", 8), ("b", 0), ("a", 0), ("d", 0), ("e", 0)]
    assert rows(Form(gpu_type="a100")) == [("b", 0), ("a", 0), ("c", 0), ("c", 8), ("d", 0), ("e", 0)]
    assert rows(Form(picks=(Picked("e", 0),)))[:2] == [("e", 0), ("c", 0)]
    assert rows(Form(), told("now", where=(Where(node=NodeId("a")),)))[:2] == [("a", 0), ("c", 0)]


def test_a_row_of_the_picker() -> None:
    world = seen(node("c", 12))
    row, rest = PickRow(NodeId("c"), 0), PickRow(NodeId("c"), 8)
    there = told("now", where=(Where(node=NodeId("c"), gpus=(1, 9)),))

    def shown(of: PickRow, form: Form, answer: Explanation | None) -> tuple[list[str], int, int]:
        page = submit_views.pick_html(world, of, form, answer)
        return visible(page), page.count("<g "), page.count(" pick")

    nothing = (["c", "(c: takes no part)"], 8, 0)
    assert shown(row, Form(), None) == nothing
    assert shown(row, Form(), there) == (["c", "(c: would take GPU 1)"], 8, 1)
    assert shown(rest, Form(), there) == (["(c: would take GPU 9)"], 4, 1)
    assert shown(row, Form(), replace(there, verdict="not_now")) == nothing
    picks = Form(picks=(Picked("c", 2), Picked("c", 3)))
    assert shown(row, picks, there) == (["c", "(c: would take GPU 2, 3)"], 8, 2)


@pytest.mark.parametrize(
    ("answer", "problem", "words"),
    [
        (None, "", ["Checking…"]),
        (None, "--gpus x: write a number.", ["(warning)", "--gpus x", "write a number."]),
        (None, "No colon.", ["(warning)", "No colon."]),
        (None, "a: b: c", ["(warning)", "a: b: c"]),
        (None, f"{'x' * 60}: y", ["(warning)", f"{'x' * 60}: y"]),
        (None, f"{'x' * 59}: y", ["(warning)", "x" * 59, "y"]),
        (told("now"), "", ["(running)", "Starts now"]),
        (told("now", where=(Where(node=N1),)), "", ["(running)", "Starts now", "on n1"]),
        (told("never"), "", ["(can never start)", "Can never start here", "Because."]),
        (told(), "", ["(queued)", "Start not known", "Because."]),
        (told(), "Wrong.", ["(warning)", "Wrong."]),
    ],
)
def test_the_answer_below_the_form(answer: Explanation | None, problem: str, words: list[str]) -> None:
    page = submit_views.answer_html(answer, problem, NOW, checking=False)
    assert (visible(page), "mgpu-old" in page) == (words, False)
    again = submit_views.answer_html(answer, problem, NOW, checking=True)
    assert (visible(again), "mgpu-old" in again) == (words, bool(answer or problem))


def test_sizes_and_offers_in_words() -> None:
    form = Form(nodes=2, gpus=4)
    typed = Form(nodes=2, gpus=4, gpu_type="H100")
    at = moment(LATER, NOW)
    assert submit_views.size_text(form, told("now"), NOW) == "2 × 4 would start now."
    later = told(expected=Forecast(at=LATER))
    assert submit_views.size_text(typed, later, NOW) == f"2 × 4 H100 would start at {at}."
    assert submit_views.size_text(form, told(), NOW) == ""
    assert submit_views.size_text(form, replace(later, verdict="never"), NOW) == ""
    assert submit_views.offer_text(OFFER) == "1 GPU instead of 2 would start now on n1."
