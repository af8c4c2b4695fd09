"""The panel's widgets without a front end: what is sent when, what a click does, and that it stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mgpu_jupyter import Client
from mgpu_jupyter.client.mock import MockTransport, Play
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.notebook.panel.panel import Panel
from mgpu_jupyter.notebook.panel.queue_tab import PAGE
from tests.notebook.panel_world import NOW, FakeMirror, FakeView, gpu, job, node, settle, tab, texts
from tests.processes import wait_until

Open = Callable[..., Panel]


@pytest.fixture
def mock() -> MockTransport:
    return MockTransport(lambda _: Play(waits=True, reason="Waits for 2 GPUs."))


@pytest.fixture
def mirror() -> FakeMirror:
    jobs = [job(f"QUEUE{number:03}", place=number + 1, user="user1") for number in range(25)]
    return FakeMirror(
        FakeView([node("n1"), node("n2")], [job("MINE0001", JobState.RUNNING, nodes=("n1",), gpus=1), *jobs])
    )


@pytest.fixture
def opened(mock: MockTransport, mirror: FakeMirror) -> Iterator[Open]:
    made: list[Panel] = []

    def open_panel(tab: str = "queue", **fields: Any) -> Panel:
        made.append(Panel(Client(transport=mock), mirror, {}, tab=tab, **fields))
        made[-1].open()
        return made[-1]

    yield open_panel
    for panel in made:
        panel.close()
        assert panel.loop.join(10)
    assert mirror.readers == []


def test_a_page_at_a_time_and_only_what_changed_is_sent(opened: Open, mirror: FakeMirror) -> None:
    panel = opened()
    queue = tab(panel, 0)
    assert texts(panel) == ["MINE0001", *(f"QUEUE{number:03}" for number in range(PAGE - 1))]
    assert queue.more.description == "16 more"
    queue.more.click()
    settle(panel)
    assert (texts(panel)[0], queue.before.description, queue.more.description) == (
        "QUEUE009",
        "10 before",
        "6 more",
    )
    queue.before.click()
    settle(panel)
    sent = {number: slot.cells.sent for number, slot in enumerate(queue.slots)}
    jobs = [
        replace(one, reason="Waits for more.") if one.id == "QUEUE003" else one
        for one in mirror.view.jobs.values()
    ]
    mirror.show(FakeView(list(mirror.view.nodes.values()), jobs))
    settle(panel)
    changed = [number for number, slot in enumerate(queue.slots) if slot.cells.sent != sent[number]]
    assert changed in ([4], [0, 4])  # the row of a job that runs may tell another time


def test_only_the_tab_in_front_is_made_and_drawn(opened: Open, mirror: FakeMirror) -> None:
    panel = opened("gpus")
    assert [one is not None for one in panel._tabs] == [False, True, False, False]
    settle(panel)
    gpus = tab(panel, 1)
    assert "0 mine" not in gpus.walls[0].value
    panel.tabs.selected_index = 0
    settle(panel)
    sent = gpus.walls[0].sent
    held = node("n1", [gpu(0, job_id="MINE0001", user="me", state="held", utilisation_percent=77.0)])
    mirror.show(FakeView([held], list(mirror.view.jobs.values())))
    settle(panel)
    assert gpus.walls[0].sent == sent
    panel.tabs.selected_index = 1
    settle(panel)
    assert "n1: 1 mine" in gpus.walls[0].value
    assert 'data-state="mine"' in gpus.detail.value


def test_orders_go_to_the_job_of_the_row(opened: Open, mock: MockTransport, mirror: FakeMirror) -> None:
    client = Client(transport=mock)
    waits = client.submit(["true"], gpus=2, name="waits")
    mirror.view = FakeView([node("n1")], [job(waits.id, name="waits", place=1)])
    panel = opened()
    queue = tab(panel, 0)
    (slot, *_) = queue.slots
    assert slot.end.tooltip == "Cancel waits"
    mock.requests.clear()
    queue.orders.value = f"1 up {waits.id}"
    slot.hold.click()
    slot.why.click()
    settle(panel)
    settle(panel)
    asked = [(request.method, request.path, request.body) for request in mock.requests]
    assert asked == [
        ("PATCH", f"jobs/{waits.id}", b'{"priority":1,"time_limit_s":null,"hold":false,"release":false}'),
        ("PATCH", f"jobs/{waits.id}", b'{"priority":null,"time_limit_s":null,"hold":true,"release":false}'),
        ("GET", f"jobs/{waits.id}/explain", None),
    ]
    assert "Waits for 2 GPUs." in queue.card.answer.value
    assert "waits is held." in panel.said.value
    slot.end.click()
    settle(panel)
    assert "Cancel “waits” of me" in queue.card.answer.value
    assert not [request for request in mock.requests if request.path.endswith("cancel")]
    queue.card.yes.click()
    settle(panel)
    assert mock.requests[-1].path == f"jobs/{waits.id}/cancel"


def test_rows_keep_their_place_while_an_answer_is_open(
    opened: Open, mirror: FakeMirror, mock: MockTransport
) -> None:
    client = Client(transport=mock)
    ids = [client.submit(["true"]).id for _ in range(3)]
    mirror.view = FakeView([node("n1")], [job(one, place=number + 1) for number, one in enumerate(ids)])
    panel = opened()
    queue = tab(panel, 0)
    queue.slots[1].why.click()
    settle(panel)
    settle(panel)
    moved = [ids[2], ids[0]]
    mirror.show(FakeView([node("n1")], [job(one, place=number + 1) for number, one in enumerate(moved)]))
    settle(panel)
    assert texts(panel) == [
        ids[0],
        ids[2],
    ]  # the one that is gone altogether leaves; the others stay in their order
    assert queue.changed.description.endswith("changes, show")
    queue.changed.click()
    settle(panel)
    assert texts(panel) == moved


def test_a_press_on_a_row_that_has_just_moved_does_nothing(
    opened: Open, mirror: FakeMirror, mock: MockTransport
) -> None:
    client = Client(transport=mock)
    ids = [client.submit(["true"]).id for _ in range(2)]
    mirror.view = FakeView([node("n1")], [job(one, place=number + 1) for number, one in enumerate(ids)])
    panel = opened()
    mirror.show(
        FakeView([node("n1")], [job(one, place=number + 1) for number, one in enumerate(reversed(ids))])
    )
    settle(panel)
    mock.requests.clear()
    tab(panel, 0).slots[0].hold.click()
    settle(panel)
    assert "have just moved" in panel.said.value
    assert mock.requests == []


def test_an_offer_is_taken_while_it_holds(opened: Open, mirror: FakeMirror, mock: MockTransport) -> None:
    client = Client(transport=mock)
    waits = client.submit(["true"], gpus=2, name="waits")
    mirror.view = FakeView([node("n1")], [job(waits.id, name="waits", place=1)])
    panel = opened()
    queue = tab(panel, 0)
    queue.slots[0].why.click()
    settle(panel)
    card = queue.card
    section, button, box = card.offers[0]
    assert (button.description, "1 GPU instead of 2" in section.value, "mgpu-hide" in box._dom_classes) == (
        "Start now",
        True,
        False,
    )
    assert "mgpu-hide" in card.offers[1][2]._dom_classes
    assert [
        one.description
        for one in (card.up, card.down, card.see, card.no)
        if "mgpu-hide" not in one._dom_classes
    ] == [
        "Raise priority",
        "Lower priority",
        "Open",
        "Close",
    ]
    # Meanwhile another offer holds: nothing is changed, and that one is shown.
    card._offered = (replace(card._offered[0], patch={"gpus": 5}),)
    button.click()
    settle(panel)
    assert "node-1 was taken meanwhile. Here are the offers that hold now." in panel.said.value
    assert len(mock.jobs) == 1
    button.click()
    settle(panel)
    assert (mock.requests[-1].path, mock.requests[-1].body) == (
        f"jobs/{waits.id}/replace",
        b'{"patch":{"gpus":1}}',
    )
    assert "waits starts as MOCK0001: 1 GPU instead of 2." in panel.said.value
    assert "mgpu-hide" in card.box._dom_classes


def test_others_jobs_and_arrays_have_offers_as_text(
    opened: Open, mirror: FakeMirror, mock: MockTransport
) -> None:
    waits = Client(transport=mock).submit(["true"], gpus=2)
    mirror.view = FakeView([node("n1")], [job(waits.id, place=1, user="user1")], admin=False)
    panel = opened()
    queue = tab(panel, 0)
    queue.orders.value = f"1 end {waits.id}"
    queue.orders.value = f"2 up {waits.id}"
    queue.orders.value = "nonsense"
    queue.orders.value = "3 up NOBODY00"
    settle(panel)
    assert queue.card.row is None
    assert {request.method for request in mock.requests} == {"POST"}


def test_a_row_is_dragged_and_rows_stay_while_the_pointer_is_there(
    opened: Open, mirror: FakeMirror, mock: MockTransport
) -> None:
    client = Client(transport=mock)
    ids = [client.submit(["true"]).id for _ in range(3)]
    mirror.view = FakeView(
        [node("n1")], [job(one, place=number + 1, priority=3 - number) for number, one in enumerate(ids)]
    )
    panel = opened()
    queue = tab(panel, 0)
    queue.orders.value = "1 stay"
    settle(panel)
    turned = FakeView(
        [node("n1")],
        [job(one, place=number + 1, priority=3 - number) for number, one in enumerate(reversed(ids))],
    )
    mirror.show(turned)
    settle(panel)
    assert (texts(panel), queue.changed.description) == (ids, "2 changes, show")
    queue.orders.value = "2 go"
    settle(panel)
    assert texts(panel) == ids[::-1]
    queue.orders.value = f"3 move {ids[0]} before {ids[2]}"
    settle(panel)
    assert mock.requests[-1].body == b'{"priority":4,"time_limit_s":null,"hold":false,"release":false}'
    queue.orders.value = f"4 why {ids[0]}"
    settle(panel)
    assert queue.card.row.key == ids[0]
    queue.orders.value = f"5 open {ids[0]}"
    settle(panel)
    settle(panel)
    assert tab(panel, 3).job_id == ids[0]


def test_filter_and_whose(opened: Open) -> None:
    panel = opened()
    queue = tab(panel, 0)
    queue.whose.value = True
    wait_until(lambda: texts(panel) == ["MINE0001"], "only mine")
    queue.whose.value = False
    queue.filter.value = "queue024"
    wait_until(lambda: texts(panel) == ["QUEUE024"], "only that one")
    assert [button.disabled for button in (queue.slots[0].end, queue.slots[0].why)] == [True, True]


def test_the_form_asks_after_the_last_key_and_submits(opened: Open, mock: MockTransport) -> None:
    panel = opened("submit")
    form = tab(panel, 2)
    wait_until(lambda: "Not now" in form.answer.value, "the answer is there")
    mock.requests.clear()
    for end in range(1, 12):
        form.command.value = "sleep 12345"[:end]
    form.name.value = "typed"
    wait_until(lambda: "-- sleep 12345" in form.line.value, "the line follows")
    wait_until(
        lambda: [request.path for request in mock.requests] == ["jobs/dry-run"], "one question for all keys"
    )
    form.submit.click()
    wait_until(lambda: "Submitted typed as MOCK0000" in panel.said.value, "it is submitted")
    assert [(spec.command, spec.gpus, spec.name) for spec in mock.specs] == [(("sleep", "12345"), 1, "typed")]
    form.time_limit.value = "soon"
    wait_until(lambda: "Time limit is not a time" in form.answer.value, "the mistake is said")


def test_a_free_gpu_is_asked_for_by_a_click(opened: Open, mock: MockTransport) -> None:
    panel = opened("submit")
    form = tab(panel, 2)
    settle(panel)
    slot = form.slots[0]
    assert slot.buttons[3].tooltip == "Ask for GPU 3 of n1"
    slot.buttons[3].click()
    settle(panel)
    assert "--node-gpu-ids n1:3" in form.line.value
    assert slot.buttons[3].tooltip == "Do not ask for GPU 3 of n1"
    form.clear.click()
    settle(panel)
    assert "--gpus 1 --" in form.line.value


def test_an_offer_fills_the_form(opened: Open) -> None:
    panel = opened("submit")
    form = tab(panel, 2)
    form.gpus.value = 2
    wait_until(lambda: "1 GPU instead of 2" in form.offers[0][0].value, "an offer is there")
    form.offers[0][1].click()
    wait_until(lambda: form.gpus.value == 1, "it is taken")


def test_what_is_folded_is_made_when_it_is_opened_and_sizes_are_asked_for(
    opened: Open, mock: MockTransport
) -> None:
    panel = opened("submit")
    form = tab(panel, 2)
    assert form.more.fields == {}
    form.more.button.value = True
    wait_until(lambda: form.more.fields, "it is made")
    form.more.fields["env"].value = "LR=0.1"
    form.more.fields["inputs"].value = "cfg"
    wait_until(lambda: "--env LR=0.1" in form.line.value, "the line follows")
    assert "--in" not in form.line.value  # variables are for cells
    form.what.value = "Python cell"
    form.code.value = "print(cfg)"
    wait_until(lambda: "--in cfg\nprint(cfg)" in form.line.value, "the cell")
    form.submit.click()
    wait_until(lambda: "there is no variable cfg in this notebook" in form.answer.value, "it is said by name")
    form.more.fields["inputs"].value = ""
    form.gpus.value = 4
    wait_until(lambda: len(form._sizes) == 3, "other sizes were asked for")
    asked = [
        msgspec.json.decode(request.body or b"", type=JobSpec)
        for request in mock.requests
        if request.path == "jobs/dry-run"
    ]
    assert [(spec.nodes, spec.gpus, spec.gpus_per_node) for spec in asked][-4:] == [
        (None, 4, None),
        (None, 8, None),
        (None, 2, None),
        (2, None, 4),
    ]


def test_a_job_is_read_while_its_tab_is_in_front(
    opened: Open, mock: MockTransport, mirror: FakeMirror
) -> None:
    client = Client(transport=mock)
    runs = client.submit(["true"])
    mirror.view = FakeView([node("n1")], [job(runs.id, JobState.RUNNING, nodes=("n1",), gpus=1)])
    panel = opened("job", job_id=runs.id)
    shown = tab(panel, 3)
    wait_until(lambda: runs.id in shown.head.value, "the job is shown")
    assert "running, n1, 1 GPU" in shown.head.value
    reader = wait_until(lambda: shown._reader, "it is read")
    panel.tabs.selected_index = 0
    settle(panel)
    assert shown._reader is None
    assert reader._stopped.is_set()
    runs.cancel()


def test_stale_is_shown_and_goes_away(opened: Open, mirror: FakeMirror) -> None:
    panel = opened()
    stale = FakeView(list(mirror.view.nodes.values()), list(mirror.view.jobs.values()), state="stale")
    stale.stale_since = NOW
    mirror.show(stale)
    wait_until(lambda: "No connection to the Jupyter server" in panel.banner.value, "it says so")
    assert "mgpu-stale" in panel.widget._dom_classes
    mirror.show(FakeView(list(mirror.view.nodes.values())))
    wait_until(lambda: panel.banner.value == "", "nothing is said any more")


def test_closing_the_widget_stops_everything(opened: Open, mirror: FakeMirror) -> None:
    panel = opened()
    panel.widget.close()
    assert panel.closed
    assert mirror.readers == []
    assert panel.loop.join(10)


def test_a_mistake_inside_is_said_and_not_the_end(opened: Open) -> None:
    panel = opened()
    panel.loop.post(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    wait_until(lambda: "ZeroDivisionError" in panel.said.value, "it is said")
    settle(panel)
