"""The tab Queue on a loop that does everything at once: rows, orders, answers."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.client.mock import Play, explanation
from mgpu_jupyter.client.transport import Answer
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.notebook.panel.parts import has_class
from mgpu_jupyter.notebook.panel.queue_tab import QueueTab
from tests.notebook.panel_stub import Panel, hidden
from tests.notebook.panel_world import NOW, FakeView, job, node
from tests.notebook.visible import visible


def queue_tab(*jobs: models.Job, play: Play | None = None, **fields: Any) -> tuple[Any, Panel]:
    panel = Panel(FakeView([node("n1", 2)], jobs, **fields), *([play] if play else []))
    for one in jobs:
        panel.client.submit_spec(JobSpec(command=("x",), name=one.name))
    panel.mock.requests.clear()
    return panel.show(QueueTab(panel)), panel  # type: ignore[arg-type]


def queued(number: int, **fields: Any) -> models.Job:
    return job(f"MOCK{number:04}", **({"name": f"job{number}", "place": number + 1} | fields))


def keys(tab: Any) -> list[str]:
    return [slot.row.key for slot in tab.slots if slot.row is not None]


def test_whose_jobs_and_which() -> None:
    tab, panel = queue_tab(queued(0), queued(1, user="ann"), queued(2))
    assert keys(tab) == ["MOCK0000", "MOCK0001", "MOCK0002"]
    assert [text for text, _ in tab.whose.options] == ["Mine 2", "All 3"]
    assert visible(tab.free.value) == ["2 of 2 GPUs free"]
    tab.whose.value = True
    assert keys(tab) == ["MOCK0000", "MOCK0002"]
    tab.whose.value = False
    tab.filter.value = "ann"
    panel.loop.run("queue-filter")
    assert keys(tab) == ["MOCK0001"]
    tab.filter.value = "zzz"
    panel.loop.run("queue-filter")
    assert (keys(tab), visible(tab.empty.value)) == ([], ["No job matches “zzz”."])
    assert tab.slots[0].box._dom_classes.count("mgpu-hide") == 1


def test_pages() -> None:
    tab, panel = queue_tab(*(queued(number) for number in range(21)))
    assert (hidden(tab.before), tab.more.description) == (True, "11 more")
    tab.more.click()
    assert (keys(tab)[0], tab.before.description, tab.more.description) == ("MOCK0010", "10 before", "1 more")
    tab.more.click()
    assert (keys(tab), hidden(tab.more)) == (["MOCK0020"], True)
    panel.view = FakeView([node("n1", 2)], [queued(number) for number in range(10)])
    panel.draw()
    assert (keys(tab)[0], hidden(tab.before), hidden(tab.more)) == ("MOCK0000", True, True)
    tab.before.click()
    assert keys(tab)[0] == "MOCK0000"


def test_buttons_of_a_row_are_named_for_its_job() -> None:
    tab, _ = queue_tab(
        queued(0),
        queued(1, user="ann"),
        queued(2, reason_code="held"),
        job("MOCK0003", JobState.RUNNING, name="job3", nodes=("n1",)),
    )
    names = {
        slot.row.key: (slot.why.description, slot.hold.description, slot.end.description)
        for slot in tab.slots
        if slot.row is not None
    }
    assert names == {
        "MOCK0000": ("Why does it wait: job0", "Hold job0", "Cancel job0"),
        "MOCK0001": ("", "", ""),
        "MOCK0002": ("Why does it wait: job2", "Release job2", "Cancel job2"),
        "MOCK0003": ("Where does it run: job3", "", "Cancel job3"),
    }
    slots = {slot.row.key: slot for slot in tab.slots if slot.row is not None}
    assert has_class(slots["MOCK0002"].hold, "mgpu-free")
    assert has_class(slots["MOCK0000"].hold, "mgpu-hold")
    assert slots["MOCK0001"].end.disabled
    assert not slots["MOCK0000"].end.disabled


def test_orders_by_buttons() -> None:
    tab, panel = queue_tab(queued(0), queued(1, reason_code="held"))
    tab.slots[0].hold.click()
    tab.slots[1].hold.click()
    bodies = [msgspec.json.decode(one.body or b"") for one in panel.mock.requests]
    assert [(one["hold"], one["release"]) for one in bodies] == [(True, False), (False, True)]
    assert panel.said == ["job0 is held.", "job1 is released."]
    panel.mock.failures[:] = [MgpuError("x", "Down.")]
    tab.slots[0].hold.click()
    assert panel.said[-1] == "Down."


@pytest.mark.parametrize(
    ("line", "priority", "opened"),
    [
        ("1 up MOCK0001", 6, []),
        ("1 down MOCK0001", 4, []),
        ("1 open MOCK0001", None, ["MOCK0001"]),
        ("1 move MOCK0001 before MOCK0000", 10, []),
        ("1 move MOCK0000 after MOCK0001", 4, []),
        ("1 move MOCK0001 after MOCK0000", None, []),
        ("1 up MOCK0002", None, []),
        ("1 up MOCK0003", None, []),
        ("1 up NONE0000", None, []),
        ("1 eat MOCK0001", None, []),
        ("1 open MOCK0003", None, ["MOCK0003"]),
    ],
)
def test_orders_by_keys_and_drags(line: str, priority: int | None, opened: list[str]) -> None:
    tab, panel = queue_tab(
        queued(0, priority=9),
        queued(1, priority=5),
        queued(2, user="ann"),
        job("MOCK0003", JobState.RUNNING, name="job3", nodes=("n1",)),
    )
    tab.orders.value = line
    found = [msgspec.json.decode(one.body or b"")["priority"] for one in panel.mock.requests]
    assert (found, panel.opened) == ([] if priority is None else [priority], opened)
    if priority is not None:
        name = "job0" if line.startswith("1 move MOCK0000") else "job1"
        assert panel.said == [f"{name} has priority {priority} now."]


def test_rows_stay_while_the_pointer_is_there() -> None:
    tab, panel = queue_tab(queued(0), queued(1), queued(2))
    tab.orders.value = "1 stay"
    panel.view = FakeView([node("n1", 2)], [queued(1, place=1), queued(0, place=2), queued(2)])
    panel.draw()
    assert keys(tab) == ["MOCK0000", "MOCK0001", "MOCK0002"]
    assert (tab.changed.description, hidden(tab.changed)) == ("2 changes, show", False)
    tab.orders.value = "2 go"
    assert (keys(tab)[0], hidden(tab.changed)) == ("MOCK0001", True)
    tab.orders.value = "3 stay"
    panel.view = FakeView([node("n1", 2)], [queued(1, place=1), queued(0, place=2)])
    panel.draw()
    assert (keys(tab), tab.changed.description) == (["MOCK0001", "MOCK0000"], "1 change, show")
    ended = job("MOCK0001", JobState.COMPLETED, name="job1", ended_at=NOW)
    panel.view = FakeView([node("n1", 2)], [ended, queued(0, place=1)])
    panel.draw()
    assert keys(tab) == ["MOCK0001", "MOCK0000"]
    tab.changed.click()
    assert "MOCK0000" in keys(tab)


def test_why_and_what_can_be_done_about_it() -> None:
    tab, panel = queue_tab(queued(0), queued(1, user="ann"), admin=False)
    card = tab.card
    assert hidden(card.box)
    tab.slots[0].why.click()
    assert panel.asked == ["GET jobs/MOCK0000/explain"]
    assert not hidden(card.box)
    assert card.row.key == "MOCK0000"
    assert [hidden(box) for _, _, box in card.offers] == [False, True, True]
    assert visible(card.offers[0][0].value) == ["1 GPU instead of 2", "now", "on node-1 (GPU 0)", "--gpus 1"]
    assert [hidden(one) for one in (card.yes, card.up, card.down, card.see)] == [True, False, False, False]
    assert card.no.description == "Close"
    assert "chosen" in tab.slots[0].cells.value
    assert "chosen" not in tab.slots[1].cells.value
    card.up.click()
    card.down.click()
    card.see.click()
    bodies = [msgspec.json.decode(one.body or b"")["priority"] for one in panel.mock.requests[1:]]
    assert (bodies, panel.opened) == ([1, -1], ["MOCK0000"])
    card.no.click()
    assert hidden(card.box)
    assert card.row is None
    card.up.click()
    assert len(panel.asked) == 3


def test_an_offer_is_taken_if_it_still_holds() -> None:
    tab, panel = queue_tab(queued(0))
    tab.slots[0].why.click()
    tab.card.offers[0][1].click()
    assert panel.asked == ["GET jobs/MOCK0000/explain"] * 2 + ["POST jobs/MOCK0000/replace"]
    assert msgspec.json.decode(panel.mock.requests[-1].body or b"") == {"patch": {"gpus": 1}}
    assert panel.said == ["job0 starts as MOCK0001: 1 GPU instead of 2."]
    assert hidden(tab.card.box)

    tab, panel = queue_tab(queued(0))
    tab.slots[0].why.click()
    panel.mock.failures[:] = [Answer(status=200, body=msgspec.json.encode(explanation()))]
    tab.card.offers[0][1].click()
    assert panel.said == ["node-1 was taken meanwhile. Here are the offers that hold now."]
    assert not hidden(tab.card.box)

    tab, panel = queue_tab(queued(0))
    tab.slots[0].why.click()
    panel.mock.failures[:] = [MgpuError("x", "Down.")]
    tab.card.offers[0][1].click()
    assert panel.said == ["Down."]


def test_a_cancel_is_asked_about() -> None:
    tab, panel = queue_tab(queued(0))
    card = tab.card
    tab.slots[0].end.click()
    assert visible(card.answer.value) == ["Cancel “job0” of me, MOCK0000?"]
    assert [hidden(one) for one in (card.yes, card.up, card.down, card.see)] == [False, True, True, True]
    assert all(hidden(box) for _, _, box in card.offers)
    assert card.no.description == "Keep it"
    card.no.click()
    card.yes.click()
    assert panel.asked == []
    tab.slots[0].end.click()
    card.yes.click()
    assert (panel.asked, panel.said) == (["POST jobs/MOCK0000/cancel"], ["job0 is being cancelled."])
    assert hidden(card.box)


def test_a_cancel_of_an_array_and_of_others() -> None:
    members = [
        queued(number, array_id="ARRA0000", array_index=number, user="ann", name="sweep")
        for number in range(2)
    ]
    tab, _ = queue_tab(*members, admin=True)
    tab.slots[0].end.click()
    assert visible(tab.card.answer.value) == ["Cancel 2 jobs of “sweep” of ann, ARRA0000?"]


def test_a_press_on_a_row_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    tab, panel = queue_tab(queued(0), queued(1))
    panel.view = FakeView([node("n1", 2)], [queued(1, place=1), queued(0, place=2)])
    panel.draw()
    tab.slots[0].hold.click()
    assert (panel.said, panel.asked) == (["The rows have just moved, so nothing was done. Press again."], [])
    now[0] += 0.6
    tab.slots[0].hold.click()
    assert panel.said[-1] == "job1 is held."
