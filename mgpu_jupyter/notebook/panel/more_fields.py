"""The folded part of the submit form: placement, environment, variables, retries, dependencies, arrays. Made when it is first opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from mgpu_jupyter.notebook.panel.form import More
from mgpu_jupyter.notebook.panel.parts import Kit, show_if

WIRINGS = (("one process", ""), ("PyTorch, one process per GPU", "distributed"), ("MPI", "mpi"))
PLACEMENTS = (
    ("as this site does it", ""),
    ("same switch first", "topology"),
    ("fill nodes first", "fill_first"),
    ("spread over nodes", "spread"),
    ("nodes in turn", "round_robin"),
)
RETRIES = (("do not retry", 0), ("retry once", 1), ("retry twice", 2), ("retry 3 times", 3), ("retry 5 times", 5))
WAITING = '<p class="quiet">Waiting never uses up a retry.</p>'


class MoreFields:
    """`button` folds it, `box` is where it is, `value` what is filled in; `on_change` is told of every key and must hand over."""

    def __init__(self, kit: Kit, on_change: Callable[[], None]) -> None:
        self._kit, self._on_change = kit, on_change
        self._fields: dict[str, Any] = {}
        self._variables: Any = None
        self._for_cells = False
        self.button = widgets.ToggleButton(
            False, description="More", tooltip="Placement, environment, variables, retries, dependencies, array", layout=kit.layout
        )
        self.button.add_class("mgpu-more")
        self.box = kit.column(classes=("mgpu-hide",))

    @property
    def value(self) -> More:
        """What is filled in."""
        told = {name: field.value for name, field in self._fields.items()}
        if not self._for_cells:
            told |= {"inputs": "", "outputs": ""}
        return More(**told)

    def fold(self) -> None:
        """Show it or fold it, as its button says; on the loop's thread."""
        if self.button.value and not self._fields:
            self._make()
        show_if(self.box, visible=bool(self.button.value))

    def offer_variables(self, for_cells: bool) -> None:
        """Show the fields for variables, which only Python cells have, or not."""
        self._for_cells = for_cells
        if self._variables is not None:
            show_if(self._variables, for_cells)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields by the names of what they fill in; empty before it was opened."""
        return self._fields

    def _make(self) -> None:
        self._fields = {
            "wiring": self._choice("Wiring", WIRINGS),
            "policy": self._choice("Placement", PLACEMENTS),
            "exclude": self._text("Never on", "gpu-06, gpu-07"),
            "env_setup_cmd": self._text("Set up", "source ~/venv/bin/activate"),
            "env": self._text("Environment", "LR=0.1 SEED=3"),
            "inputs": self._text("Variables in", "cfg, tokens"),
            "outputs": self._text("Variables out", "scores"),
            "retries": self._choice("If it fails", RETRIES),
            "dependency": self._text("After jobs", "afterok:R4T8W2ZB"),
            "array": self._text("Array", "1-100%8"),
            "flags": self._text("More flags", "--gpu-mem 20G --results out/*"),
        }
        shown = self._fields
        self._variables = self._kit.column(shown["inputs"], shown["outputs"])
        show_if(self._variables, self._for_cells)
        self.box.children = [
            *(shown[name] for name in ("wiring", "policy", "exclude", "env_setup_cmd", "env")),
            self._variables,
            shown["retries"],
            self._kit.section(WAITING).widget,
            *(shown[name] for name in ("dependency", "array", "flags")),
        ]

    def _text(self, label: str, example: str) -> Any:
        return self._heard(widgets.Text(description=label, placeholder=example, layout=self._kit.wide))

    def _choice(self, label: str, options: tuple[tuple[str, Any], ...]) -> Any:
        return self._heard(widgets.Dropdown(description=label, options=options, layout=self._kit.wide))

    def _heard(self, field: Any) -> Any:
        field.observe(lambda _: self._on_change(), "value")
        return field
