"""The tab Job on a loop that does everything at once: what is read, shown and ordered."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.api.frames import OutputFrame
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import Play
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.notebook.panel import job_tab
from mgpu_jupyter.notebook.panel.job_tab import JobTab
from tests.notebook.panel_stub import Panel, hidden
from tests.notebook.panel_world import NOW, FakeView, gpu, job, node
from tests.notebook.visible import visible


class Reader:
    """Reads nothing; keeps what it would tell."""

    made: ClassVar[list[Reader]] = []

    def __init__(self, _client: Client, info: models.Job, **tells: Any) -> None:
        self.info, self.tells, self.stopped = info, tells, False
        Reader.made.append(self)

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[Reader]:
    monkeypatch.setattr(job_tab, "LogReader", Reader)
    Reader.made = []
    return Reader.made


def job_panel(*jobs: models.Job, job_id: str = "", **fields: Any) -> tuple[Any, Panel]:
    held = gpu(0, job_id="MOCK0000", user="me", utilisation_percent=90.0)
    panel = Panel(FakeView([node("n1", [held, gpu(1)])], jobs, **fields), Play(hold=True))
    panel.client.submit_spec(JobSpec(command=("x",)))
    panel.mock.requests.clear()
    return panel.show(JobTab(panel, job_id)), panel  # type: ignore[arg-type]


PLACE = models.Placement(node=NodeId("n1"), rank=0, gpus=(), gpu_indices=(0,))
RUNS = job("MOCK0000", JobState.RUNNING, name="train", nodes=("n1",), placements=(PLACE,))


def test_a_job_is_chosen(readers: list[Reader]) -> None:
    others = [
        job("DONE0001", JobState.COMPLETED, name="done", ended_at=NOW),
        job("WAIT0001", name="waits"),
        job("WAIT0002", name="later", submitted_at=NOW - 50),
        job("ANNS0001", user="ann"),
    ]
    tab, panel = job_panel(RUNS, *others)
    assert visible(tab.head.value) == ["Choose one of your jobs, or open one in the tab Queue."]
    assert [value for _, value in tab.chooser.options] == ["", "MOCK0000", "WAIT0002", "WAIT0001", "DONE0001"]
    assert tab.chooser.options[1][0] == "train · MOCK0000"
    assert [hidden(one) for one in (tab.body, tab.again, tab.cancel, tab.sure)] == [True] * 4
    tab.chooser.value = "MOCK0000"
    assert (tab.job_id, [one.info.id for one in readers]) == ("MOCK0000", ["MOCK0000"])
    assert [hidden(one) for one in (tab.body, tab.again, tab.cancel, tab.sure)] == [False, True, False, True]
    assert panel.asked == ["GET jobs/MOCK0000/usage"]
    assert visible(tab.head.value)[1:3] == ["train", "MOCK0000"]


def test_a_job_that_is_not_in_the_list_is_asked_for(readers: list[Reader]) -> None:
    tab, panel = job_panel(job_id="MOCK0000")
    assert (panel.asked[0], panel.asked[-1]) == ("GET jobs/MOCK0000", "GET jobs/MOCK0000/usage")
    assert [value for _, value in tab.chooser.options] == ["", "MOCK0000"]
    tab, panel = job_panel(job_id="NONE0000")
    assert visible(tab.head.value) == ["There is no job NONE0000: see `mgpu_queue --all`."]
    assert len(readers) == 1


def test_what_it_makes_of_its_gpus(readers: list[Reader]) -> None:
    tab, panel = job_panel(RUNS, job_id="MOCK0000")
    assert visible(tab.efficiency.value) == ["asked", "4", ", used", "0.7", "Use", "--gpus 1", "."]
    assert visible(tab.plots.value)[0] == "n1:0"
    assert "mean 70 percent" in tab.plots.value
    over = replace(RUNS, state=JobState.COMPLETED, ended_at=NOW)
    panel.view = FakeView([node("n1", 1)], [over])
    panel.draw()
    assert panel.asked.count("GET jobs/MOCK0000/usage") == 2
    assert visible(tab.efficiency.value)[3] == "0.6"
    assert "mean 60 percent" in tab.plots.value
    assert [hidden(one) for one in (tab.again, tab.cancel)] == [False, True]
    assert len(readers) == 1


def test_a_new_attempt_is_read_anew(readers: list[Reader]) -> None:
    tab, panel = job_panel(RUNS, job_id="MOCK0000")
    panel.view = FakeView([node("n1", 1)], [replace(RUNS, attempt=2)])
    panel.draw()
    assert (len(readers), readers[0].stopped, readers[1].stopped) == (2, True, False)
    tab.hidden()
    assert readers[1].stopped
    tab.open("MOCK0000")
    assert len(readers) == 2
    tab.shown()
    assert len(readers) == 3


def test_its_log(readers: list[Reader]) -> None:
    both = (PLACE, replace(PLACE, rank=1))
    tab, panel = job_panel(replace(RUNS, placements=both), job_id="MOCK0000")
    tells = readers[0].tells
    for rank in range(2):
        tells["on_output"](OutputFrame(rank=rank, stream="stdout", offset=0, data=b"line %d\n" % rank))
    panel.loop.run("log")
    assert visible(tab.lines.value) == ["0", "line 0", "1", "line 1"]
    assert visible(tab.count.value) == ["last 2 of 2 lines"]
    assert [text for text, _ in tab.chips.options] == ["All", "0", "1"]
    tab.chips.value = 1
    assert visible(tab.lines.value) == ["1", "line 1"]
    tab.chips.value = -1
    tells["on_start"](False)
    tells["on_end"]("It is over.")
    assert visible(tab.lines.value)[-1] == "It is over."
    assert visible(tab.count.value) == ["last 2 lines"]
    tab.open("MOCK0000")
    tells["on_end"]("Too late.")
    assert visible(tab.lines.value) == ["No output yet."]


def test_run_again_and_cancel(readers: list[Reader]) -> None:
    tab, panel = job_panel(RUNS, job_id="MOCK0000")
    tab.cancel.click()
    assert not hidden(tab.sure)
    tab.cancel.click()
    assert hidden(tab.sure)
    tab.cancel.click()
    tab.sure.click()
    assert (panel.asked[-1], panel.said, hidden(tab.sure)) == (
        "POST jobs/MOCK0000/cancel",
        ["train is being cancelled."],
        True,
    )
    tab.again.click()
    assert (panel.said[-1], tab.job_id) == ("Runs again as MOCK0001.", "MOCK0001")
    for button in (tab.again, tab.sure):
        panel.mock.failures[:] = [MgpuError("x", "Down.")]
        button.click()
        assert panel.said[-1] == "Down."
    empty, quiet = job_panel()
    empty.again.click()
    empty.sure.click()
    assert quiet.asked == []
