"""The tab GPUs on a loop that does everything at once: nodes, their order, the chosen one."""

from __future__ import annotations

from typing import Any

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.notebook.panel.gpus_tab import GpusTab
from mgpu_jupyter.notebook.panel.parts import has_class
from tests.notebook.panel_stub import Panel, hidden
from tests.notebook.panel_world import FakeView, gpu, node
from tests.notebook.visible import visible


def gpus_tab(*nodes: models.Node) -> tuple[Any, Panel]:
    panel = Panel(FakeView(nodes))
    return panel.show(GpusTab(panel)), panel  # type: ignore[arg-type]


def test_the_list_of_nodes_and_the_first_of_them() -> None:
    tab, panel = gpus_tab(node("n2", 2), node("n1", 1))
    assert visible(tab.count.value) == ["Nodes", "3 of 3 free"]
    assert [value for _, value in tab.names.options] == ["n1", "n2"]
    assert tab.names.value == "n1"
    assert visible(tab.walls[0].value) == ["(n1: 1 free)", "(n2: 2 free)"]
    assert visible(tab.detail.value)[0] == "n1"
    assert panel.asked == ["GET nodes/n1/history"]
    assert panel.mock.requests[0].query == {"span": "600", "points": "300"}
    assert hidden(tab.tools)
    assert tab.empty.value == ""


def test_another_node_is_chosen() -> None:
    tab, panel = gpus_tab(node("n1", 1), node("n2", 2))
    tab.names.value = "n2"
    assert visible(tab.detail.value)[0] == "n2"
    assert panel.asked[-1] == "GET nodes/n2/history"
    count = len(panel.asked)
    panel.draw()
    assert len(panel.asked) == count
    panel.view = FakeView([node("n1", 1)])
    panel.draw()
    assert visible(tab.detail.value)[0] == "n1"
    assert tab.names.value == "n1"
    tab.hidden()
    tab.shown()
    assert panel.asked[-1] == "GET nodes/n1/history"


def test_many_nodes_can_be_searched_and_sorted() -> None:
    busy = node("a01", [gpu(0, job_id="X", user="ann")])
    tab, panel = gpus_tab(busy, *(node(f"n{number:02}", 1) for number in range(10)))
    assert not hidden(tab.tools)
    assert len(tab.walls) == 2
    tab.sort.value = "free first"
    assert [value for _, value in tab.names.options][:2] == ["n00", "n01"]
    tab.filter.value = "n0"
    panel.loop.run("gpus-filter")
    assert visible(tab.count.value) == ["10 of 11 nodes", "10 of 11 free"]
    assert len(tab.walls) == 1
    tab.filter.value = "zzz"
    panel.loop.run("gpus-filter")
    assert (visible(tab.empty.value), tab.walls, len(tab.names.options)) == (["No node matches."], [], 0)


def test_no_nodes_and_no_history() -> None:
    tab, panel = gpus_tab()
    assert visible(tab.empty.value)[:2] == ["No machines yet", "Run"]
    assert tab.detail.value == ""
    panel.mock.failures[:] = [MgpuError("x", "Down.")]
    panel.view = FakeView([node("n1", 1)])
    panel.draw()
    assert visible(tab.detail.value)[0] == "n1"


def test_walls_of_many_gpus_are_higher_and_states_are_dimmed() -> None:
    tab, panel = gpus_tab(node("n1", 9))
    assert has_class(tab.list, "mgpu-lines2")
    panel.view = FakeView([node("n1", 2)])
    panel.draw()
    assert (has_class(tab.list, "mgpu-lines2"), has_class(tab.list, "mgpu-lines1")) == (False, True)
    tab.legend["mine"].value = True
    assert tab.box._dom_classes == ("mgpu-split", "mgpu-only", "mgpu-only-mine")
    tab.legend["mine"].value = False
    assert tab.box._dom_classes == ("mgpu-split",)
