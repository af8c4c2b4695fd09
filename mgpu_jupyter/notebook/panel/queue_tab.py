"""The tab Queue: rows with the actions for each job, one page at a time, and the answer to "why?" below them.

While an answer or a question is open, or the pointer or the focus is in the list (reported by mgpu's
JupyterLab extension), rows keep their place and a line says how many changes wait.
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
from mgpu_jupyter.client.queue_rows import Row, is_held, title
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.panel.card import Card
from mgpu_jupyter.notebook.panel.marks import esc
from mgpu_jupyter.notebook.panel.orders import Order, priority_there, read_order
from mgpu_jupyter.notebook.panel.parts import Choice, Host, Kit, enable, has_class, rename, show_if
from mgpu_jupyter.notebook.panel.rows import HEAD, moves, nothing, row_html, rows_of
from mgpu_jupyter.notebook.panel.seen import Seen

PAGE = 10
TYPING_S = 0.15
MOVED_S = 0.5
"""A press this soon after its row moved was meant for another job."""
MOVING_S = 2.0
"""For this long after a change of priority rows move although the pointer is there: the user wants to see
it.
"""
HINTS = (
    '<span class="quiet mgpu-bykeys">Drag a row or press <kbd>Alt ↑↓</kbd> to change the priority of your '
    "own jobs</span>"
    '<span class="quiet mgpu-bybuttons">? says why, and has buttons for the priority of your own jobs</span>'
)


class Slot:
    """One row on the screen: cells, and buttons that act on the job shown there."""

    def __init__(self, number: int, kit: Kit, act: Callable[[str, int], None]) -> None:
        self.row: Row | None = None
        self.moved_at = -MOVED_S
        """When another job moved to this row."""
        self.cells = kit.section()

        def button(name: str) -> Any:
            return kit.button(name, partial(act, name, number), f"mgpu-{name}")

        self.why, self.hold, self.end = button("why"), button("hold"), button("end")
        self.box = kit.row(self.cells.widget, self.why, self.hold, self.end, classes=("mgpu-row",))

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
            (self.why, may and not over, "Why does it wait:" if waits else "Where does it run:"),
            (self.hold, may and waits, "Release" if held else "Hold"),
            (self.end, may and not over, "Cancel"),
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
        kit, loop = Kit(), host.loop
        self._first = 0
        self._text, self._mine = "", False
        self._total = 0
        self._kept: list[str] | None = None
        """The jobs in the rows while these must not move."""
        self._stays = False
        """Whether the pointer or the focus is in the list."""
        self._moving_until = 0.0
        self.filter = widgets.Text(
            placeholder="job, user, state", continuous_update=True, layout=widgets.Layout(width="180px")
        )
        self.filter.tooltip = "Show only jobs whose name, id, user, state or node has these words"
        self.whose = widgets.ToggleButtons(
            options=[("Mine", True), ("All", False)], value=False, style={"button_width": "auto"}
        )
        self.filter.observe(self._typed, "value")
        self._whose = Choice(self.whose, lambda mine: loop.post(partial(self._set_whose, bool(mine))))
        self.free = kit.section("", "mgpu-right")
        self.slots = [Slot(number, kit, self._act) for number in range(PAGE)]
        self.empty = kit.section("", "quiet")
        self.before = kit.button(
            "before", lambda: loop.post(partial(self._turn, -PAGE)), "mgpu-link", "mgpu-hide"
        )
        self.more = kit.button("more", lambda: loop.post(partial(self._turn, PAGE)), "mgpu-link", "mgpu-hide")
        self.changed = kit.button("changes", lambda: loop.post(self._let_go), "mgpu-link", "mgpu-hide")
        self.orders = widgets.Text(continuous_update=True)
        self.orders.add_class("mgpu-orders")
        self.orders.observe(lambda change: loop.post(partial(self._ordered, str(change["new"]))), "value")
        self.card = Card(host, kit, self._do, self._let_go)
        rows = kit.column(*(slot.box for slot in self.slots), classes=("mgpu-rows",))
        self.box = kit.column(
            kit.row(self.filter, self.whose, kit.spacer(), self.free.widget, classes=("mgpu-top",)),
            kit.section(HEAD, "mgpu-headrow").widget,
            rows,
            self.empty.widget,
            kit.row(
                self.before,
                self.more,
                self.changed,
                kit.spacer(),
                kit.section(HINTS).widget,
                self.orders,
                classes=("mgpu-top",),
            ),
            self.card.box,
        )

    def shown(self) -> None:
        """Do nothing: the mirror has all data."""

    def hidden(self) -> None:
        """Do nothing: there is nothing to release."""

    def draw(self, seen: Seen) -> None:
        """Show what changed."""
        everything = rows_of(seen, mine=False, text="")
        mine = [one for one in everything if seen.is_mine(one.job)]
        rows = (
            rows_of(seen, mine=self._mine, text=self._text)
            if self._text.strip()
            else mine
            if self._mine
            else everything
        )
        self._whose.offer(((f"Mine {len(mine)}", True), (f"All {len(everything)}", False)), self._mine)
        self._total = len(rows)
        self._first = max(0, min(self._first, (len(rows) - 1) // PAGE * PAGE))
        page = rows[self._first : self._first + PAGE]
        if self._kept is None and self._is_kept():
            self._kept = [one.key for one in page]
        if self._kept is not None:
            page = self._page_as_kept(seen, page, rows)
        for number, slot in enumerate(self.slots):
            shown = page[number] if number < len(page) else None
            slot.show(
                seen,
                shown,
                chosen=shown is not None and self.card.row is not None and shown.key == self.card.row.key,
            )
        self.empty.show("" if rows else f'<p class="quiet">{nothing(self._text)}</p>')
        after = len(rows) - self._first - PAGE
        rename(self.before, f"{min(self._first, PAGE)} before")
        rename(self.more, f"{after:,} more")
        show_if(self.before, self._first > 0)
        show_if(self.more, after > 0)
        self.free.show(f'<span class="quiet n">{seen.free} of {seen.all_gpus} GPUs free</span>')

    def _page_as_kept(self, seen: Seen, page: list[Row], rows: list[Row]) -> list[Row]:
        assert self._kept is not None
        moved = sum(one.key != key for one, key in zip(page, self._kept, strict=False)) + abs(
            len(page) - len(self._kept)
        )
        rename(self.changed, f"{moved} changes, show" if moved != 1 else "1 change, show")
        show_if(self.changed, moved > 0)
        found = {one.key: one for one in rows}
        kept: list[Row] = []
        for key in self._kept:
            over = seen.jobs.get(JobId(key))
            if (one := found.get(key) or (Row(key, over) if over is not None else None)) is not None:
                kept.append(one)
        return kept

    # --- actions of the user -------------------------------------------------------------------------

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

    def _is_kept(self) -> bool:
        return (self._stays or self.card.row is not None) and time.monotonic() >= self._moving_until

    def _keep(self) -> None:
        if self._kept is None:
            self._kept = [slot.row.key for slot in self.slots if slot.row is not None]
        self._host.draw()

    def _let_go(self) -> None:
        self._kept = None
        show_if(self.changed, visible=False)
        self._host.draw()

    def _act(self, name: str, number: int) -> None:
        # The row is read here, on the front end's thread: it is the one that the user saw, unless it has just
        # moved.
        slot = self.slots[number]
        if time.monotonic() - slot.moved_at < MOVED_S:
            self._host.loop.post(
                partial(self._host.say, "The rows have just moved, so nothing was done. Press again.")
            )
        elif slot.row is not None:
            self._host.loop.post(partial(self._do, name, slot.row))

    def _ordered(self, line: str) -> None:
        order = read_order(line)
        if order is None:
            return
        if order.verb in ("stay", "go"):
            self._stays = order.verb == "stay"
            (self._keep if self._is_kept() else self._let_go)()
            return
        found = next(
            (slot.row for slot in self.slots if slot.row is not None and slot.row.key == order.key), None
        )
        if found is None or not self._host.seen.may_change(found.job):
            return
        if order.verb == "move":
            self._move(found, order)
        elif order.verb not in ("up", "down") or moves(self._host.seen, found):
            self._do(order.verb, found)

    def _move(self, shown: Row, order: Order) -> None:
        seen = self._host.seen
        waiting = [
            row
            for row in rows_of(seen, mine=False, text="")
            if row.job.state is JobState.QUEUED and row.place is not None
        ]
        priority = priority_there(waiting, order)
        if priority is not None and moves(seen, shown):
            self._set_priority(shown, priority)

    def _do(self, name: str, shown: Row) -> None:
        job = Job(self._host.client.caller, shown.key)
        match name:
            case "why":
                self.card.tell(shown, job.explain())
                self._keep()
            case "end":
                what = (
                    f"{shown.count} jobs of “{esc(title(shown.job))}”"
                    if shown.count > 1
                    else f"“{esc(title(shown.job))}”"
                )
                who = "me" if self._host.seen.is_mine(shown.job) else esc(shown.job.user)
                self.card.ask(
                    shown, f"Cancel {what} of {who}, {esc(shown.key)}?", partial(self._cancel, shown)
                )
                self._keep()
            case "hold":
                self._order(
                    shown,
                    job.release if is_held(shown.job) else job.hold,
                    "is released" if is_held(shown.job) else "is held",
                )
            case "up" | "down":
                now = self._host.seen.jobs.get(shown.job.id, shown.job).priority
                self._set_priority(shown, now + (1 if name == "up" else -1))
            case "open":
                self._host.open_job(shown.job.id)

    def _set_priority(self, shown: Row, priority: int) -> None:
        self._moving_until = time.monotonic() + MOVING_S
        self._kept = None
        order = partial(Job(self._host.client.caller, shown.key).update, priority=priority)
        self._order(shown, order, f"has priority {priority} now")

    def _order(self, shown: Row, order: Callable[[], object], done: str) -> None:
        try:
            order()
        except MgpuError as error:
            self._host.say(error.message)
        else:
            self._host.say(f"{title(shown.job)} {done}.")

    def _cancel(self, shown: Row) -> None:
        self._order(shown, Job(self._host.client.caller, shown.key).cancel, "is being cancelled")
