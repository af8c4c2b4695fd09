"""The tab Submit: a form, the answer of a dry run a quarter of a second after the last key, and the
equivalent magic.

A click on a free GPU asks for exactly that one. The line is written into a new cell by JupyterLab's own
commands, which a button of plain HTML may name; other front ends show the line for copying.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets as widgets
import msgspec

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_jupyter.client.flags import IN_FORMS
from mgpu_jupyter.client.inputs import looked_up, with_inputs
from mgpu_jupyter.model.explanations import Explanation
from mgpu_jupyter.notebook.panel.form import Form, magic, sizes_of, submission_of, toggled, with_offer
from mgpu_jupyter.notebook.panel.marks import ROW_TILES, esc
from mgpu_jupyter.notebook.panel.more_fields import MoreFields
from mgpu_jupyter.notebook.panel.parts import Choice, Host, Kit, enable, rename, show_if
from mgpu_jupyter.notebook.panel.seen import Picked, Seen
from mgpu_jupyter.notebook.panel.submit_views import (
    SHOWN_ROWS,
    PickRow,
    answer_html,
    free_html,
    magic_html,
    offer_text,
    pick_html,
    pick_rows,
    size_text,
    types_of,
)

TYPING_S = 0.25
RECHECK_S = 5.0
SIZES_S = 0.8
"""How long after the last key other sizes are tried, one after the other."""
CHOICES = 4
INSERT = "notebook:insert-cell-below"
FILL = "notebook:replace-selection"
BOTH = "apputils:run-all-enabled"


def cell_button(line: str) -> str:
    """Return the button that writes a line into a new cell of JupyterLab or Notebook 7."""
    args = msgspec.json.encode({"commands": [INSERT, FILL], "args": {"text": line}}).decode()
    return (
        f'<button type="button" class="jupyter-button widget-button mgpu-write" title="Write the line into '
        f'a new cell below" '
        f'data-commandlinker-command="{BOTH}" data-commandlinker-args="{esc(args)}">Write a cell</button>'
    )


def _text_of(dest: str) -> dict[str, str]:
    """Return the texts of a text field, from its flag."""
    flag, field = IN_FORMS[dest]
    return {"description": field.label, "placeholder": field.hint, "tooltip": flag.help}


class PickSlot:
    """A row of the picker: tiles, and a button over each that can be picked; made when one can."""

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
            self.box.children = [
                self.tiles.widget,
                self._kit.row(*self.buttons, classes=("mgpu-tilebuttons",)),
            ]
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
        self._sizes: list[tuple[Form, Explanation]] = []
        """The answers for other sizes of this form, as far as they came."""
        self._choices: list[Form] = []
        self._problem = ""
        self._checking = False
        self._setting = False
        self._is_shown = False
        kit, post = Kit(), host.loop.post
        self.nodes = widgets.BoundedIntText(
            1, min=1, max=10_000, continuous_update=True, layout=widgets.Layout(width="64px")
        )
        self.gpus = widgets.BoundedIntText(
            1, min=0, max=1_000, continuous_update=True, layout=self.nodes.layout
        )
        self.nodes.tooltip = IN_FORMS["nodes"][0].help
        self.gpus.tooltip = IN_FORMS["gpus_per_node"][0].help
        self.kind = widgets.ToggleButtons(
            options=[("any", "")], style={"button_width": "auto"}, layout=kit.layout
        )
        self.kind.add_class("mgpu-chips")
        self.time_limit = widgets.Text(layout=widgets.Layout(width="190px"), **_text_of("slurm_time"))
        self.name = widgets.Text(layout=kit.wide, **_text_of("name"))
        self.what = widgets.ToggleButtons(
            options=["Command", "Python cell"], style={"button_width": "auto"}, layout=kit.layout
        )
        self.command = widgets.Text(description="Command", placeholder="python train.py", layout=kit.wide)
        self.code = widgets.Textarea(
            description="Python", placeholder="import train\ntrain.main()", layout=kit.wide, rows=4
        )
        self.code.add_class("mgpu-hide")
        for field in (self.nodes, self.gpus, self.time_limit, self.name, self.what, self.command, self.code):
            field.observe(self._changed, "value")
        self._kind = Choice(self.kind, lambda _: self._changed({}))
        self.more = MoreFields(kit, lambda: self._changed({}))
        self.more.button.observe(lambda _: post(self.more.fold), "value")
        self.submit = kit.button("Submit", lambda: post(self._submit))
        self.submit.button_style = "primary"
        self.write = kit.section(cell_button(magic(self._form)))
        self.answer = kit.section()
        self.slots = [PickSlot(number, kit, self._pick) for number in range(SHOWN_ROWS)]
        self.hint = kit.section()
        self.clear = kit.button("Let mgpu choose", lambda: post(self._clear), "mgpu-link", "mgpu-hide")
        self.offers = [
            (kit.section(), kit.button("Use", partial(self._use, number), "mgpu-link"))
            for number in range(CHOICES)
        ]
        self.line = kit.section(magic_html(self._form))
        self._offer_rows = [
            kit.row(section.widget, button, classes=("mgpu-offer", "mgpu-hide"))
            for section, button in self.offers
        ]

        def label(text: str) -> Any:
            return kit.section(f'<span class="mgpu-label">{text}</span>').widget

        form = kit.column(
            kit.row(
                label(IN_FORMS["nodes"][1].label),
                self.nodes,
                kit.section("×", "mgpu-unit").widget,
                self.gpus,
                kit.section("GPUs", "mgpu-unit").widget,
            ),
            kit.row(label(IN_FORMS["gpu_type"][1].label), self.kind),
            self.time_limit,
            self.name,
            kit.row(label("What"), self.what),
            self.command,
            self.code,
            self.more.button,
            self.more.box,
            kit.row(self.submit, self.write.widget, classes=("mgpu-top",)),
            classes=("mgpu-form",),
        )
        answer = kit.column(
            self.answer.widget,
            *(slot.box for slot in self.slots),
            kit.row(self.hint.widget, self.clear),
            *self._offer_rows,
            classes=("mgpu-answer",),
        )
        self.box = kit.column(kit.row(form, answer, classes=("mgpu-split",)), self.line.widget)

    def shown(self) -> None:
        """Ask for a dry run of the form."""
        self._is_shown = True
        self._ask(0.0)

    def hidden(self) -> None:
        """Stop asking."""
        self._is_shown = False

    def draw(self, seen: Seen) -> None:
        """Show what changed; an answer that is a few seconds old is requested again when the cluster
        changed.
        """
        if self._is_shown and self._told is not None and not self._checking:
            self._host.loop.soon(RECHECK_S, "dry-run", self._check)
        kinds = [("any", ""), *((f"{name}  {free} free", name) for name, free in types_of(seen))]
        self._kind.offer(
            kinds, self._form.gpu_type if self._form.gpu_type in [value for _, value in kinds] else ""
        )
        rows = pick_rows(seen, self._form, self._told)
        for number, slot in enumerate(self.slots):
            slot.show(seen, rows[number] if number < len(rows) else None, self._form, self._told)
        self.answer.show(answer_html(self._told, self._problem, seen.now, checking=self._checking))
        self.hint.show(free_html(seen, self._form))
        show_if(self.clear, bool(self._form.picks))
        for field in (self.nodes, self.gpus):
            enable(field, not self._form.picks)
        self._draw_choices(seen.now)
        self.line.show(magic_html(self._form))
        self.write.show(cell_button(magic(self._form)))

    def _draw_choices(self, now: float) -> None:
        offers = () if self._told is None or self._problem else self._told.offers
        found = [
            (offer_text(one), taken) for one in offers if (taken := with_offer(self._form, one)) is not None
        ]
        sizes = [] if self._problem else [(size_text(form, told, now), form) for form, told in self._sizes]
        known = {(taken.nodes, taken.gpus) for _, taken in found}
        found += [(text, form) for text, form in sizes if text and (form.nodes, form.gpus) not in known]
        self._choices = [form for _, form in found[:CHOICES]]
        for number, (section, _) in enumerate(self.offers):
            show_if(self._offer_rows[number], number < len(self._choices))
            if number < len(self._choices):
                section.show(f'<span class="quiet">{esc(found[number][0])}</span>')

    # --- actions of the user -------------------------------------------------------------------------

    def _changed(self, _: dict[str, Any]) -> None:
        if not self._setting:
            self._host.loop.later(0.02, "form", self._read)

    def _read(self) -> None:
        is_cell = self.what.value != "Command"
        show_if(self.code, is_cell)
        show_if(self.command, not is_cell)
        self.more.offer_variables(is_cell)
        self._form = Form(
            nodes=self.nodes.value,
            gpus=self.gpus.value,
            gpu_type=self.kind.value or "",
            time_limit=self.time_limit.value,
            name=self.name.value,
            command=self.command.value,
            code=self.code.value if is_cell else None,
            more=self.more.value,
            picks=self._form.picks,
        )
        self._ask(TYPING_S)

    def _ask(self, delay_s: float) -> None:
        self._checking = True
        self._sizes = []
        self._host.loop.later(delay_s, "dry-run", self._check)
        self._host.draw()

    def _check(self) -> None:
        if not self._is_shown:
            return
        self._problem = ""
        try:
            self._told = self._host.client.dry_run_spec(
                submission_of(self._form, self._host.namespace, to_submit=False).spec
            )
        except InvalidRequest as error:
            wrong_time = bool(self._form.time_limit.strip()) and (
                "-t" in error.message.split() or "-t:" in error.message
            )
            hint = "Time limit is not a time: Write hours, minutes and seconds, like 02:00:00."
            self._problem = hint if wrong_time else error.message
        except MgpuError as error:
            self._problem = error.message
        else:
            if not self._sizes:
                self._host.loop.later(
                    SIZES_S, "sizes", partial(self._check_size, self._form, sizes_of(self._form))
                )
        self._checking = False
        self._host.draw()

    def _check_size(self, form: Form, sizes: list[Form]) -> None:
        """Ask when one other size would start, and try the next one later: typed keys are handled first."""
        if form != self._form or not sizes or not self._is_shown:
            return
        try:
            told = self._host.client.dry_run_spec(
                submission_of(sizes[0], self._host.namespace, to_submit=False).spec
            )
        except MgpuError:
            return  # the form's own answer says what is wrong
        self._sizes.append((sizes[0], told))
        self._host.loop.later(0.05, "sizes", partial(self._check_size, form, sizes[1:]))
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
        if number >= len(self._choices):
            return
        changed = self._choices[number]
        self._form, self._setting = changed, True
        try:
            self.nodes.value, self.gpus.value, self.time_limit.value = (
                changed.nodes,
                changed.gpus,
                changed.time_limit,
            )
        finally:
            self._setting = False
        self._ask(0.0)

    def _submit(self) -> None:
        enable(self.submit, enabled=False)
        try:
            asked = submission_of(self._form, self._host.namespace, to_submit=True)
            spec, _, _ = with_inputs(
                self._host.client.caller, asked.spec, looked_up(asked.inputs, self._host.namespace)
            )
            job = self._host.client.submit_spec(spec)
        except MgpuError as error:
            self._problem = error.message
            self._host.draw()
        else:
            back = (
                f" Client().job({job.id!r}).result() brings {', '.join(spec.outputs)}."
                if spec.outputs
                else ""
            )
            self._host.say(
                f"Submitted {self._form.name.strip() or 'the job'} as {job.id} at "
                f"{time.strftime('%H:%M:%S')}.{back}"
            )
            self._ask(TYPING_S)
        finally:
            enable(self.submit, enabled=True)
