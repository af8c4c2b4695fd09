"""How the header of a job and its buttons get on the screen: a kernel's front end replaces it in place, a
terminal gets lines.

Everything is sent from the cell's own thread, else nbclient drops it. Buttons are rows of zero height before
the header, so that it can be replaced each second without taking away a click or the focus. There are two
rows: commands of JupyterLab (`actions.py`), visible where mgpu's extension is in the page, and widgets,
visible elsewhere. A widget's click must reach the kernel while the cell still runs: front ends that talk to
widgets over subshells do that (`subshells.py`). Without a subshell, the header says what Stop does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api import models
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook import subshells
from mgpu_jupyter.notebook.actions import live_html
from mgpu_jupyter.notebook.header import done_html, html_of
from mgpu_jupyter.notebook.header_text import Facts, text_of

VIEW = "application/vnd.jupyter.widget-view+json"
SUBSHELL_S = 5.0
"""How long after its first widget a front end may take to open a subshell."""
EMPTY: Mapping[str, Any] = {"text/plain": "", "text/html": ""}


class Header(Protocol):
    """A header in a front end."""

    def show(self, facts: Facts) -> None:
        """Show or update it."""

    def settle(self) -> None:
        """Continue with what takes the front end a moment."""

    def widgets(self, job: models.Job) -> int:
        """Return how many buttons of the kernel's own lie over it."""

    def again(self) -> None:
        """Show it again, because the front end cleared all output."""

    def end(self) -> None:
        """Remove its buttons."""

    def remove(self) -> None:
        """Remove it."""


class _Handle(Protocol):
    def update(self, obj: object, *, raw: bool, metadata: Mapping[str, object]) -> None:
        """Replace what is shown."""


def has_page() -> bool:
    """Tell whether a Jupyter server has started this kernel for a notebook that is open in a browser."""
    return "JPY_SESSION_NAME" in os.environ


class RichHeader:
    """HTML with a line of text beside it, updated in place; `ends_quietly` leaves the one line of a job that
    completed.
    """

    def __init__(self, buttons: Buttons | None = None, *, ends_quietly: bool = False) -> None:
        self._buttons = buttons
        self._ends_quietly = ends_quietly
        self._commands = _Piece()
        self._head = _Piece()

    def show(self, facts: Facts) -> None:
        """Show or update it; what did not change is not sent."""
        job = facts.job
        metadata = {"mgpu": {"job_id": job.id}}
        if has_page():
            page = live_html(job, cancelling=facts.cancelling)
            if page or self._commands.is_there:
                self._commands.show({"text/html": page, "text/plain": ""}, {})
            if self._buttons is not None:
                self._buttons.place(job)
        page = html_of(facts)
        if not page and self._ends_quietly:
            page = done_html(job)
        self._head.show({"text/html": page, "text/plain": text_of(facts) if page else ""}, metadata)

    def settle(self) -> None:
        """Show the widgets once their clicks arrive."""
        if self._buttons is not None:
            self._buttons.settle()

    def widgets(self, job: models.Job) -> int:
        """Return how many widgets lie over it."""
        return 0 if self._buttons is None else self._buttons.count(job)

    def again(self) -> None:
        """Show it again, because the front end cleared all output."""
        if self._head.is_there:
            self._commands.again()
            if self._buttons is not None:
                self._buttons.again()
            self._head.again()

    def end(self) -> None:
        """Remove its buttons."""
        self._commands.remove()
        if self._buttons is not None:
            self._buttons.remove()

    def remove(self) -> None:
        """Remove it; an empty output with the job's metadata is left in the notebook."""
        self._head.remove()


class _Piece:
    """One display that is updated only when it changed."""

    def __init__(self) -> None:
        self._handle: _Handle | None = None
        self._last: Mapping[str, Any] = {}
        self._metadata: Mapping[str, object] = {}

    @property
    def is_there(self) -> bool:
        """Tell whether it was shown."""
        return self._handle is not None

    def show(self, bundle: Mapping[str, Any], metadata: Mapping[str, object]) -> None:
        """Show or update it."""
        if bundle == self._last:
            return
        self._last, self._metadata = bundle, metadata
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True, metadata=metadata)
        else:
            self._handle.update(bundle, raw=True, metadata=metadata)

    def again(self) -> None:
        """Show the last state in a new output."""
        if self._handle is not None:
            self._handle = display(self._last, raw=True, display_id=True, metadata=self._metadata)

    def remove(self) -> None:
        """Leave an empty output."""
        if self._handle is not None:
            self.show(EMPTY, self._metadata)


class PlainHeader:
    """A line on stderr, and a new one only when the state changes: a terminal keeps its lines."""

    def __init__(self) -> None:
        self._last: tuple[object, ...] = ()

    def show(self, facts: Facts) -> None:
        """Print the line if the state, or the reason to wait, is another one."""
        job = facts.job
        is_told_later = job.state.is_final and job.state is not JobState.FAILED
        if is_told_later or (job.state is JobState.QUEUED and not facts.waits.reason):
            return
        state = (
            job.state,
            job.attempt,
            facts.waits.reason if job.state is JobState.QUEUED else "",
            facts.cancelling,
        )
        if state != self._last:
            self._last = state
            sys.stderr.write(printable(text_of(facts)) + "\n")
            sys.stderr.flush()

    def settle(self) -> None:
        """Do nothing: lines need no time."""

    def widgets(self, job: models.Job) -> int:  # noqa: ARG002 - whatever it is
        """Return that there are none."""
        return 0

    def again(self) -> None:
        """Do nothing: what was printed stays."""

    def end(self) -> None:
        """Do nothing: there are no buttons."""

    def remove(self) -> None:
        """Do nothing: what was printed stays."""


class Buttons:
    """Why and Cancel of one header as widgets; clicks come on a thread of a subshell."""

    def __init__(self, kernel: object, on_cancel: Callable[[], None], on_why: Callable[[], None]) -> None:
        self._kernel = kernel
        self._on_cancel = on_cancel
        self._on_why = on_why
        self._piece = _Piece()
        self._box: Any = None
        self._why: Any = None
        self._cancel: Any = None
        self._is_heard = False
        self._ends_at: float | None = None
        """When to stop waiting for a front end to open a subshell; None before the first widget."""

    def place(self, job: models.Job) -> None:
        """Reserve an output for them before what is displayed next, and adapt them to the job's state."""
        if not self._piece.is_there and subshells.are_supported(self._kernel) and not job.state.is_final:
            self._piece.show(EMPTY, {})
        if self._is_heard:
            self._why.layout.display = "" if job.state is JobState.QUEUED else "none"
            self._box.layout.visibility = "visible" if self.count(job) else "hidden"

    def count(self, job: models.Job) -> int:
        """Return how many there are for a job in this state."""
        if not self._is_heard or job.state.is_final or job.state is JobState.STOPPING:
            return 0
        return 2 if job.state is JobState.QUEUED else 1

    def settle(self) -> None:
        """Make them, and show them as soon as their clicks arrive; never waits."""
        if not self._piece.is_there or self._is_heard:
            return
        if self._ends_at is None:
            self._ends_at = time.monotonic() + SUBSHELL_S
            self._make()
        elif self._box is not None and subshells.are_open(self._kernel):
            for button in (self._why, self._cancel):
                subshells.listen_where_it_is_sent(button.comm)
            self._is_heard = True
            model = {"version_major": 2, "version_minor": 0, "model_id": self._box.model_id}
            self._piece.show({VIEW: model, "text/plain": ""}, {})
        elif time.monotonic() > self._ends_at:
            self._close()

    def again(self) -> None:
        """Show them again, because the front end cleared all output."""
        self._piece.again()

    def remove(self) -> None:
        """Remove them."""
        self._piece.remove()
        self._close()

    def _make(self) -> None:
        try:
            import ipywidgets
        except ImportError:
            return
        self._why = ipywidgets.Button(description="Why", tooltip="Why the job waits")
        self._why.add_class("mgpu-why")
        self._why.layout.display = "none"
        self._why.on_click(lambda _: self._on_why())
        self._cancel = ipywidgets.Button(description="Cancel", tooltip="Cancel the job")
        self._cancel.add_class("mgpu-cancel")
        self._cancel.on_click(self._cancelled)
        self._box = ipywidgets.HBox([self._why, self._cancel])
        self._box.add_class("mgpu-actions")
        self._box.add_class("mgpu-widgets")

    def _cancelled(self, button: Any) -> None:
        button.disabled = True
        self._on_cancel()

    def _close(self) -> None:
        self._is_heard = False
        for one in (self._why, self._cancel, self._box):
            if one is not None:
                one.close()
        self._box = self._why = self._cancel = None


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
