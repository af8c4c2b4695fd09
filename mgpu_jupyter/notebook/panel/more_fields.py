"""The folded part of the submit form: a field for each flag that has one in the table of flags. Made when it
is first opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from mgpu_jupyter.client.flags import IN_FORMS, Field, Flag
from mgpu_jupyter.notebook.panel.form import More
from mgpu_jupyter.notebook.panel.marks import esc
from mgpu_jupyter.notebook.panel.parts import Kit, show_if

ABOVE = frozenset(("nodes", "gpus_per_node", "gpu_type", "slurm_time", "name"))
"""The flags that the form asks for before this part."""
FLAGS = "flags"


class MoreFields:
    """`button` folds it, `box` contains it, `value` is what is filled in; `on_change` is called at every key
    and must post to the loop.
    """

    def __init__(self, kit: Kit, on_change: Callable[[], None]) -> None:
        self._kit, self._on_change = kit, on_change
        self._fields: dict[str, Any] = {}
        self._variables: Any = None
        self._for_cells = False
        self.button = widgets.ToggleButton(
            False,
            description="More",
            tooltip="Placement, environment, variables, retries, dependencies, array",
            layout=kit.layout,
        )
        self.button.add_class("mgpu-more")
        self.box = kit.column(classes=("mgpu-hide",))

    @property
    def value(self) -> More:
        """What is filled in."""
        told = {name: field.value for name, field in self._fields.items()}
        flags = str(told.pop(FLAGS, ""))
        hidden = {dest for dest, (flag, _) in IN_FORMS.items() if flag.only == "notebook"}
        values = {
            name: value for name, value in told.items() if value and (self._for_cells or name not in hidden)
        }
        return More(values=values, flags=flags)

    def fold(self) -> None:
        """Show or fold it, by its button; on the loop's thread."""
        if self.button.value and not self._fields:
            self._make()
        show_if(self.box, visible=bool(self.button.value))

    def offer_variables(self, for_cells: bool) -> None:
        """Show or hide the fields for variables, which only Python cells have."""
        self._for_cells = for_cells
        if self._variables is not None:
            show_if(self._variables, for_cells)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields by the names of their flags; empty before it was opened."""
        return self._fields

    def _make(self) -> None:
        fields: dict[str, Any] = {}
        shown: list[Any] = []
        variables: list[Any] = []
        for dest, (flag, field) in IN_FORMS.items():
            if dest in ABOVE:
                continue
            made = fields[dest] = self._heard(self._control(flag, field))
            (variables if flag.only == "notebook" else shown).append(made)
            if field.note:
                shown.append(self._kit.section(f'<p class="quiet">{esc(field.note)}</p>').widget)
        fields[FLAGS] = self._heard(
            widgets.Text(
                description="More flags",
                placeholder="--gpu-mem 20G --results out/*",
                layout=self._kit.wide,
            )
        )
        self._variables = self._kit.column(*variables)
        show_if(self._variables, self._for_cells)
        self.box.children = [*shown, self._variables, fields[FLAGS]]
        self._fields = fields  # whole: other threads read it

    def _control(self, flag: Flag, field: Field) -> Any:
        told = {"description": field.label, "tooltip": flag.help, "layout": self._kit.wide}
        match field.control:
            case "choice" | "switches":
                options = [(words, value) for value, words in field.choices]
                return widgets.Dropdown(options=options, **told)
            case "switch":
                return widgets.Checkbox(value=False, indent=True, **told)
            case _:
                return widgets.Text(placeholder=field.hint, **told)

    def _heard(self, field: Any) -> Any:
        field.observe(lambda _: self._on_change(), "value")
        return field
