"""The tab Submit on a loop that does everything at once: what is asked, offered and submitted."""

from __future__ import annotations

from typing import Any

import msgspec

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.client.mock import Play
from mgpu_jupyter.model.job import JobSpec, NodeState
from mgpu_jupyter.notebook.panel.seen import Picked
from mgpu_jupyter.notebook.panel.submit_tab import SubmitTab
from tests.notebook.panel_stub import Panel, hidden
from tests.notebook.panel_world import FakeView, gpu, node
from tests.notebook.visible import visible


def submit_tab(*nodes: models.Node, play: Play | None = None) -> tuple[Any, Panel]:
    panel = Panel(FakeView(nodes or [node("n1", 2)]), play or Play(hold=True))
    tab = panel.show(SubmitTab(panel))  # type: ignore[arg-type]
    panel.loop.run("dry-run")
    return tab, panel


def line(tab: Any) -> str:
    return "".join(visible(tab.line.value)[:2])


def test_a_form_asks_what_would_become_of_it() -> None:
    tab, panel = submit_tab()
    assert panel.asked == ["POST jobs/dry-run"]
    assert visible(tab.answer.value)[:2] == ["(running)", "Starts now"]
    tab.gpus.value, tab.nodes.value, tab.name.value, tab.command.value = 2, 3, "n", "ls"
    tab.time_limit.value = "01:00:00"
    panel.loop.run("form")
    assert "mgpu-old" in tab.answer.value
    panel.loop.run("dry-run")
    assert "mgpu-old" not in tab.answer.value
    assert line(tab).replace(" ", "") == (
        "%mgpu_srun --nodes 3 --gpus-per-node 2 -t 01:00:00 --name n -- ls".replace(" ", "")
    )
    spec = msgspec.json.decode(panel.mock.requests[-1].body or b"", type=JobSpec)
    assert (spec.nodes, spec.gpus_per_node, spec.time_limit_s, spec.name, spec.command) == (
        3,
        2,
        3600.0,
        "n",
        ("ls",),
    )
    assert "--name n -- ls" in tab.write.value


def test_other_sizes_are_asked_for_one_after_the_other() -> None:
    tab, panel = submit_tab()
    panel.loop.run("sizes")
    panel.loop.run("sizes")
    told = [visible(section.value) for section, _ in tab.offers]
    assert told[:2] == [["1 × 2 would start now."], ["2 × 1 would start now."]]
    assert [hidden(row) for row in tab._offer_rows] == [False, False, True, True]
    tab.offers[0][1].click()
    assert tab.gpus.value == 2
    assert "form" not in panel.loop.waiting
    panel.loop.run("dry-run")
    tab.hidden()
    count = len(panel.asked)
    panel.loop.run("sizes")
    tab._check()
    assert len(panel.asked) == count


def test_mistakes_are_said_in_words() -> None:
    tab, panel = submit_tab()
    tab.time_limit.value = "soon"
    panel.loop.run("form")
    panel.loop.run("dry-run")
    assert visible(tab.answer.value) == [
        *("(warning)", "Time limit is not a time", "Write hours, minutes and seconds, like 02:00:00.")
    ]
    tab.time_limit.value = ""
    panel.loop.run("form")
    panel.mock.failures[:] = [MgpuError("x", "Down.")]
    panel.loop.run("dry-run")
    assert visible(tab.answer.value) == ["(warning)", "Down."]
    tab.submit.click()
    assert visible(tab.answer.value)[1].startswith("Write the command that is to run, like python train.py")
    assert not tab.submit.disabled
    assert panel.said == []


def test_a_job_is_submitted() -> None:
    tab, panel = submit_tab()
    tab.command.value, tab.name.value = "ls", "probe"
    panel.loop.run("form")
    tab.submit.click()
    assert panel.asked[-1] == "POST jobs"
    assert panel.said[0].startswith("Submitted probe as MOCK0000 at ")
    tab.name.value = ""
    panel.loop.run("form")
    tab.submit.click()
    assert panel.said[1].startswith("Submitted the job as MOCK0001 at ")
    assert panel.said[1].endswith(".")


def test_python_in_place_of_a_command() -> None:
    tab, panel = submit_tab()
    assert (hidden(tab.code), hidden(tab.command)) == (True, False)
    tab.what.value = "Python cell"
    tab.code.value = "a = 1"
    panel.loop.run("form")
    assert (hidden(tab.code), hidden(tab.command)) == (False, True)
    panel.loop.run("dry-run")
    assert msgspec.json.decode(panel.mock.requests[-1].body or b"", type=JobSpec).script == "a = 1"
    tab.what.value = "Command"
    panel.loop.run("form")
    assert (hidden(tab.code), hidden(tab.command)) == (True, False)


def test_exactly_these_gpus() -> None:
    tab, panel = submit_tab(node("n1", [gpu(0), gpu(1, job_id="X", user="ann"), gpu(2)]), node("n2", 9))
    first, second, third = tab.slots[:3]
    assert [(slot.row.node, slot.row.first) for slot in (first, second, third)] == [
        ("n2", 0),
        ("n2", 8),
        ("n1", 0),
    ]
    assert [hidden(slot.box) for slot in tab.slots] == [False] * 3 + [True] * 3
    assert [one.description for one in third.buttons] == [
        "Ask for GPU 0 of n1",
        "",
        "Ask for GPU 2 of n1",
        *[""] * 5,
    ]
    assert [one.disabled for one in third.buttons] == [False, True, False, *[True] * 5]
    assert second.buttons[0].description == "Ask for GPU 8 of n2"
    second.buttons[0].click()
    assert tab._form.picks == (Picked("n2", 8),)
    panel.loop.run("dry-run")
    assert (hidden(tab.clear), tab.nodes.disabled, tab.gpus.disabled) == (False, True, True)
    assert "--node-gpu-ids n2:8" in tab.write.value
    slot = next(
        one for one in tab.slots if one.row is not None and (one.row.node, one.row.first) == ("n2", 8)
    )
    assert slot.buttons[0].description == "Do not ask for GPU 8 of n2"
    tab._pick(tab.slots.index(slot), 1)
    assert tab._form.picks == (Picked("n2", 8),)
    slot.buttons[0].click()
    assert (tab._form.picks, hidden(tab.clear)) == ((), True)
    slot = next(one for one in tab.slots if one.row is not None and one.row.node == "n1")
    slot.buttons[2].click()
    tab.clear.click()
    assert tab._form.picks == ()


def test_kinds_of_gpus_are_offered() -> None:
    tab, panel = submit_tab(
        node("n1", [gpu(0, name="NVIDIA A100"), gpu(1)]), node("n2", 1, state=NodeState.DRAINING)
    )
    assert list(tab.kind.options) == [
        ("any", ""),
        ("A100  1 free", "A100"),
        ("H100 80GB  1 free", "H100 80GB"),
    ]
    tab.kind.value = "A100"
    panel.loop.run("form")
    panel.loop.run("dry-run")
    assert "--gpu-type A100" in tab.write.value
    panel.view = FakeView([node("n1", 1)])
    panel.draw()
    assert tab.kind.value == ""


def test_more_fields_are_made_when_they_are_opened() -> None:
    tab, panel = submit_tab()
    more = tab.more
    assert (more.fields, hidden(more.box)) == ({}, True)
    more.button.value = True
    assert not hidden(more.box)
    assert {"flags", "array", "inputs", "outputs"} <= set(more.fields)
    assert not {"nodes", "name", "slurm_time"} & set(more.fields)
    assert hidden(more._variables)
    more.fields["array"].value = "1-3"
    more.fields["inputs"].value = "a"
    more.fields["flags"].value = "--gpu-mem 20G"
    panel.loop.run("form")
    assert dict(more.value.values) == {"array": "1-3"}
    assert "--gpu-mem 20G" in line(tab)
    assert "--array 1-3" in line(tab)
    assert "--in" not in line(tab)
    tab.what.value = "Python cell"
    panel.loop.run("form")
    assert dict(more.value.values) == {"array": "1-3", "inputs": "a"}
    assert not hidden(more._variables)
    more.button.value = False
    assert hidden(more.box)


def test_an_answer_that_is_old_is_asked_for_again() -> None:
    tab, panel = submit_tab()
    panel.loop.waiting.clear()
    panel.draw()
    assert list(panel.loop.waiting) == ["dry-run"]
    tab.hidden()
    panel.loop.waiting.clear()
    panel.draw()
    assert panel.loop.waiting == {}
