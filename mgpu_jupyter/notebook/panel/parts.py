"""The parts of all tabs: sections that send only what changed, buttons with a name for screen readers, and
the roles of panel and tab.

Every text in a section was escaped where its HTML was made; descriptions of buttons and fields are plain text
to the front end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import ipywidgets as widgets
from ipywidgets.widgets.widget_bool import CheckboxStyle
from ipywidgets.widgets.widget_string import HTMLStyle

from mgpu_jupyter.client.client import Client
from mgpu_jupyter.notebook.panel.loop import Loop
from mgpu_jupyter.notebook.panel.seen import Seen


class Host(Protocol):
    """What a tab needs of the panel."""

    client: Client
    loop: Loop

    @property
    def seen(self) -> Seen:
        """The cluster as it is now."""

    @property
    def namespace(self) -> Mapping[str, object]:
        """The notebook's variables."""

    def draw(self) -> None:
        """Show what changed in the tab in front."""

    def open_job(self, job_id: str) -> None:
        """Show a job in the tab Job."""

    def say(self, text: str) -> None:
        """Show in a line what happened, or what went wrong."""


class Tab(Protocol):
    """One tab; made when it is first shown."""

    box: Any

    def draw(self, seen: Seen) -> None:
        """Show what changed."""

    def shown(self) -> None:
        """Called when it came to the front."""

    def hidden(self) -> None:
        """Called when it went to the back: release what costs something."""


class Section:
    """A piece of HTML that is sent only when it changed; `sent` counts how often."""

    def __init__(self, widget: Any) -> None:
        self.widget = widget
        self._value: str = widget.value
        self.sent = 0

    def show(self, value: str) -> None:
        """Show this HTML."""
        if value != self._value:
            self._value = value
            self.sent += 1
            self.widget.value = value

    @property
    def value(self) -> str:
        """What is shown."""
        return self._value


class Kit:
    """Makes the parts of one tab. They share layouts and styles: a front end has a third as many to
    create.
    """

    def __init__(self) -> None:
        self.layout = widgets.Layout()
        self.wide = widgets.Layout(width="320px", max_width="100%")
        """Of the fields of a form."""
        self._rest = widgets.Layout(flex="1 1 auto")
        self._button_style = widgets.ButtonStyle()
        self._html_style = HTMLStyle()
        self._check_style: Any = None

    def section(self, value: str = "", *classes: str) -> Section:
        """Return a piece of HTML."""
        return Section(_classed(widgets.HTML(value, layout=self.layout, style=self._html_style), classes))

    def spacer(self) -> Any:
        """Return an empty box that fills the free space."""
        return widgets.HTML("", layout=self._rest, style=self._html_style)

    def button(self, text: str, on_click: Callable[[], None], *classes: str, tooltip: str = "") -> Any:
        """Return a button; its action is called on the front end's thread and must post to the loop."""
        made = widgets.Button(
            description=text, tooltip=tooltip or text, layout=self.layout, style=self._button_style
        )
        made.on_click(lambda _: on_click())
        return _classed(made, classes)

    def check(self, text: str, on_change: Callable[[], None], *classes: str) -> Any:
        """Return a checkbox; `on_change` must post to the loop."""
        self._check_style = self._check_style or CheckboxStyle()
        made = widgets.Checkbox(
            False, description=text, indent=False, layout=self.layout, style=self._check_style
        )
        made.observe(lambda _: on_change(), "value")
        return _classed(made, classes)

    def row(self, *children: Any, classes: tuple[str, ...] = ()) -> Any:
        """Return widgets side by side."""
        return _classed(widgets.HBox(children, layout=self.layout), classes)

    def column(self, *children: Any, classes: tuple[str, ...] = ()) -> Any:
        """Return widgets one below the other."""
        return _classed(widgets.VBox(children, layout=self.layout), classes)


def _classed(made: Any, classes: Sequence[str]) -> Any:
    # Set at once: each `add_class` would be a message of its own.
    made._dom_classes = tuple(classes)  # noqa: SLF001 - ipywidgets has no other way to set them together
    return made


def has_class(widget: Any, name: str) -> bool:
    """Tell whether a widget has a class of the style sheet."""
    return name in widget._dom_classes  # noqa: SLF001 - ipywidgets has no other way to ask


class Choice:
    """A field with options that keeps its choice when they change; reports only choices of the user."""

    def __init__(self, widget: Any, on_choice: Callable[[Any], None]) -> None:
        self.widget = widget
        self._options = tuple(widget.options)
        self._setting = False
        self._on_choice = on_choice
        widget.observe(self._changed, "value")

    def offer(self, options: Sequence[tuple[str, Any]], value: Any) -> None:
        """Show these options with one of them chosen; sends nothing when that is so already."""
        if tuple(options) == self._options and self.widget.value == value:
            return
        # New options make the widget choose the first of them for a moment, which must not be reported.
        self._setting = True
        try:
            with self.widget.hold_sync():
                if tuple(options) != self._options:
                    self._options = tuple(options)
                    self.widget.options = self._options
                self.widget.value = value
        finally:
            self._setting = False

    def _changed(self, change: Mapping[str, Any]) -> None:
        if not self._setting:
            self._on_choice(change["new"])


def show_if(widget: Any, visible: bool) -> None:
    """Show or hide a widget; sends nothing when that is so already."""
    if visible == has_class(widget, "mgpu-hide"):
        (widget.remove_class if visible else widget.add_class)("mgpu-hide")


def rename(button: Any, text: str) -> None:
    """Rename a button; sends nothing when it has that name already."""
    if button.description != text:
        button.description = text
        button.tooltip = text


def enable(button: Any, enabled: bool) -> None:
    """Enable or disable a button; sends nothing when that is so already."""
    if button.disabled == enabled:
        button.disabled = not enabled
