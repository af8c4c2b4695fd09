"""How the header of a job gets on the screen, and its Cancel button: a kernel's front end replaces it in place, a terminal gets lines.

Everything is sent from the cell's own thread, else nbclient drops it. The button is a widget in a row of no height over the header, so
that the header may be replaced each second without taking a click or the focus away. Its click must reach the kernel while the cell
still runs: front ends that talk to widgets over subshells do that (JupyterLab 4.4 and ipykernel 7 on). Where nobody opened a subshell
there is no button, and the header says what cancels.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mgpu_jupyter.client.words import printable
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.header import Facts, html_of, text_of

VIEW = "application/vnd.jupyter.widget-view+json"
SUBSHELL_S = 2.0
"""How long the first button of a kernel waits at most for its front end to open a subshell; it takes a tenth of that."""
_waited = False
EMPTY: Mapping[str, Any] = {"text/plain": "", "text/html": ""}


class Header(Protocol):
    """A header in a front end."""

    def prepare(self) -> None:
        """Make what the first header needs; called before its facts are gathered."""

    def show(self, facts: Facts) -> None:
        """Show it, or bring it up to date."""

    def again(self) -> None:
        """Show it again: the front end cleared all output."""

    def remove(self) -> None:
        """Take it away."""


class _Handle(Protocol):
    def update(self, obj: object, *, raw: bool, metadata: Mapping[str, object]) -> None:
        """Replace what is shown."""


class RichHeader:
    """HTML with a line of text beside it, updated in place."""

    def __init__(self, button: Button | None = None) -> None:
        self._button = button
        self._handle: _Handle | None = None
        self._last: Mapping[str, Any] = {}
        self._metadata: Mapping[str, object] = {}

    def prepare(self) -> None:
        """Put the button above what will be the header."""
        if self._handle is None and self._button is not None:
            self._button.place()

    def show(self, facts: Facts) -> None:
        """Show it, or bring it up to date; what did not change is not sent."""
        self._metadata = {"mgpu": {"job_id": facts.job.id}}
        page = html_of(facts)
        bundle = {"text/html": page, "text/plain": text_of(facts) if page else ""}
        if bundle == self._last:
            return
        self._last = bundle
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True, metadata=self._metadata)
        else:
            self._handle.update(bundle, raw=True, metadata=self._metadata)

    def again(self) -> None:
        """Show it again: the front end cleared all output."""
        if self._handle is not None:
            if self._button is not None:
                self._button.place()
            self._handle = display(self._last, raw=True, display_id=True, metadata=self._metadata)

    def remove(self) -> None:
        """Take it away; what is left in the notebook is an empty output that knows its job."""
        if self._handle is not None and self._last != EMPTY:
            self._last = EMPTY
            self._handle.update(EMPTY, raw=True, metadata=self._metadata)


class PlainHeader:
    """A line on stderr, and a new one only when the state changes: a terminal keeps its lines."""

    def __init__(self) -> None:
        self._last: tuple[object, ...] = ()

    def prepare(self) -> None:
        """Do nothing: lines need nothing."""

    def show(self, facts: Facts) -> None:
        """Print the line if it is about another state, or another reason to wait."""
        job = facts.job
        if job.state.is_final or (job.state is JobState.QUEUED and not facts.waits.reason):
            return
        state = (job.state, job.attempt, facts.waits.reason if job.state is JobState.QUEUED else "", facts.cancelling)
        if state != self._last:
            self._last = state
            sys.stderr.write(printable(text_of(facts)) + "\n")
            sys.stderr.flush()

    def again(self) -> None:
        """Do nothing: what was printed stays."""

    def remove(self) -> None:
        """Do nothing: what was printed stays."""


class Button:
    """The Cancel button of one header; clicks come on a thread of a subshell."""

    def __init__(self, kernel: object, on_click: Callable[[], None]) -> None:
        self._kernel = kernel
        self._on_click = on_click
        self._box: Any = None
        self._button: Any = None
        self._handle: _Handle | None = None

    def place(self) -> None:
        """Put the button above what is displayed next; nothing happens where no click would be heard."""
        if self._box is None and not self._make():
            return
        # ipykernel 7.4 sends what comes for a comm to the shell that used it last, which is this busy one; ours goes where it is sent to.
        getattr(self._button.comm, "__dict__", {}).pop("_reply_subshell_id", None)
        view = {VIEW: {"version_major": 2, "version_minor": 0, "model_id": self._box.model_id}, "text/plain": ""}
        self._handle = display(view, raw=True, display_id=True)

    def is_there(self) -> bool:
        """Tell whether there is a button."""
        return self._button is not None

    def _make(self) -> bool:
        if not getattr(self._kernel, "_supports_kernel_subshells", False):
            return False
        try:
            import ipywidgets
        except ImportError:
            return False
        self._button = ipywidgets.Button(description="Cancel", tooltip="Cancel the job")
        self._button.add_class("mgpu-cancel")
        self._button.on_click(self._clicked)
        self._box = ipywidgets.HBox([self._button])
        self._box.add_class("mgpu-actions")
        if not self._is_heard():
            self.remove()
        return self._box is not None

    def _is_heard(self) -> bool:
        """Tell whether the front end talks to widgets over a subshell; it opens one when it hears of the first widget."""
        manager = self._kernel.shell_channel_thread.manager  # type: ignore[attr-defined]
        global _waited  # noqa: PLW0603 - once for each kernel
        has_page = "JPY_SESSION_NAME" in os.environ  # set where a Jupyter server has started the kernel for a notebook
        ends_at = time.monotonic() + (SUBSHELL_S if has_page and not _waited else 0.0)
        while not manager.list_subshell() and time.monotonic() < ends_at:
            time.sleep(0.02)
        _waited = True
        return bool(manager.list_subshell())

    def remove(self) -> None:
        """Take the button away."""
        if self._handle is not None:
            self._handle.update(EMPTY, raw=True, metadata={})
            self._handle = None
        if self._box is not None:
            self._button.close()
            self._box.close()
            self._box = self._button = None

    def _clicked(self, button: Any) -> None:
        button.disabled = True
        self._on_click()


def display(data: Mapping[str, Any], **options: Any) -> Any:
    """Display a bundle; return its handle if it has an id."""
    from IPython import display as ipython

    show: Callable[..., Any] = ipython.display
    return show(data, **options)


def clear_output() -> None:
    """Clear the cell's output with what is displayed next."""
    from IPython import display as ipython

    clear: Callable[..., None] = ipython.clear_output
    clear(wait=True)
