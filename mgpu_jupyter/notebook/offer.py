"""The same cell again while its job still runs: nothing is submitted, and the user is asked what to do.

Two buttons ask where widgets work; elsewhere, and beside them, a sentence says what to type. The cell fails,
so that cells below it, which depend on its result, do not run.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.text import as_html, tell
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.words import duration
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.actions import link
from mgpu_jupyter.notebook.front import show_bundle
from mgpu_jupyter.notebook.remember import mark
from mgpu_jupyter.notebook.style import GLYPHS, STYLE

ATTACH, SECOND = "Attach to it", "Run a second one"
VIEW = "application/vnd.jupyter.widget-view+json"


class StillRuns(MgpuError):
    """The cell's job still runs, and nothing was submitted."""

    def __init__(self, job: Job) -> None:
        super().__init__(
            "still-runs",
            f"{sentence(job)} {ATTACH}: %mgpu_attach {job.id} · {SECOND}: add --again to the line. Nothing "
            f"was submitted.",
        )
        self.job_id = job.id
        self.has_buttons = False

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a traceback."""
        if self.has_buttons:
            return [
                (
                    f"Nothing was submitted. Without buttons: %mgpu_attach {self.job_id}, or add --again to "
                    f"the "
                    f"line."
                )
            ]
        return [f"{type(self).__name__}: {self}"]


def sentence(job: Job, now: float | None = None) -> str:
    """Return the sentence that the job of a cell still runs, and for how long."""
    info = job.info
    what = (
        "sweep"
        if isinstance(job, JobArray) and info.sweep
        else "array"
        if isinstance(job, JobArray)
        else "job"
    )
    name = info.name or str(job.id)
    if info.state is JobState.QUEUED:
        return f"This cell’s {what} {name} still waits."
    since = (time.time() if now is None else now) - (info.started_at or info.submitted_at)
    return f"This cell’s {what} {name} still runs ({_so_far(since)} so far)."


def card(job: Job) -> str:
    """Return the sentence in its frame, with what to type, for front ends without widgets."""
    typed = (
        f"{ATTACH}: <code>%mgpu_attach {as_html(job.id)}</code> · {SECOND}: add <code>--again</code> to "
        f"the line."
    )
    return f'<div class="mgpu-again">{_words(job)}<span>{typed}</span></div>'


def _words(job: Job) -> str:
    """Return glyph and sentence as HTML; the name opens the job where there is a view of it."""
    info = job.info
    name = as_html(info.name or str(job.id))
    told = as_html(sentence(job))
    if not isinstance(job, JobArray):
        told = told.replace(f" {name} still ", f" {link(info, name)} still ", 1)
    glyph = GLYPHS["queued" if info.state is JobState.QUEUED else "running"]
    return f'{STYLE}<div class="mgpu-asks">{glyph}<span>{told}</span></div>'


def offer(job: Job, attach: Callable[[], None], second: Callable[[], None], *, is_rich: bool) -> StillRuns:
    """Show the question where buttons work, and return the error that ends the cell."""
    error = StillRuns(job)
    if is_rich and (asked := _buttons(job, attach, second)) is not None:
        view = {"version_major": 2, "version_minor": 0, "model_id": asked.model_id}
        bundle = {"text/plain": sentence(job), "text/html": card(job), VIEW: view}
        show_bundle(bundle, metadata=mark(job))
        error.has_buttons = True
    return error


def _buttons(job: Job, attach: Callable[[], None], second: Callable[[], None]) -> Any:
    """Return the two buttons below the sentence, or None where there are no widgets."""
    try:
        ipywidgets = importlib.import_module("ipywidgets")
    except ImportError:
        return None
    text = ipywidgets.HTML(_words(job))
    buttons = [
        ipywidgets.Button(
            description=ATTACH, button_style="primary", tooltip=f"Show {job.id} from its start"
        ),
        ipywidgets.Button(description=SECOND, tooltip="Submit the cell once more"),
    ]
    shown = ipywidgets.Output()
    row = ipywidgets.HBox([text, *buttons])
    row.add_class("mgpu-again")

    def on(act: Callable[[], None]) -> Callable[[object], None]:
        def clicked(_button: object) -> None:
            row.layout.display = "none"
            with shown:
                try:
                    act()
                except (MgpuError, KeyboardInterrupt) as trouble:
                    tell(f"{type(trouble).__name__}: {trouble}")

        return clicked

    for button, act in zip(buttons, (attach, second), strict=True):
        button.on_click(on(act))
    return ipywidgets.VBox([row, shown])


def _so_far(seconds: float) -> str:
    """Return a time without the seconds of a long one: 42 m, not 42 m 07 s."""
    return duration(seconds) if seconds < 60 or seconds >= 3600 else f"{int(seconds) // 60} m"
