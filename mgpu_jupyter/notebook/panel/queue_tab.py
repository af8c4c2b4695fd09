"""The tab Queue: rows with what may be done about each job, one page at a time, and the answer to "why?" below them.

While an answer or a question is open, rows keep their place and a line says how many changes wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as widgets

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.panel.explained import explained_html
from mgpu_jupyter.notebook.panel.marks import esc
from mgpu_jupyter.notebook.panel.parts import Acts, Choice, Host, Section, column, enable, has_class, rename, row, show_if
from mgpu_jupyter.notebook.panel.rows import HEAD, Row, is_held, nothing, row_html, rows_of, title
from mgpu_jupyter.notebook.panel.seen import Seen

PAGE = 10
TYPING_S = 0.15
MOVED_S = 0.5
"""A press that comes so soon after its row moved was meant for another job."""


class Slot:
    """One row on the screen: cells, and buttons that act on whichever job stands there."""

    def __init__(self, number: int, acts: Acts, act: Callable[[str, int], None]) -> None:
        self.row: Row | None = None
        self.moved_at = -MOVED_S
        """When another job came to stand here."""
        self.cells = Section()

        def button(name: str, *classes: str) -> Any:
            return acts.button(name, partial(act, name, number), f"mgpu-{name}", *classes)

        self.up, self.down = button("up", "mgpu-extra"), button("down", "mgpu-extra")
        self.why, self.hold, self.end, self.open = button("why"), button("hold"), button("end"), button("open")
        buttons = row(self.up, self.down, self.why, self.hold, self.end, self.open, classes=("mgpu-acts",))
        self.box = row(self.cells.widget, buttons, classes=("mgpu-row",))

    def show(self, seen: Seen, shown: Row | None, *, chosen: bool) -> None:
        """Show a job, or nothing."""
        if self.row is not None and (shown is None or shown.key != self.row.key):
            self.moved_at = time.monotonic()
        self.row = shown
        show_if(self.box, shown is not None)
        if shown is None:
            return
        self.cells.show(row_html(seen, shown, chosen=chosen))
        may, waits = seen.may_change(shown.job), shown.job.state is JobState.QUEUED
        name, held = title(shown.job), is_held(shown.job)
        over = shown.job.state.is_final
        for button, enabled, verb in (
            (self.up, may and waits and not held, "Raise the priority of"),
            (self.down, may and waits and not held, "Lower the priority of"),
            (self.why, may and not over, "Why does it wait:" if waits else "Where does it run:"),
            (self.hold, may and waits, "Release" if held else "Hold"),
            (self.end, may and not over, "Cancel"),
            (self.open, may, "Open"),
        ):
            enable(button, enabled)
            rename(button, f"{verb} {name}" if enabled else "")
        if held == has_class(self.hold, "mgpu-hold"):
            self.hold.remove_class("mgpu-hold" if held else "mgpu-free")
            self.hold.add_class("mgpu-free" if held else "mgpu-hold")


class QueueTab:
    """Filter, rows, pages, and a card below."""

    def __init__(self, host: Host) -> None:
        self._host = host
        acts, loop = Acts(), host.loop
        self._first = 0
        self._text, self._mine = "", False
        self._total = 0
        self._chosen = ""
        self._kept: list[str] | None = None
        """The jobs in the rows when the card was opened."""
        self._pending: Callable[[], None] | None = None
        self.filter = widgets.Text(placeholder="job, user, state", continuous_update=True, layout=widgets.Layout(width="180px"))
        self.filter.tooltip = "Show only jobs whose name, id, user, state or node has these words"
        self.whose = widgets.ToggleButtons(options=[("Mine", True), ("All", False)], value=False, style={"button_width": "auto"})
        self.filter.observe(self._typed, "value")
        self._whose = Choice(self.whose, lambda mine: loop.post(partial(self._set_whose, bool(mine))))
        self.free = Section("", "mgpu-right")
        self.slots = [Slot(number, acts, self._act) for number in range(PAGE)]
        self.empty = Section("", "quiet")
        self.before = acts.button("before", lambda: loop.post(partial(self._turn, -PAGE)), "mgpu-link")
        self.more = acts.button("more", lambda: loop.post(partial(self._turn, PAGE)), "mgpu-link")
        self.hint = Section('<span class="quiet">▴ ▾ change the priority of your own jobs</span>')
        self.changed = acts.button("changes", lambda: loop.post(self._let_go), "mgpu-link")
        self.answer = Section()
        self.yes = acts.button("Cancel the job", lambda: loop.post(self._confirmed))
        self.no = acts.button("Close", lambda: loop.post(self._close_card))
        self.card = column(self.answer.widget, row(self.yes, self.no), classes=("mgpu-card", "mgpu-hide"))
        spacer = widgets.HTML("", layout=widgets.Layout(flex="1 1 auto"))
        head = row(Section(HEAD).widget, row(classes=("mgpu-acts",)), classes=("mgpu-row", "mgpu-headrow"))
        self.box = column(
            row(self.filter, self.whose, spacer, self.free.widget, classes=("mgpu-top",)),
            head,
            *(slot.box for slot in self.slots),
            self.empty.widget,
            row(self.before, self.more, self.changed, widgets.HTML("", layout=spacer.layout), self.hint.widget, classes=("mgpu-top",)),
            self.card,
        )
        for hidden in (self.before, self.more, self.changed):
            show_if(hidden, visible=False)

    def shown(self) -> None:
        """Nothing to fetch: the mirror has it all."""

    def hidden(self) -> None:
        """Nothing to let go."""

    def draw(self, seen: Seen) -> None:
        """Show what changed."""
        everything = rows_of(seen, mine=False, text="")
        mine = [one for one in everything if seen.is_mine(one.job)]
        rows = rows_of(seen, mine=self._mine, text=self._text) if self._text.strip() else mine if self._mine else everything
        self._whose.offer(((f"Mine {len(mine)}", True), (f"All {len(everything)}", False)), self._mine)
        self._total = len(rows)
        self._first = max(0, min(self._first, (len(rows) - 1) // PAGE * PAGE))
        page = rows[self._first : self._first + PAGE]
        if self._kept is not None:
            page = self._page_as_kept(seen, page, rows)
        for number, slot in enumerate(self.slots):
            shown = page[number] if number < len(page) else None
            slot.show(seen, shown, chosen=shown is not None and shown.key == self._chosen)
        self.empty.show("" if rows else f'<p class="quiet">{nothing(self._text)}</p>')
        after = len(rows) - self._first - PAGE
        rename(self.before, f"{min(self._first, PAGE)} before")
        rename(self.more, f"{after:,} more")
        show_if(self.before, self._first > 0)
        show_if(self.more, after > 0)
        self.free.show(f'<span class="quiet n">{seen.free} of {seen.all_gpus} GPUs free</span>')

    def _page_as_kept(self, seen: Seen, page: list[Row], rows: list[Row]) -> list[Row]:
        assert self._kept is not None
        moved = sum(one.key != key for one, key in zip(page, self._kept, strict=False)) + abs(len(page) - len(self._kept))
        rename(self.changed, f"{moved} changes, show" if moved != 1 else "1 change, show")
        show_if(self.changed, moved > 0)
        found = {one.key: one for one in rows}
        kept: list[Row] = []
        for key in self._kept:
            over = seen.jobs.get(JobId(key))
            if (one := found.get(key) or (Row(key, over) if over is not None else None)) is not None:
                kept.append(one)
        return kept

    # --- what the person does ------------------------------------------------------------------------

    def _typed(self, change: dict[str, Any]) -> None:
        self._host.loop.later(TYPING_S, "queue-filter", partial(self._set_text, str(change["new"])))

    def _set_text(self, text: str) -> None:
        self._text, self._first = text, 0
        self._let_go()

    def _set_whose(self, mine: bool) -> None:
        if mine != self._mine:
            self._mine, self._first = mine, 0
            self._let_go()

    def _turn(self, by: int) -> None:
        self._first = max(0, self._first + by)
        self._let_go()

    def _let_go(self) -> None:
        self._kept = None
        show_if(self.changed, visible=False)
        self._host.draw()

    def _act(self, name: str, number: int) -> None:
        # The row is taken here, on the front end's thread: it is the one that the person saw, unless it has just moved.
        slot = self.slots[number]
        if time.monotonic() - slot.moved_at < MOVED_S:
            self._host.loop.post(partial(self._host.say, "The rows have just moved, so nothing was done. Press again."))
        elif slot.row is not None:
            self._host.loop.post(partial(self._do, name, slot.row))

    def _do(self, name: str, shown: Row) -> None:
        job = Job(self._host.client.caller, shown.key)
        match name:
            case "why":
                self._open_card(shown, explained_html(job.explain(), self._host.seen.now, title(shown.job)))
            case "end":
                what = f"{shown.count} jobs of “{esc(title(shown.job))}”" if shown.count > 1 else f"“{esc(title(shown.job))}”"
                self._open_card(
                    shown, f"Cancel {what} of {'me' if self._host.seen.is_mine(shown.job) else esc(shown.job.user)}, {esc(shown.key)}?"
                )
                self._pending = partial(self._cancel, shown)
                show_if(self.yes, visible=True)
                rename(self.no, "Keep it")
            case "hold":
                self._order(shown, job.release if is_held(shown.job) else job.hold, "is released" if is_held(shown.job) else "is held")
            case "up" | "down":
                now = self._host.seen.jobs.get(shown.job.id, shown.job).priority
                priority = now + (1 if name == "up" else -1)
                self._order(shown, partial(job.update, priority=priority), f"has priority {priority} now")
            case "open":
                self._host.open_job(shown.job.id)

    def _order(self, shown: Row, order: Callable[[], object], done: str) -> None:
        try:
            order()
        except MgpuError as error:
            self._host.say(error.message)
        else:
            self._host.say(f"{title(shown.job)} {done}.")

    def _cancel(self, shown: Row) -> None:
        self._order(shown, Job(self._host.client.caller, shown.key).cancel, "is being cancelled")

    def _open_card(self, shown: Row, html: str) -> None:
        self._chosen, self._pending = shown.key, None
        self._kept = [slot.row.key for slot in self.slots if slot.row is not None]
        self.answer.show(html)
        show_if(self.yes, visible=False)
        rename(self.no, "Close")
        show_if(self.card, visible=True)
        self._host.draw()

    def _confirmed(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending()
        self._close_card()

    def _close_card(self) -> None:
        self._chosen = ""
        show_if(self.card, visible=False)
        self._let_go()
