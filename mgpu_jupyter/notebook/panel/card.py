"""The card below the queue: the answer to "why?" with its offers as buttons, or a question. Made when it is
first opened.

An offer that is pressed is checked again: one that is no longer valid is not taken, and the present offers
are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.queue_rows import Row, is_held, title
from mgpu_jupyter.client.words import lowered, names
from mgpu_jupyter.model.explanations import Explanation, Offer
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.panel.explained import SHOWN_OFFERS, explained_html, offer_html
from mgpu_jupyter.notebook.panel.parts import Host, Kit, Section, rename, show_if

UNDER_OFFERS = '<p class="quiet">A job with the change takes the place of this one, under a new id.</p>'


class Card:
    """`tell` and `ask` open it; `on_act` is called with other actions on the job, `on_close` when it is
    closed.
    """

    def __init__(
        self, host: Host, kit: Kit, on_act: Callable[[str, Row], None], on_close: Callable[[], None]
    ) -> None:
        self._host, self._kit = host, kit
        self._on_act, self._on_close = on_act, on_close
        self._offered: tuple[Offer, ...] = ()
        self._pending: Callable[[], None] | None = None
        self.row: Row | None = None
        """The job that it is about, while it is open."""
        self.answer = kit.section()
        self.offers: list[tuple[Section, Any, Any]] = []
        self.box = kit.column(classes=("mgpu-card", "mgpu-hide"))

    def tell(self, shown: Row, told: Explanation) -> None:
        """Show an answer; the job's owner can take an offer that would start it now."""
        self._make()
        seen = self._host.seen
        can = shown.count == 1 and seen.may_change(shown.job) and shown.job.state is JobState.QUEUED
        self._offered = told.offers[:SHOWN_OFFERS] if can else ()
        for number, (section, _, box) in enumerate(self.offers):
            show_if(box, number < len(self._offered))
            if number < len(self._offered):
                section.show(offer_html(self._offered[number]))
        self.under.show(UNDER_OFFERS if self._offered else "")
        self._open(
            shown,
            explained_html(
                told, seen.now, title(shown.job), as_text=not self._offered, title_of=self._title_of
            ),
        )
        self._pending = None
        moves = can and not is_held(shown.job)
        for button, visible in (
            (self.yes, False),
            (self.up, moves),
            (self.down, moves),
            (self.see, seen.may_change(shown.job)),
        ):
            show_if(button, visible)
        rename(self.no, "Close")

    def ask(self, shown: Row, question: str, on_yes: Callable[[], None]) -> None:
        """Show a question, as HTML."""
        self._make()
        self._pending, self._offered = on_yes, ()
        self._open(shown, question)
        self.under.show("")
        for widget in (self.up, self.down, self.see, *(box for _, _, box in self.offers)):
            show_if(widget, visible=False)
        show_if(self.yes, visible=True)
        rename(self.no, "Keep it")

    def close(self) -> None:
        """Close it."""
        self.row, self._pending, self._offered = None, None, ()
        show_if(self.box, visible=False)
        self._on_close()

    # --- inside ------------------------------------------------------------------------------------------

    def _make(self) -> None:
        if self.offers:
            return
        kit, post = self._kit, self._host.loop.post
        for number in range(SHOWN_OFFERS):
            section, button = (
                kit.section(),
                kit.button(
                    "Start now", partial(self._press, number), *(("mgpu-first",) if not number else ())
                ),
            )
            self.offers.append(
                (section, button, kit.row(section.widget, button, classes=("mgpu-offered", "mgpu-hide")))
            )
        self.under = kit.section()
        self.yes = kit.button("Cancel the job", lambda: post(self._confirmed))
        self.up = kit.button("Raise priority", lambda: post(partial(self._act, "up")))
        self.down = kit.button("Lower priority", lambda: post(partial(self._act, "down")))
        self.see = kit.button("Open", lambda: post(partial(self._act, "open")))
        self.no = kit.button("Close", lambda: post(self.close))
        buttons = kit.row(self.yes, self.up, self.down, self.see, self.no, classes=("mgpu-top",))
        self.box.children = [
            self.answer.widget,
            *(box for _, _, box in self.offers),
            self.under.widget,
            buttons,
        ]

    def _open(self, shown: Row, html: str) -> None:
        self.row = shown
        self.answer.show(html)
        show_if(self.box, visible=True)

    def _title_of(self, job_id: JobId) -> str:
        found = self._host.seen.jobs.get(job_id)
        return str(job_id) if found is None else title(found)

    def _act(self, name: str) -> None:
        if self.row is not None:
            self._on_act(name, self.row)

    def _confirmed(self) -> None:
        pending = self._pending
        if pending is not None:
            pending()
        self.close()

    def _press(self, number: int) -> None:
        # The offer is read here, on the front end's thread: it is the one that the user saw.
        if self.row is not None and number < len(self._offered):
            self._host.loop.post(partial(self._take, self.row, self._offered[number]))

    def _take(self, shown: Row, offer: Offer) -> None:
        try:
            told = Job(self._host.client.caller, shown.job.id).explain()
            if offer.patch not in [one.patch for one in told.offers]:
                taken = names([place.node for place in offer.where]) or "What it needs"
                self.tell(shown, told)
                self._host.say(f"{taken} was taken meanwhile. Here are the offers that hold now.")
                return
            made = self._host.client.replace(shown.job.id, offer.patch)
        except MgpuError as error:
            self._host.say(error.message)
        else:
            self.close()
            self._host.say(f"{title(shown.job)} starts as {made.id}: {lowered(offer.text)}.")
