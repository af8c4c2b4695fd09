"""The tab GPUs: every node as a row with its wall, and the chosen one GPU by GPU with its last ten minutes.

The list is one group of radio buttons (one tab stop, arrows move) with the walls drawn over it, in chunks: a
reading of one node sends ten nodes, not all. The history is asked for once when a node is chosen; after that
it grows with the mirror's readings.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import ipywidgets as widgets

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.notebook.panel.gpu_views import (
    PLOT_SPAN_S,
    Points,
    Sort,
    lines_of,
    node_html,
    nodes_in_order,
    walls_html,
)
from mgpu_jupyter.notebook.panel.marks import NAMES
from mgpu_jupyter.notebook.panel.parts import Choice, Host, Kit, Section, show_if
from mgpu_jupyter.notebook.panel.seen import Seen
from mgpu_jupyter.notebook.panel.track import Track

CHUNK = 10
MANY = 8
TYPING_S = 0.15
HISTORY_POINTS = 300
SIMULATED = '<span class="mgpu-issim">simulated</span>'


class GpusTab:
    """The list on the left, one node on the right."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._kit = kit = Kit()
        self._order: list[NodeId] = []
        self._node: NodeId | None = None
        self._text = ""
        self._lines = 1
        self._sort: Sort = "name"
        self._track: Track[int] = Track(PLOT_SPAN_S)
        self.count = kit.section()
        self.filter = widgets.Text(
            placeholder="node, state, GPU", continuous_update=True, layout=widgets.Layout(width="130px")
        )
        self.sort = widgets.Dropdown(
            options=["name", "free first", "mine first"], layout=widgets.Layout(width="110px")
        )
        self.filter.tooltip, self.sort.tooltip = "Show only nodes with these words", "Order of the nodes"
        self.filter.observe(self._typed, "value")
        self.sort.observe(lambda change: host.loop.post(partial(self._sorted, change["new"])), "value")
        self.tools = kit.row(self.filter, self.sort)
        self.names = widgets.RadioButtons(options=[], layout=widgets.Layout(width="100%"))
        self.names.add_class("mgpu-names")
        self._names = Choice(self.names, self._picked)
        self.walls: list[Section] = []
        self._walls_box = kit.column(classes=("mgpu-walls",))
        self.empty = kit.section()
        self.detail = kit.section()
        self.list = kit.column(self.names, self._walls_box, classes=("mgpu-list",))
        # Checkboxes, since a screen reader tells whether they are on; the style sheet draws a tile in place
        # of the box.
        self.legend = {
            state: kit.check(name, self._toggled, f"mgpu-is-{state}") for state, name in NAMES.items()
        }
        legend = kit.row(*self.legend.values(), kit.section(SIMULATED).widget, classes=("mgpu-legend",))
        left = kit.column(
            self.count.widget, self.tools, self.list, self.empty.widget, legend, classes=("mgpu-left",)
        )
        right = kit.column(self.detail.widget, classes=("mgpu-detail",))
        self.box = kit.row(left, right, classes=("mgpu-split",))

    def shown(self) -> None:
        """Ask for what happened while the tab was hidden."""
        if self._node is not None:
            self._fetch(self._node)

    def hidden(self) -> None:
        """Forget the history, since it would have gaps."""
        self._track.clear()

    def draw(self, seen: Seen) -> None:
        """Show what changed."""
        order = nodes_in_order(seen, self._sort, self._text)
        show_if(self.tools, len(seen.nodes) > MANY)
        nodes = "Nodes" if len(order) == len(seen.nodes) else f"{len(order)} of {len(seen.nodes)} nodes"
        self.count.show(
            f'<div class="quiet n mgpu-ends"><span>{nodes}</span><span>{seen.free} of {seen.all_gpus} '
            f"free</span></div>"
        )
        self.empty.show(
            ""
            if order
            else '<p class="quiet">No node matches.</p>'
            if seen.nodes
            else "<p>No machines yet</p><p class='quiet'>Run <code>mgpu_node --node-id NAME</code> on a "
            "machine with GPUs.</p>"
        )
        if order != self._order:
            self._order = order
            self._list_anew(order)
        lines = lines_of(seen, order)
        if lines != self._lines:
            self.list.remove_class(f"mgpu-lines{self._lines}")
            self._lines = lines
            self.list.add_class(f"mgpu-lines{lines}")
        for number, section in enumerate(self.walls):
            section.show(walls_html(seen, order[number * CHUNK : (number + 1) * CHUNK], lines))
        if self._node is None or self._node not in seen.nodes:
            self._node = order[0] if order else None
            if self._node is not None:
                self._host.loop.post(partial(self._fetch, self._node))
        if self._node is None:
            self.detail.show("")
            return
        for gpu in seen.gpus(self._node):
            self._track.add(gpu.index, seen.now, gpu.utilisation_percent)
        self.detail.show(node_html(seen, self._node, self._points(), seen.now - PLOT_SPAN_S))

    def _points(self) -> Points:
        return dict(self._track.lines)

    def _list_anew(self, order: list[NodeId]) -> None:
        chosen = self._node if self._node in order else order[0] if order else None
        self._names.offer([(str(node), str(node)) for node in order], None if chosen is None else str(chosen))
        wanted = -(-len(order) // CHUNK)
        if wanted != len(self.walls):
            self.walls = [
                *self.walls[:wanted],
                *(self._kit.section() for _ in range(wanted - len(self.walls))),
            ]
            self._walls_box.children = [section.widget for section in self.walls]

    def _toggled(self) -> None:
        self._host.loop.post(self._dim)

    def _dim(self) -> None:
        """Dim all states but those that are on in the legend; none on means all. The style sheet does it,
        nothing is redrawn.
        """
        on = [f"mgpu-only-{state}" for state, box in self.legend.items() if box.value]
        self.box._dom_classes = ("mgpu-split", *(("mgpu-only", *on) if on else ()))  # noqa: SLF001 - together, in one message

    # --- actions of the user -------------------------------------------------------------------------

    def _typed(self, change: dict[str, Any]) -> None:
        self._host.loop.later(TYPING_S, "gpus-filter", partial(self._filtered, str(change["new"])))

    def _filtered(self, text: str) -> None:
        self._text = text
        self._host.draw()

    def _sorted(self, sort: Sort) -> None:
        self._sort = sort
        self._host.draw()

    def _picked(self, name: str | None) -> None:
        if name is not None:
            self._host.loop.post(partial(self._choose, NodeId(name)))

    def _choose(self, node: NodeId) -> None:
        if node != self._node:
            self._node = node
            self._fetch(node)
            self._host.draw()

    def _fetch(self, node: NodeId) -> None:
        self._track.clear()
        try:
            told = self._host.client.node_history(node, span=PLOT_SPAN_S, points=HISTORY_POINTS)
        except MgpuError:
            return  # the plot begins now
        for gpu in told.gpus:
            for at, busy in zip(told.times, gpu.busy, strict=False):
                self._track.add(gpu.index, at, busy)
        self._host.draw()
