"""The tab Submit: a form, what would become of it a quarter of a second after the last key, and the magic that means the same.

A click on a free GPU asks for exactly that one. The line goes into a new cell by JupyterLab's own commands, which a button of plain
HTML may name; other front ends show the line to be copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as widgets
import msgspec

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_jupyter.api.explanations import Explanation
from mgpu_jupyter.notebook.panel.form import (
    SHOWN_ROWS,
    Form,
    PickRow,
    answer_html,
    magic,
    magic_html,
    offer_text,
    pick_html,
    pick_rows,
    spec_of,
    toggled,
    types_of,
    with_offer,
)
from mgpu_jupyter.notebook.panel.marks import ROW_TILES, esc
from mgpu_jupyter.notebook.panel.parts import Choice, Host, Kit, enable, rename, show_if
from mgpu_jupyter.notebook.panel.seen import Picked, Seen

TYPING_S = 0.25
RECHECK_S = 5.0
OFFERS = 3
INSERT = "notebook:insert-cell-below"
FILL = "notebook:replace-selection"
BOTH = "apputils:run-all-enabled"


def cell_button(line: str) -> str:
    """Return the button that writes a line into a new cell of JupyterLab or Notebook 7."""
    args = msgspec.json.encode({"commands": [INSERT, FILL], "args": {"text": line}}).decode()
    return (
        f'<button type="button" class="jupyter-button widget-button mgpu-write" title="Write the line into a new cell below" '
        f'data-commandlinker-command="{BOTH}" data-commandlinker-args="{esc(args)}">Write a cell</button>'
    )


class PickSlot:
    """A row of the picker: tiles, and a button over each that can be had; made when one can."""

    def __init__(self, number: int, kit: Kit, pick: Callable[[int, int], None]) -> None:
        self.row: PickRow | None = None
        self.tiles = kit.section()
        self.buttons: list[Any] = []
        self.box = kit.column(self.tiles.widget, classes=("mgpu-pickrow",))
        self._kit, self._pick = kit, partial(pick, number)

    def show(self, seen: Seen, shown: PickRow | None, form: Form, told: Explanation | None) -> None:
        """Show a node, or nothing."""
        self.row = shown
        show_if(self.box, shown is not None)
        if shown is None:
            return
        self.tiles.show(pick_html(seen, shown, form, told))
        gpus = seen.gpus(shown.node)[shown.first : shown.first + ROW_TILES]
        tiles = seen.tiles(shown.node)[shown.first : shown.first + ROW_TILES]
        picked = [Picked(shown.node, gpu.index) in form.picks for gpu in gpus]
        can = [one or tile.state == "free" for one, tile in zip(picked, tiles, strict=True)]
        if any(can) and not self.buttons:
            self.buttons = [self._kit.button("", partial(self._pick, place)) for place in range(ROW_TILES)]
            self.box.children = [self.tiles.widget, self._kit.row(*self.buttons, classes=("mgpu-tilebuttons",))]
        for number, button in enumerate(self.buttons):
            open_to = number < len(can) and can[number]
            enable(button, open_to)
            ask = "Do not ask for" if open_to and picked[number] else "Ask for"
            rename(button, f"{ask} GPU {gpus[number].index} of {shown.node}" if open_to else "")


class SubmitTab:
    """The form on the left, the answer on the right, the line below."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._form = Form()
        self._told: Explanation | None = None
        self._problem = ""
        self._checking = False
        self._setting = False
        self._is_shown = False
        kit, post = Kit(), host.loop.post
        small, wide = widgets.Layout(width="64px"), widgets.Layout(width="320px")
        self.nodes = widgets.BoundedIntText(1, min=1, max=10_000, continuous_update=True, layout=small)
        self.gpus = widgets.BoundedIntText(1, min=0, max=1_000, continuous_update=True, layout=small)
        self.nodes.tooltip, self.gpus.tooltip = "How many nodes", "GPUs on each node"
        self.kind = widgets.ToggleButtons(options=[("any", "")], style={"button_width": "auto"})
        self.kind.add_class("mgpu-chips")
        self.time_limit = widgets.Text(placeholder="02:00:00", description="Time limit", layout=widgets.Layout(width="190px"))
        self.name = widgets.Text(description="Name", placeholder="optional", layout=wide)
        self.command = widgets.Text(description="Command", placeholder="python train.py", layout=wide)
        self.flags = widgets.Text(description="More flags", placeholder="--distributed --env LR=0.1", layout=wide)
        for field in (self.nodes, self.gpus, self.time_limit, self.name, self.command, self.flags):
            field.observe(self._changed, "value")
        self._kind = Choice(self.kind, lambda _: self._changed({}))
        self.submit = kit.button("Submit", lambda: post(self._submit))
        self.submit.button_style = "primary"
        self.write = kit.section(cell_button(magic(self._form)))
        self.answer = kit.section()
        self.slots = [PickSlot(number, kit, self._pick) for number in range(SHOWN_ROWS)]
        self.hint = kit.section('<p class="quiet">Click a free GPU to ask for exactly that one.</p>')
        self.clear = kit.button("Let mgpu choose", lambda: post(self._clear), "mgpu-link", "mgpu-hide")
        self.offers = [(kit.section(), kit.button("Use", partial(self._use, number), "mgpu-link")) for number in range(OFFERS)]
        self.line = kit.section(magic_html(self._form))
        offer_rows = [kit.row(section.widget, button, classes=("mgpu-offer", "mgpu-hide")) for section, button in self.offers]
        self._offer_rows = offer_rows
        times, unit = widgets.Label("×"), widgets.Label("GPUs")
        for label in (times, unit):
            label.add_class("mgpu-unit")
        form = kit.column(
            kit.row(widgets.Label("Nodes"), self.nodes, times, self.gpus, unit),
            kit.row(widgets.Label("Type"), self.kind),
            self.time_limit,
            self.name,
            self.command,
            self.flags,
            kit.row(self.submit, self.write.widget, classes=("mgpu-top",)),
            classes=("mgpu-form",),
        )
        answer = kit.column(
            self.answer.widget,
            *(slot.box for slot in self.slots),
            kit.row(self.hint.widget, self.clear),
            *offer_rows,
            classes=("mgpu-answer",),
        )
        self.box = kit.column(kit.row(form, answer, classes=("mgpu-split",)), self.line.widget)

    def shown(self) -> None:
        """Ask what would become of the form."""
        self._is_shown = True
        self._ask(0.0)

    def hidden(self) -> None:
        """Ask no more."""
        self._is_shown = False

    def draw(self, seen: Seen) -> None:
        """Show what changed; an answer that is a few seconds old is asked for again when the cluster changed."""
        if self._is_shown and self._told is not None and not self._checking:
            self._host.loop.soon(RECHECK_S, "dry-run", self._check)
        kinds = [("any", ""), *((f"{name}  {free} free", name) for name, free in types_of(seen))]
        self._kind.offer(kinds, self._form.gpu_type if self._form.gpu_type in [value for _, value in kinds] else "")
        rows = pick_rows(seen, self._form, self._told)
        for number, slot in enumerate(self.slots):
            slot.show(seen, rows[number] if number < len(rows) else None, self._form, self._told)
        self.answer.show(answer_html(self._told, self._problem, seen.now, checking=self._checking))
        show_if(self.clear, bool(self._form.picks))
        for field in (self.nodes, self.gpus):
            enable(field, not self._form.picks)
        offers = [] if self._told is None or self._problem else [one for one in self._told.offers if with_offer(self._form, one)][:OFFERS]
        for number, (section, _) in enumerate(self.offers):
            show_if(self._offer_rows[number], number < len(offers))
            if number < len(offers):
                section.show(f'<span class="quiet">{esc(offer_text(offers[number]))}.</span>')
        self._offered = offers
        self.line.show(magic_html(self._form))
        self.write.show(cell_button(magic(self._form)))

    # --- what the person does ------------------------------------------------------------------------

    def _changed(self, _: dict[str, Any]) -> None:
        if not self._setting:
            self._host.loop.later(0.02, "form", self._read)

    def _read(self) -> None:
        self._form = Form(
            nodes=self.nodes.value,
            gpus=self.gpus.value,
            gpu_type=self.kind.value or "",
            time_limit=self.time_limit.value,
            name=self.name.value,
            command=self.command.value,
            flags=self.flags.value,
            picks=self._form.picks,
        )
        self._ask(TYPING_S)

    def _ask(self, delay_s: float) -> None:
        self._checking = True
        self._host.loop.later(delay_s, "dry-run", self._check)
        self._host.draw()

    def _check(self) -> None:
        if not self._is_shown:
            return
        self._problem = ""
        try:
            self._told = self._host.client.dry_run_spec(spec_of(self._form, self._host.namespace, to_submit=False))
        except InvalidRequest as error:
            wrong_time = bool(self._form.time_limit.strip()) and ("-t" in error.message.split() or "-t:" in error.message)
            hint = "Time limit is not a time: Write hours, minutes and seconds, like 02:00:00."
            self._problem = hint if wrong_time else error.message
        except MgpuError as error:
            self._problem = error.message
        self._checking = False
        self._host.draw()

    def _pick(self, number: int, column_number: int) -> None:
        shown = self.slots[number].row
        if shown is None:
            return
        gpus = self._host.seen.gpus(shown.node)
        if shown.first + column_number < len(gpus):
            pick = Picked(shown.node, gpus[shown.first + column_number].index)
            self._host.loop.post(partial(self._set_picks, toggled(self._form.picks, pick)))

    def _clear(self) -> None:
        self._set_picks(())

    def _set_picks(self, picks: tuple[Picked, ...]) -> None:
        self._form = msgspec.structs.replace(self._form, picks=picks)
        self._ask(0.0)

    def _use(self, number: int) -> None:
        self._host.loop.post(partial(self._take, number))

    def _take(self, number: int) -> None:
        changed = with_offer(self._form, self._offered[number]) if number < len(self._offered) else None
        if changed is None:
            return
        self._form, self._setting = changed, True
        try:
            self.nodes.value, self.gpus.value, self.time_limit.value = changed.nodes, changed.gpus, changed.time_limit
        finally:
            self._setting = False
        self._ask(0.0)

    def _submit(self) -> None:
        enable(self.submit, enabled=False)
        try:
            job = self._host.client.submit_spec(spec_of(self._form, self._host.namespace, to_submit=True))
        except MgpuError as error:
            self._problem = error.message
            self._host.draw()
        else:
            self._host.say(f"Submitted {self._form.name.strip() or 'the job'} as {job.id} at {time.strftime('%H:%M:%S')}.")
            self._ask(TYPING_S)
        finally:
            enable(self.submit, enabled=True)
