"""The tab GPUs: every node as a row with its wall, and the chosen one GPU by GPU with its last ten minutes.

The list is one group of radio buttons (one tab stop, arrows move) with the walls drawn over it, in chunks: a reading of one node sends
ten nodes, not all. The history is asked for once when a node is chosen; after that it grows by what the mirror hears.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import ipywidgets as widgets

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.notebook.panel.gpu_views import LEGEND, PLOT_SPAN_S, Points, Sort, node_html, nodes_in_order, walls_html
from mgpu_jupyter.notebook.panel.parts import Choice, Host, Section, column, row, show_if
from mgpu_jupyter.notebook.panel.seen import Seen
from mgpu_jupyter.notebook.panel.track import Track

CHUNK = 10
MANY = 8
TYPING_S = 0.15
HISTORY_POINTS = 300


class GpusTab:
    """The list on the left, one node on the right."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._order: list[NodeId] = []
        self._node: NodeId | None = None
        self._text = ""
        self._sort: Sort = "name"
        self._track: Track[int] = Track(PLOT_SPAN_S)
        self.count = Section()
        self.filter = widgets.Text(placeholder="node, state, GPU", continuous_update=True, layout=widgets.Layout(width="130px"))
        self.sort = widgets.Dropdown(options=["name", "free first", "mine first"], layout=widgets.Layout(width="110px"))
        self.filter.tooltip, self.sort.tooltip = "Show only nodes with these words", "Order of the nodes"
        self.filter.observe(self._typed, "value")
        self.sort.observe(lambda change: host.loop.post(partial(self._sorted, change["new"])), "value")
        self.tools = row(self.filter, self.sort)
        self.names = widgets.RadioButtons(options=[], layout=widgets.Layout(width="100%"))
        self.names.add_class("mgpu-names")
        self._names = Choice(self.names, self._picked)
        self.walls: list[Section] = []
        self._walls_box = column(classes=("mgpu-walls",))
        self.empty = Section()
        self.detail = Section()
        self.list = column(self.names, self._walls_box, classes=("mgpu-list",))
        left = column(self.count.widget, self.tools, self.list, self.empty.widget, Section(LEGEND).widget, classes=("mgpu-left",))
        right = column(self.detail.widget)
        right.layout.flex = "1 1 380px"
        self.box = row(left, right, classes=("mgpu-split",))

    def shown(self) -> None:
        """Ask for what happened while nobody looked."""
        if self._node is not None:
            self._fetch(self._node)

    def hidden(self) -> None:
        """Forget the history; it will have holes."""
        self._track.clear()

    def draw(self, seen: Seen) -> None:
        """Show what changed."""
        order = nodes_in_order(seen, self._sort, self._text)
        show_if(self.tools, len(seen.nodes) > MANY)
        self.count.show(f'<div class="quiet n">{len(seen.nodes)} nodes &nbsp; {seen.free} of {seen.all_gpus} GPUs free</div>')
        self.empty.show(
            ""
            if order
            else '<p class="quiet">No node matches.</p>'
            if seen.nodes
            else "<p>No machines yet</p><p class='quiet'>Run <code>mgpu_node --node-id NAME</code> on a machine with GPUs.</p>"
        )
        if order != self._order:
            self._order = order
            self._list_anew(order)
        for number, section in enumerate(self.walls):
            section.show(walls_html(seen, order[number * CHUNK : (number + 1) * CHUNK]))
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
            self.walls = [*self.walls[:wanted], *(Section() for _ in range(wanted - len(self.walls)))]
            self._walls_box.children = [section.widget for section in self.walls]

    # --- what the person does ------------------------------------------------------------------------

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
