"""One panel: four tabs over the kernel's one mirror of the cluster. Only the tab in front draws, and only
what changed is sent.

The mirror calls on its own thread and the front end on another; both post to the panel's loop, which alone
changes what is shown. Comm messages from there have no parent cell, so that they never appear in the output
of a running cell.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import ipywidgets as widgets

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.notebook.panel.gpus_tab import GpusTab
from mgpu_jupyter.notebook.panel.job_tab import JobTab
from mgpu_jupyter.notebook.panel.loop import Loop
from mgpu_jupyter.notebook.panel.marks import esc, glyph
from mgpu_jupyter.notebook.panel.parts import Kit, Tab, has_class, show_if
from mgpu_jupyter.notebook.panel.pulse import ASK_S, Pulse
from mgpu_jupyter.notebook.panel.queue_tab import QueueTab
from mgpu_jupyter.notebook.panel.seen import Live, Seen
from mgpu_jupyter.notebook.panel.submit_tab import SubmitTab
from mgpu_jupyter.notebook.panel.theme import style

NAMES = ("queue", "gpus", "submit", "job")
TITLES = ("Queue", "GPUs", "Submit", "Job")
QUEUE, GPUS, SUBMIT, JOB = range(4)
TICK_S = 2.0
SAID_S = 12.0
FIRST_VIEW_S = 5.0
PER_SECOND = 2.0


class Reader(Protocol):
    """What is needed of a reader of the mirror."""

    @property
    def view(self) -> Live:
        """The newest state."""

    def close(self) -> None:
        """Release the mirror."""


class Mirror(Protocol):
    """What is needed of the mirror."""

    def reader(self, on_change: Callable[[Any, Any], None] | None = None, per_second: float = 2.0) -> Reader:
        """Begin to read."""


class Panel:
    """The widgets of one `%mgpu_panel`, and what updates them. `close` ends it, and so does closing its
    widget.
    """

    def __init__(
        self,
        client: Client,
        mirror: Mirror,
        namespace: Mapping[str, object],
        *,
        tab: str = "queue",
        job_id: str = "",
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self.client = client
        self.loop = Loop("mgpu-panel", self._failed)
        self.drawn = 0
        self.draw_s = 0.0
        """The total time spent drawing, for measurements."""
        self._namespace = namespace
        self._job_id = job_id
        self._closed = False
        self._tabs: list[Tab | None] = [None] * len(NAMES)
        self._front = NAMES.index(tab)
        self._reader = mirror.reader(self._changed, PER_SECOND)
        self._seen: Seen | None = None
        self.pulse = Pulse(is_busy, on_return=self._draw_soon)
        kit = Kit()
        self.banner, self.said = kit.section(), kit.section()
        self._boxes = [kit.column() for _ in NAMES]
        self.tabs = widgets.Tab(children=self._boxes, titles=TITLES, selected_index=self._front)
        self.tabs.observe(
            lambda change: self.loop.post(partial(self._select, change["new"])), "selected_index"
        )
        self.widget = widgets.VBox(
            [widgets.HTML(style()), self.banner.widget, self.tabs, self.said.widget, self.pulse.widget]
        )
        self.widget.add_class("mgpu-panel")
        self.widget.observe(self._widget_closed, "comm")

    def open(self) -> None:
        """Fill the tab in front and start; call it once, before the widget is shown."""
        deadline = time.monotonic() + FIRST_VIEW_S
        while self._reader.view.state == "connecting" and time.monotonic() < deadline:
            time.sleep(0.02)
        self._show_front()
        self.loop.start()
        self.loop.post(self._begin)

    def close(self) -> None:
        """Stop; what is shown stays as it is."""
        if self._closed:
            return
        self._closed = True
        self.loop.stop()
        self._reader.close()
        for tab in self._tabs:
            if tab is not None:
                tab.hidden()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    # --- for the tabs ----------------------------------------------------------------------------------

    @property
    def seen(self) -> Seen:
        """The cluster as it is now."""
        return Seen(self._reader.view)

    @property
    def namespace(self) -> Mapping[str, object]:
        """The notebook's variables."""
        return self._namespace

    def draw(self) -> None:
        """Show what changed in the tab in front; on the loop's thread."""
        if self._closed or self.pulse.is_silent:
            return
        started = time.perf_counter()
        seen = self.seen
        self._draw_banner(seen)
        tab = self._tabs[self._front]
        if tab is not None:
            tab.draw(seen)
        self.drawn += 1
        self.draw_s += time.perf_counter() - started

    def open_job(self, job_id: str) -> None:
        """Show a job in the tab Job."""
        self._job_id = job_id
        tab = self._tabs[JOB]
        if isinstance(tab, JobTab):
            tab.open(job_id)
        self.tabs.selected_index = JOB

    def say(self, text: str) -> None:
        """Show a message in a line below the tabs, which screen readers announce."""
        self.said.show(f'<div class="quiet" role="status" aria-live="polite">{esc(text)}</div>')
        self.loop.later(SAID_S, "said", lambda: self.said.show(""))
        self.draw()

    # --- inside ------------------------------------------------------------------------------------------

    def _changed(self, _view: object, _changes: object) -> None:
        if self._closed:
            self._reader.close()
        else:
            self.loop.soon(0.0, "draw", self.draw)

    def _draw_soon(self) -> None:
        self.loop.soon(0.0, "draw", self.draw)

    def _begin(self) -> None:
        tab = self._tabs[self._front]
        if tab is not None:
            tab.shown()
        self._tick()
        self.loop.later(ASK_S, "pulse", self._ask)

    def _tick(self) -> None:
        # Durations grow although nothing happens; sections that stay the same are not sent.
        self.draw()
        self.loop.later(TICK_S, "tick", self._tick)

    def _ask(self) -> None:
        self.pulse.ask()
        self.loop.later(ASK_S, "pulse", self._ask)

    def _select(self, index: int | None) -> None:
        self.pulse.heard()
        if index is None or index == self._front:
            return
        behind = self._tabs[self._front]
        if behind is not None:
            behind.hidden()
        self._front = index
        self._show_front()
        tab = self._tabs[index]
        if tab is not None:
            tab.shown()

    def _show_front(self) -> None:
        if self._tabs[self._front] is None:
            made: Tab
            match self._front:
                case 0:
                    made = QueueTab(self)
                case 1:
                    made = GpusTab(self)
                case 2:
                    made = SubmitTab(self)
                case _:
                    made = JobTab(self, self._job_id)
            self._tabs[self._front] = made
            self.draw()
            self._boxes[self._front].children = [made.box]
        else:
            self.draw()

    def _draw_banner(self, seen: Seen) -> None:
        view = seen.view
        if view.state in ("live", "connecting") and view.cluster is not None:
            self.banner.show("")
            stale = False
        else:
            self.banner.show(stale_html(view, seen.now))
            stale = view.cluster is not None
        if stale != has_class(self.widget, "mgpu-stale"):
            (self.widget.add_class if stale else self.widget.remove_class)("mgpu-stale")
        show_if(self.banner.widget, bool(self.banner.value))

    def _failed(self, error: BaseException) -> None:
        self.say(
            error.message
            if isinstance(error, MgpuError)
            else f"The panel failed: {type(error).__name__}: {error}. Run the cell again."
        )

    def _widget_closed(self, change: dict[str, Any]) -> None:
        if change["new"] is None:
            self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def stale_html(view: Live, now: float) -> str:
    """Return why the data shown may be out of date."""
    if view.state == "connecting":
        return '<div class="mgpu-note quiet" role="status">Connecting…</div>'
    since = (
        f" since {time.strftime('%H:%M:%S', time.localtime(view.stale_since))}" if view.stale_since else ""
    )
    retry = f" Trying again in {max(view.retry_at - now, 1):.0f} s." if view.retry_at else ""
    problem = f" {esc(view.problem)}" if view.problem else ""
    text = f"No connection to the Jupyter server{since}. Running jobs go on.{retry}{problem}"
    return f'<div class="mgpu-note" role="status">{glyph("warning", "warn")} {text}</div>'
