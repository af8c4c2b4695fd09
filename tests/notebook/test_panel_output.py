"""What comes to the panel by itself: output of a job, readings, options, offers of a job that waits long."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import ipywidgets as widgets
import pytest

from mgpu_jupyter import Client
from mgpu_jupyter.client.mock import MockTransport, Play, Say
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.header_updates import LONG_WAIT_S, HeaderUpdates
from mgpu_jupyter.notebook.panel import Panels, Wanted
from mgpu_jupyter.notebook.panel.panel import Panel
from mgpu_jupyter.notebook.panel.parts import Choice
from tests.notebook.conftest import Shell
from tests.notebook.panel_world import FakeMirror, FakeView, job, node, tab
from tests.notebook.test_header import a_job
from tests.processes import wait_until

Open = Callable[..., Panel]


@pytest.fixture
def opened() -> Iterator[Open]:
    made: list[Panel] = []

    def open_panel(mirror: FakeMirror, transport: MockTransport, tab: str, **fields: Any) -> Panel:
        made.append(Panel(Client(transport=transport), mirror, {}, tab=tab, **fields))
        made[-1].open()
        return made[-1]

    yield open_panel
    for panel in made:
        panel.close()
        assert panel.loop.join(10)


def test_what_a_job_prints_comes_to_its_tab(opened: Open) -> None:
    prints = MockTransport(lambda _: Play(output=(Say(b"first line\n"), Say(b"second <b>\n", "stderr"))))
    runs = Client(transport=prints).submit(["true"])
    mirror = FakeMirror(FakeView([node("n1")], [job(runs.id, JobState.RUNNING, nodes=("n1",), gpus=1)]))
    shown = tab(opened(mirror, prints, "job", job_id=runs.id), 3)
    wait_until(lambda: "second" in shown.lines.value, "all that it printed is shown")
    found = re.findall(r"first line|second &lt;b&gt;|<b>", shown.lines.value)
    assert found == ["first line", "second &lt;b&gt;"]


def test_readings_become_points_of_the_nodes_plot(opened: Open) -> None:
    shown = tab(opened(FakeMirror(FakeView([node("n1")])), MockTransport(), "gpus"), 1)
    wait_until(lambda: shown.detail.value.count('<path class="n"') == 8, "a point of each GPU is drawn")


def test_a_panel_is_displayed_with_a_sentence_for_front_ends_without_widgets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[dict[str, Any], bool]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw=False: seen.append((data, raw)))
    panels = Panels(None, Client(transport=MockTransport()))
    panels.show(Wanted("queue", ""), {})
    panels.close()
    ((bundle, is_raw),) = seen
    assert is_raw, "it is a bundle, not a value"
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert re.fullmatch(r"\d+ of \d+ GPUs free\. .+", bundle["text/plain"])


def test_options_change_under_a_choice_that_stays() -> None:
    widget = widgets.ToggleButtons(options=[("All", -1), ("0", 0)], value=0)
    told: list[int] = []
    sent: list[str] = []
    choice = Choice(widget, told.append)
    widget.observe(lambda change: sent.append(change["name"]), ["options", "value", "index"])
    choice.offer([("All", -1), ("0", 0)], 0)
    assert sent == [], "that is how it is"
    choice.offer([("All", -1), ("0", 0), ("1", 1)], 0)
    assert (widget.options, widget.value, told) == ((("All", -1), ("0", 0), ("1", 1)), 0, [])
    widget.value = 1
    assert told == [1]


def test_offers_are_asked_for_when_a_job_has_waited_long(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.plays(lambda _: Play(waits=True, reason="Waits for 2 GPUs."))
    submitted = shell.run("%mgpu_srun --background -- x").result
    header: Any = SimpleNamespace(
        show=lambda _: None, settle=lambda: None, widgets=lambda _: 0, end=lambda: None, remove=lambda: None
    )
    updates = HeaderUpdates(lambda _: header, is_rich=True, lines_of=lambda *_: ())
    updates.job = submitted

    def asked() -> int:
        return sum(request.path.endswith("/explain") for request in shell.mock.requests)

    now = time.monotonic() + 1000.0
    monkeypatch.setattr("mgpu_jupyter.notebook.header_updates.time.monotonic", lambda: now)
    updates.changed(a_job(JobState.QUEUED))
    assert asked() == 0, "it has only just begun to wait"
    now += LONG_WAIT_S
    updates.changed(a_job(JobState.QUEUED))
    assert asked() == 1
    monkeypatch.undo()
    updates.close()
